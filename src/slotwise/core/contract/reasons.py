"""Why a job waits, why a server does what it does: reasons as data, and a printer apart from them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Reason(StrEnum):
    """Each reason comes with figures; their names are in the text that it prints as."""

    # jobs
    RUNS = "runs on server {server}"
    BEHIND = "waits behind {ahead} of its type"
    FIRST = "is the first of its type in line"
    FITS_NO_SERVER = "is larger than every present server: {demand}"
    REQUIRES = "requires labels that no present server has: type {type}"
    NO_SERVERS = "there are no servers that take jobs"
    NO_SLOT = "no active server has an empty slot of its type: {taken} slots are taken, {stalled} of {servers} servers stalled"
    OWN_QUEUE = "it has joined the queue of server {server}, where {taken} of {slots} slots of its type are taken"
    NO_ROOM = "no server has enough free: {demand} asked, the nearest is server {nearest} with {free} free"
    BLOCKED = "the job before it in line, {first}, must start first"
    NOT_SAMPLED = "no tick of its queue has found a server with room yet (rate {rate:.3g})"
    RESERVED = "room on server {server} is reserved for {first}"
    TURNED_AWAY = (
        "{turning} servers have room for it, but they turn to configurations with no free slot of its type"
    )
    SWAPS_FIRST = "server {server} has room for it, but a job of type {type} must start there first"
    ABOVE_SHARE = "tenant {tenant} has had {used:.0%} of what all tenants have used and is above its share, so jobs of tenants below their shares go first"
    UNDECIDED = "the policy has not started it"
    # servers
    ACTIVE = "is active with slots {configuration}, jobs {holding}; weight {weight:g} of the best {best:g}"
    STALLED = "is stalled because weight {weight:g} < {beta:.3f} x {best:g}, and holds {holding}"
    TURNS = "turns to {configuration} because weight {weight:.4g} < {best:.4g} - margin {margin:.4g}, starts only jobs within that, and holds {holding}"
    SWAPS = "starts only jobs of type {type} until one has started, and holds {holding}"
    HAS_SLOTS = "has slots {configuration} until its clock moves on, and holds {holding}"
    EMPTY = "is empty and takes a configuration when a job comes that fits"
    PACKS = "holds {holding}, {free} free"
    HOLDS = "holds {holding}"
    RESERVED_FOR = "keeps room for {first}, which can start there at {at:g} if all jobs end as expected"
    DRAINING = "takes no more jobs and holds {holding}"
    DRAINED = "takes no more jobs and is empty: it can be removed"
    GONE = "has failed and is not there"


@dataclass(frozen=True)
class Because:
    """One reason with its figures."""

    reason: Reason
    figures: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = {name: _plain(value, zeros=name == "free") for name, value in self.figures.items()}
        return self.reason.value.format(**shown)


@dataclass(frozen=True)
class Explanation:
    """What there is to say about a job or a server."""

    subject: Hashable
    because: tuple[Because, ...]

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The kinds of reasons, without figures."""
        return tuple(because.reason for because in self.because)

    def __str__(self) -> str:
        return f"{self.subject} " + "; ".join(map(str, self.because))


def _plain(value: Any, *, zeros: bool) -> Any:
    """Write counts by name as "2 large, 1 small". With `zeros`, name also those of which there is none: what is
    used up is why a job waits."""
    if isinstance(value, dict):
        if not any(value.values()):
            return "nothing"
        return ", ".join(f"{amount:g} {name}" for name, amount in value.items() if amount or zeros)
    return value
