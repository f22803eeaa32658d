"""Bodies of submissions: read and checked, the large ones in a thread, so that other requests are answered meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import FailFast, TypeAdapter, ValidationError

from slotwise.errors import InputError
from slotwise.live.api.gate import RefusedRequest
from slotwise.live.api.words import mistake_of
from slotwise.live.spec import JobSpec

T = TypeVar("T")
BULK = 10_000  # jobs of one request
# Values in one body: 30 for each of 10,000 jobs. Python takes some 100 bytes for each, so that 32 MB of `[{},{},...]` would take 1 GB.
VALUES = 300_000
OBJECTS = 60_000  # objects in one body: six for each of 10,000 jobs. They are read in 0.1 s
INLINE = 4_000  # bytes that are read at once, in some 0.1 ms; a larger body is read in a thread
PIECE = 1 << 20  # bytes that are counted without a pause, in which other threads may run
ONE: TypeAdapter[JobSpec] = TypeAdapter(JobSpec)
MANY: TypeAdapter[list[JobSpec]] = TypeAdapter(Annotated[list[JobSpec], FailFast()])


async def off_the_loop(function: Callable[[bytes], T], body: bytes) -> T:
    """Return what a function makes of a body; a large body, or one with an array, is handled in a thread."""
    is_quick = len(body) <= INLINE and b"array" not in body
    return function(body) if is_quick else await asyncio.to_thread(function, body)


def read_one(body: bytes) -> list[JobSpec]:
    """Return the job of a body."""
    return [checked(ONE, read_json(body))]


def read_many(body: bytes) -> list[JobSpec]:
    """Return the jobs of a body."""
    values = read_json(body)
    if isinstance(values, list) and not 1 <= len(values) <= BULK:
        raise InputError(f"{len(values):,} jobs", where="jobs", remedy=f"send 1 to {BULK:,} at once")
    return checked(MANY, values)


def checked(adapter: TypeAdapter[T], values: Any) -> T:
    """Return checked values; the first mistake is told."""
    try:
        return adapter.validate_python(values)
    except ValidationError as error:
        raise RefusedRequest(422, str(mistake_of(error.errors(include_url=False)[0]))) from None


def read_json(body: bytes) -> Any:
    """Read JSON. Refuse keys that are named twice: the two may contradict each other."""
    many = sum(body[at : at + PIECE].count(b",") for at in range(0, len(body), PIECE))
    if many > VALUES:
        raise RefusedRequest(413, f"the request has more than {VALUES:,} values; send fewer jobs at once")
    objects = 0

    def one_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal objects
        objects += 1
        if objects > OBJECTS:
            raise RefusedRequest(413, f"the request has more than {OBJECTS:,} objects; send fewer jobs at once")
        return without_repeats(pairs)

    try:
        return json.loads(body, object_pairs_hook=one_object, parse_constant=refuse_constant)
    except RecursionError:
        raise RefusedRequest(422, "the body is nested too deeply") from None
    except ValueError as error:
        raise RefusedRequest(422, f"the body is not JSON: {error}") from None


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; refuse a key that is named twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RefusedRequest(
            422, str(InputError("is named twice", where=ascii(twice)[1:-1], remedy="send each key once"))
        )
    return found


def refuse_constant(name: str) -> float:
    """Refuse NaN and Infinity, which are not JSON."""
    raise ValueError(f"{name} is no number")
