"""Retries: a job that has failed is executed again, as the next attempt of the same job, after a back-off that doubles each time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

BACKOFF = 10.0  # seconds before the first retry, where a submission names none
LONGEST = 3600.0  # seconds: the back-off grows up to here; one that begins longer stays as it is
MOST = 1000  # retries of one job
KILLED = 128  # a shell adds this to the signal that has killed a process; 137 is SIGKILL


class Retry(NamedTuple):
    """What a submission says of retries."""

    times: int
    backoff: float = BACKOFF
    codes: frozenset[int] | None = None
    """exit codes after which the job is executed again; None: all but 0"""

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Retry | None:
        """Return what a submission says; None: it is not executed again."""
        if not spec.get("retry"):
            return None
        codes = spec.get("retry_on")
        return cls(spec["retry"], spec.get("backoff", BACKOFF), None if codes is None else frozenset(codes))

    def again(self, made: int, exit_code: int) -> bool:
        """Return whether a job that has failed with a code after so many retries is executed again."""
        return made < self.times and (self.codes is None or not self.codes.isdisjoint(names_of(exit_code)))

    def delay(self, retry: int) -> float:
        """Return the seconds between an end and the retry of this number, which is 1 for the first.

        >>> [Retry(9, 30.0).delay(n) for n in (1, 2, 3, 8)]
        [30.0, 60.0, 120.0, 3600.0]
        """
        return max(self.backoff, min(LONGEST, self.backoff * 2.0 ** min(retry - 1, 60)))


def names_of(exit_code: int) -> Sequence[int]:
    """Return the numbers by which users know an exit code: -9 is a process killed by signal 9, which shells call 137."""
    return (exit_code,) if exit_code >= 0 else (exit_code, KILLED - exit_code)
