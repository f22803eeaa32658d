"""The service's clock: it follows the wall clock and never goes back, whatever happens to the machine's clock.

It advances by the monotonic clock, and corrects towards the wall clock by at most a tenth of what has passed. So a machine whose clock jumps
by an hour changes no wait and no order; the times shown are right again after ten hours, or after a restart.
"""

from __future__ import annotations

import time
from collections.abc import Callable

CORRECTION = 0.1  # share of the passed time by which the clock is corrected


class Clock:
    """Seconds since 1970, more or less, and never less than before."""

    def __init__(
        self,
        not_before: float = 0.0,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._now, self._last = max(not_before, wall()), monotonic()

    def now(self) -> float:
        """The time; each call is at or after the one before."""
        last = self._monotonic()
        passed, self._last = max(0.0, last - self._last), last
        most = CORRECTION * passed
        error = self._wall() - (self._now + passed)
        self._now += passed + min(most, max(-most, error))
        return self._now

    @property
    def off(self) -> float:
        """How far the wall clock is ahead of this one, in seconds."""
        return self._wall() - self._now
