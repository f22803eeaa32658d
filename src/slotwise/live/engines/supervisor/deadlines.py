"""Time limits: when an attempt is warned, and when it is asked to end. The grace period after that is `processes.kill_late`.

Times are of the monotonic clock, which all processes share until the machine goes down. So a supervisor that takes over after a killed one
goes on with the same deadlines, which the log keeps.
"""

from __future__ import annotations

import heapq
import signal
from collections.abc import Mapping

from slotwise.live.durations import over_time
from slotwise.live.engines.supervisor.claims import Key
from slotwise.live.engines.supervisor.limits import Limit
from slotwise.live.engines.supervisor.processes import RunningProcess, ask_to_end, signal_group

WARN, END = 0, 1


class Deadlines:
    """The deadlines of all attempts that run."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, Key, int, Limit]] = []
        """when, which attempt, and whether it is warned or ended then"""

    def add(self, key: Key, limit: Limit | None, now: float) -> None:
        """Watch an attempt. A warning whose time has passed was sent by an earlier supervisor."""
        if limit is None:
            return
        heapq.heappush(self._heap, (limit.ends, key, END, limit))
        if limit.warned and limit.warned >= now:
            heapq.heappush(self._heap, (limit.warned, key, WARN, limit))

    def wait(self, now: float, most: float) -> float:
        """Return how long to sleep until the next deadline, and no longer than `most`."""
        return max(0.0, min(most, self._heap[0][0] - now)) if self._heap else most

    def enforce(
        self, running: Mapping[Key, RunningProcess], adopted: Mapping[Key, RunningProcess], now: float
    ) -> None:
        """Warn attempts and ask attempts to end whose time has come."""
        while self._heap and self._heap[0][0] <= now:
            _, key, what, limit = heapq.heappop(self._heap)
            one = running.get(key) or adopted.get(key)
            if one is None or not one.pid:
                continue  # it has ended
            if what == WARN:
                signal_group(one, limit.signal)
            elif not one.reason:
                one.reason = over_time(limit.seconds)
                ask_to_end(one, limit.grace)


def number_of(name: str) -> int:
    """Return the number of a signal by its name.

    >>> number_of("USR1") == number_of("SIGUSR1") == signal.SIGUSR1
    True
    """
    return int(signal.Signals["SIG" + name.upper().removeprefix("SIG")])
