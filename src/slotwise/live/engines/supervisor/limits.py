"""The time limit of an attempt, in the message that starts it and in the log; and the numbers that a log may have."""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping
from typing import Any, NamedTuple

GRACE_SECONDS = 10.0  # between SIGTERM and SIGKILL, if the job does not say
MOST = 2**63 - 1  # as in the store


def whole(text: str, most: int = MOST) -> int:
    """Return the number that digits stand for. Raise ValueError for anything else, such as `1_0`, and above `most`."""
    if not (text.isascii() and text.isdigit()) or int(text) > most:
        raise ValueError(f"{text[:40]!r} is no number up to {most}")
    return int(text)


def finite(text: str) -> float:
    """Return a number with a point. Raise ValueError for anything else, such as `nan`."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is no number")
    return number


class Limit(NamedTuple):
    """The time limit of one attempt."""

    ends: float
    """monotonic clock"""
    seconds: float
    """the limit, as it was asked for"""
    grace: float = GRACE_SECONDS
    warned: float = 0.0
    """when to send the warning; 0: never"""
    signal: int = 0

    @classmethod
    def of(cls, wanted: Mapping[str, Any], began: float) -> Limit | None:
        """Return the limit in the message that starts an attempt; None: it has none."""
        seconds = wanted.get("time")
        if not seconds:
            return None
        number, before = wanted.get("warn") or (0, 0.0)
        warned = began + max(0.0, seconds - before) if number else 0.0
        return cls(began + seconds, seconds, wanted.get("grace", GRACE_SECONDS), warned, number)

    def line(self) -> str:
        """Return the limit as the log keeps it."""
        return " ".join(map(repr, self))

    @classmethod
    def read(cls, text: str) -> Limit:
        """Read what `line` wrote. Raise ValueError if it is anything else."""
        ends, seconds, grace, warned, number = text.split(" ")
        return cls(finite(ends), finite(seconds), finite(grace), finite(warned), whole(number, signal.NSIG - 1))
