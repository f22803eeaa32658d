"""What is wrong with a request, in the words of this service instead of those of the library that checks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slotwise.errors import InputError

KINDS = {
    "string": "a text",
    "float": "a number",
    "decimal": "a number",
    "int": "a whole number",
    "bool": "true or false",
    "list": "a list",
    "tuple": "a list",
    "dict": "an object",
    "model": "an object",
    "typed": "an object",
}
LIMITS = {
    "greater_than": "more than",
    "greater_than_equal": "at least",
    "less_than": "less than",
    "less_than_equal": "at most",
}
LONGEST = 60  # characters of what was sent that an answer repeats


def mistake_of(finding: Mapping[str, Any]) -> InputError:
    """Return the error that tells one finding of pydantic: what, where, what would be right."""
    kind, context = finding["type"], finding.get("ctx") or {}
    where = place_of(finding["loc"])
    given = shown(finding.get("input"))
    if kind == "missing":
        return InputError("is missing", where=where, remedy="send it")
    if kind == "extra_forbidden":
        return InputError("is unknown", where=where, remedy="see /openapi.json for what can be sent")
    if kind == "json_invalid":
        return InputError(f"the body is not JSON: {context.get('error', '')}")
    if kind in LIMITS:
        return InputError(
            f"is {given}", where=where, remedy=f"send {LIMITS[kind]} {next(iter(context.values())):g}"
        )
    if kind == "finite_number":
        return InputError(f"is {given}", where=where, remedy="send a finite number")
    if kind in ("too_short", "string_too_short"):
        return InputError("is empty", where=where, remedy=f"send at least {context['min_length']}")
    if kind == "string_too_long":
        return InputError("is too long", where=where, remedy=f"send at most {context['max_length']:,} characters")
    if kind == "too_long":
        return InputError("has too many parts", where=where, remedy=f"send at most {context['max_length']:,}")
    if kind == "string_pattern_mismatch":
        return InputError(
            f"{given} has characters that are not allowed", where=where, remedy="leave control characters out"
        )
    if kind == "literal_error":
        return InputError(f"is {given}", where=where, remedy=f"send one of: {context['expected']}")
    if kind == "value_error":
        return InputError(str(finding["msg"]).removeprefix("Value error, "), where=where)
    wanted = KINDS.get(kind.split("_")[0], "something else")
    return InputError(f"is {given}", where=where or "the body", remedy=f"send {wanted}")


def place_of(location: tuple[int | str, ...]) -> str:
    """Return where a finding stands, such as `needs.cpu` or `[3].argv[0]`."""
    place = ""
    for part in location:
        if isinstance(part, int):
            place += f"[{part}]"
        elif part not in ("body", "query", "path", "[key]") or place:
            place += f".{part}" if place else str(part)
    return place


def shown(value: Any) -> str:
    """Return what was sent, short and without characters that would not be printed."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else ascii(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
