"""What a worker remembers of the attempts on its host."""

from __future__ import annotations

import time
from dataclasses import dataclass

from slotwise.live.engines.libvirt.connection import Size
from slotwise.live.engines.libvirt.marks import Mark
from slotwise.live.engines.protocol import Start


@dataclass
class Placed:
    """An attempt on this host."""

    start: Start | None
    """None: adopted"""
    mark: Mark | None = None
    """as the host has it; None: not defined yet, or not known"""
    unsure: bool = False
    """an earlier try, or an earlier service, may have defined it"""
    given: bool = False
    started: bool = False
    """its start was told"""
    told: bool = False
    """its end was told"""
    stop: bool = False
    asked: float | None = None
    """when it was first asked to shut down, by the monotonic clock"""
    pressed: float = float("-inf")

    def held(self) -> Size:
        """Return what it is charged."""
        if self.mark is not None:
            return Size(self.mark.cpu, self.mark.memory)
        demand = {} if self.start is None else self.start.demand
        return Size(demand.get("cpu", 0.0), demand.get("memory", 0.0))


@dataclass
class Stale:
    """A domain of this store that runs although its attempt has ended here: its host was lost and has come back."""

    asked: float
    grace: float = 10.0


def deadline_of(mark: Mark | None) -> float | None:
    """Return when the time limit of an attempt is over, in seconds since 1970; None: never."""
    if mark is None or mark.time is None or mark.begun is None:
        return None
    return mark.begun + mark.time


def must_end(one: Placed) -> bool:
    """Return whether an attempt was stopped or is over its time limit."""
    deadline = deadline_of(one.mark)
    return one.stop or one.asked is not None or (deadline is not None and time.time() >= deadline)
