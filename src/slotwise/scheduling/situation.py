"""A situation: all that a scheduler knows, as plain data, to be written down, looked at, changed and gone on from.

Jobs and servers are tables of columns, so that a million jobs are a few lists. Jobs say their type, and running ones their server, by the
position in `types` and in `servers`. Demands are whole units of 10^-digits of each resource.

`to_dict` is made of what JSON and msgpack know; `to_json` and `from_json` are text. The format has a version: what a later
version wrote, and what is damaged, is refused.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pydantic import ValidationError

from slotwise.errors import InputError
from slotwise.model import JobType, ServerClass, Shares
from slotwise.policies import POLICIES

FORMAT = "slotwise situation"
VERSION = 1  # of the format
LARGEST = 2**62  # of whole numbers: the core keeps them in 64 bits, and adds some of them

STATUSES = ("absent", "present", "draining")  # in the order of the numbers that stand for them in the state


@dataclass(frozen=True)
class ServerTable:
    """The servers that are known, in the order of their numbers, each with its class (a position in `classes`)."""

    name: list[Any]
    server_class: list[int]
    status: list[str]
    number: list[int]


@dataclass(frozen=True)
class WaitingTable:
    """The waiting jobs, queue by queue, each queue from its head on."""

    job: list[Any]
    type: list[int]
    sequence: list[int]
    """their order of arrival"""
    submitted: list[float]
    attempts: list[int] | None = None
    """how often each was placed before; None: never"""
    demand: list[list[int]] | None = None
    """what each really asks for; None: what its type does"""
    duration: list[float | None] | None = None
    """how long each is expected to run, where that is known"""
    queue: list[int | None] | None = None
    """the server whose queue each waits in; None: queues are common, or no server could take it"""


@dataclass(frozen=True)
class RunningTable:
    """The running jobs."""

    job: list[Any]
    type: list[int]
    sequence: list[int]
    submitted: list[float]
    attempts: list[int]
    """how often each was placed, this time included"""
    server: list[int]
    started: list[float]
    demand: list[list[int]] | None = None
    duration: list[float | None] | None = None


@dataclass(frozen=True)
class PolicyState:
    """The policy, by name and options, and what it keeps."""

    name: str
    options: dict[str, Any]
    random: list[int]
    """the four words of its random stream"""
    mode: list[int]
    """of each server: 0 without a configuration, 1 active, 2 stalled or turning"""
    slots: list[list[int]]
    """the configuration of each server, by type"""
    filed: list[int]
    """servers that take jobs; of those with equal free room, the later one is taken first"""
    learnt: dict[str, Any]
    """what it has learnt, by name"""


@dataclass(frozen=True)
class Situation:
    """All that a scheduler knows."""

    now: float
    resources: list[str]
    classes: list[ServerClass]
    types: list[JobType]
    digits: list[int]
    places: int
    """server numbers that were ever given out: all are below"""
    last_sequence: int
    servers: ServerTable
    waiting: WaitingTable
    running: RunningTable
    policy: PolicyState
    shares: Shares | None = None
    use: dict[str, list[float]] | None = None
    """with shares: the decayed use, the activity and the correction of each tenant"""
    used_until: float | None = None
    """the time of the last event that changed these"""
    version: int = field(default=VERSION)

    @property
    def n_jobs(self) -> int:
        """How many jobs wait or run."""
        return len(self.waiting.job) + len(self.running.job)

    def to_dict(self) -> dict[str, Any]:
        """Return numbers, texts, lists and mappings only."""
        for table, names in (
            ("servers", self.servers.name),
            ("waiting", self.waiting.job),
            ("running", self.running.job),
        ):
            for name in names:
                if type(name) is not str and type(name) is not int:
                    raise InputError(
                        f"{name!r} is neither a text nor a whole number",
                        where=f"situation.{table}",
                        remedy="give jobs and servers such names where situations are to be written down",
                    )
        return {
            "format": FORMAT,
            "version": self.version,
            "now": self.now,
            "resources": self.resources,
            "classes": [c.model_dump(mode="json", exclude_defaults=True) for c in self.classes],
            "types": [t.model_dump(mode="json", exclude_defaults=True) for t in self.types],
            "digits": self.digits,
            "places": self.places,
            "last_sequence": self.last_sequence,
            "servers": vars(self.servers),
            "waiting": {name: column for name, column in vars(self.waiting).items() if column is not None},
            "running": {name: column for name, column in vars(self.running).items() if column is not None},
            "policy": vars(self.policy),
            **self._sharing(),
        }

    def _sharing(self) -> dict[str, Any]:
        """Return the shares and uses as `to_dict` writes them; nothing where there are none, as in earlier versions."""
        if self.shares is None:
            return {}
        return {
            "shares": self.shares.model_dump(mode="json", exclude_defaults=True),
            "use": self.use or {},
            "used_until": self.used_until,
        }

    @classmethod
    def from_dict(cls, values: Any) -> Situation:
        """Return the situation that `to_dict` wrote. Refuse anything else."""
        if not isinstance(values, Mapping) or values.get("format") != FORMAT:
            raise InputError("is not a situation", where="situation", remedy="give what Situation.to_dict() made")
        version = values.get("version")
        if not isinstance(version, int) or version < 1:
            raise _damaged("version", "a whole number from 1 on")
        if version > VERSION:
            raise InputError(
                f"has format version {version}; this Slotwise knows versions up to {VERSION}",
                where="situation",
                remedy="read it with the Slotwise that wrote it, or a later one",
            )
        return _checked(_without_retired(cls(**_parts(cls, dict(values), "situation"))))

    def to_json(self) -> str:
        """Return the situation as text."""
        return json.dumps(self.to_dict(), separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Situation:
        """Return the situation from its text."""
        try:
            values = json.loads(text)
        except ValueError as error:
            raise InputError(
                f"is damaged: {error}",
                where="situation",
                remedy="give the whole text that Situation.to_json() made",
            ) from None
        return cls.from_dict(values)


def _without_retired(situation: Situation) -> Situation:
    """Leave out options and learnt values that earlier versions of the policy had, so that a store survives an upgrade."""
    before = situation.policy
    retired = POLICIES[before.name].retired if before.name in POLICIES else frozenset()
    options = {name: value for name, value in before.options.items() if name not in retired}
    learnt = {name: value for name, value in before.learnt.items() if name not in retired}
    return replace(situation, policy=replace(before, options=options, learnt=learnt))


def _damaged(where: str, remedy: str) -> InputError:
    return InputError("is damaged", where=f"situation.{where}", remedy=f"it should be {remedy}")


def _parts(cls: type[Any], values: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the fields of the class from the mapping. Refuse a missing field, an unknown field and a value of
    another kind."""
    values.pop("format", None)
    known = {part.name: part for part in fields(cls)}
    for name in values:
        if name not in known:
            raise InputError(f"unknown field {name!r}", where=where, remedy=f"it has: {', '.join(known)}")
    found = {}
    for name, part in known.items():
        if name in values:
            found[name] = _READERS[part.type](values[name], f"{where}.{name}".removeprefix("situation."))
        elif "None" not in part.type:
            raise InputError(
                f"has no {name}", where=where, remedy="give the whole of what Situation.to_dict() made"
            )
    return found


def _list_of(kinds: tuple[type, ...], what: str, least: float = -math.inf) -> Callable[[Any, str], Any]:
    def read(values: Any, where: str) -> Any:
        if not isinstance(values, Sequence) or isinstance(values, str | bytes):
            raise _damaged(where, f"a list of {what}")
        for strange in set(map(type, values)) - set(kinds):
            culprit = next(value for value in values if type(value) is strange)
            raise _damaged(where, f"a list of {what}, and has {culprit!r}")
        if str not in kinds:
            numbers = [value for value in values if value is not None] if type(None) in kinds else values
            most = sys.float_info.max if float in kinds else LARGEST
            if not all(-most <= one <= most for one in numbers) or min(numbers, default=least) < least:
                raise _damaged(where, f"a list of {what}")
        return list(values)

    return read


def _whole(value: Any, where: str) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise _damaged(where, "a whole number of 0 or more")
    return value


def _number(value: Any, where: str) -> float:
    if type(value) not in (int, float) or not -sys.float_info.max <= value <= sys.float_info.max:
        raise _damaged(where, "a number")
    return float(value)


def _text(value: Any, where: str) -> str:
    if type(value) is not str:
        raise _damaged(where, "a text")
    return value


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _damaged(where, "a mapping")
    return dict(value)


def _use(values: Any, where: str) -> list[float]:
    row: list[float] = _list_of((float, int), "three numbers")(values, where)
    if len(row) != 3 or min(row[:2]) < 0:
        raise _damaged(where, "a use, an activity and a correction")
    return row


def _rows(values: Any, where: str) -> list[list[int]]:
    if not isinstance(values, Sequence) or not all(isinstance(row, Sequence) for row in values):
        raise _damaged(where, "a list of lists")
    _counts([number for row in values for number in row], where)
    return [list(row) for row in values]


def _models(model: type[Any]) -> Callable[[Any, str], Any]:
    def read(values: Any, where: str) -> Any:
        if not isinstance(values, Sequence) or not values:
            raise _damaged(where, "a list that is not empty")
        try:
            return [model.model_validate(value) for value in values]
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise _damaged(where, f"right in {'.'.join(map(str, first['loc']))}: {first['msg']}") from None

    return read


def _table(cls: type[Any]) -> Callable[[Any, str], Any]:
    return lambda value, where: cls(**_parts(cls, _mapping(value, where), f"situation.{where}"))


_counts = _list_of((int,), "whole numbers of 0 or more", 0)
_READERS: dict[Any, Callable[[Any, str], Any]] = {
    "float": _number,
    "float | None": _number,
    "int": _whole,
    "str": _text,
    "list[Any]": _list_of((str, int), "names"),
    "list[str]": _list_of((str,), "texts"),
    "list[int]": _counts,
    "list[int] | None": _counts,
    "list[int | None] | None": _list_of((int, type(None)), "positions", 0),
    "list[float]": _list_of((float, int), "numbers"),
    "list[float | None] | None": _list_of((float, int, type(None)), "durations", 0),
    "list[list[int]]": _rows,
    "list[list[int]] | None": _rows,
    "dict[str, Any]": _mapping,
    "list[ServerClass]": _models(ServerClass),
    "list[JobType]": _models(JobType),
    "ServerTable": _table(ServerTable),
    "WaitingTable": _table(WaitingTable),
    "RunningTable": _table(RunningTable),
    "PolicyState": _table(PolicyState),
    "Shares | None": lambda value, where: _models(Shares)([value], where)[0],
    "dict[str, list[float]] | None": lambda value, where: {
        name: _use(row, f"{where}.{name}") for name, row in _mapping(value, where).items()
    },
}


def _checked(s: Situation) -> Situation:
    """Check that columns have one length, positions exist and no name occurs twice."""
    J, R, n_servers = len(s.types), len(s.resources), len(s.servers.name)
    for name, table in (("servers", s.servers), ("waiting", s.waiting), ("running", s.running)):
        columns = {column: values for column, values in vars(table).items() if values is not None}
        length = len(next(iter(columns.values())))
        for column, values in columns.items():
            if len(values) != length:
                raise _damaged(f"{name}.{column}", f"as long as the other columns: {length}")
    for where, positions, end in (
        ("servers.server_class", s.servers.server_class, len(s.classes)),
        ("servers.number", s.servers.number, s.places),
        ("waiting.type", s.waiting.type, J),
        ("running.type", s.running.type, J),
        ("running.server", s.running.server, n_servers),
        ("policy.filed", s.policy.filed, n_servers),
        ("waiting.queue", [at for at in s.waiting.queue or () if at is not None], n_servers),
        ("waiting.sequence", s.waiting.sequence, s.last_sequence),
        ("running.sequence", s.running.sequence, s.last_sequence),
    ):
        if positions and max(positions) >= end:
            raise _damaged(where, f"below {end} everywhere")
    for where, names in (
        ("servers.name", s.servers.name),
        ("servers.number", s.servers.number),
        ("policy.filed", s.policy.filed),
        ("waiting and running: job", [*s.waiting.job, *s.running.job]),
        ("waiting and running: sequence", [*s.waiting.sequence, *s.running.sequence]),
        ("types", [t.name for t in s.types]),
        ("classes", [c.name for c in s.classes]),
    ):
        if len(set(names)) != len(names):
            raise _damaged(where, "without doubles")
    if s.servers.number != sorted(s.servers.number):
        raise _damaged("servers.number", "in rising order")
    if not set(s.servers.status) <= set(STATUSES):
        raise _damaged("servers.status", f"one of {', '.join(STATUSES)} for each server")
    if any(s.servers.status[at] == "absent" for at in s.running.server):
        raise _damaged("running.server", "a server that is there")
    for where, rows, width in (
        ("policy.slots", s.policy.slots, J),
        ("waiting.demand", s.waiting.demand or [], R),
        ("running.demand", s.running.demand or [], R),
    ):
        if any(len(row) != width for row in rows):
            raise _damaged(where, f"rows of {width} numbers")
    if len(s.policy.mode) != n_servers or len(s.policy.slots) != n_servers or len(s.policy.random) != 4:
        raise _damaged("policy", "one mode and one row of slots for each server, and four random words")
    if (
        len(s.digits) != R
        or any(len(c.capacity) != R for c in s.classes)
        or any(len(t.demand) != R for t in s.types)
    ):
        raise _damaged("resources", "one number for each resource in digits, classes and types")
    return s
