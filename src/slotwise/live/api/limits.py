"""How much one caller may ask for: requests a second, jobs that wait, open streams. Operators have a limit on streams only."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from slotwise.live.api.gate import Refusal
from slotwise.live.auth import Caller

RATE = 500.0
"""requests a second with one token; twice as many at once after a pause"""
WAITING = 1_000_000
"""waiting jobs of one tenant"""
REMEMBERED = 10_000


STREAMS = 20
"""open streams of one token: each costs work at every commit"""
ALL_STREAMS = 500
"""open streams of all callers"""


class Streams:
    """Counts open streams. Used by the event loop only."""

    def __init__(self, most: int = STREAMS, most_of_all: int = ALL_STREAMS) -> None:
        self.most, self.most_of_all = most, most_of_all
        self._open: Counter[str] = Counter()

    def check(self, caller: Caller) -> None:
        """Refuse one stream more than the caller may have."""
        if self._open[caller.token] >= self.most:
            raise Refusal(429, f"more than {self.most} open streams with this token; close one", 10.0)
        if self._open.total() >= self.most_of_all:
            raise Refusal(503, f"more than {self.most_of_all} open streams", 10.0)

    @contextmanager
    def one(self, caller: Caller) -> Iterator[bool]:
        """Count a stream while it is open; False if others were opened since `check`, so that it is one too many."""
        self._open[caller.token] += 1
        try:
            yield self._open[caller.token] <= self.most
        finally:
            self._open[caller.token] -= 1
            self._open += Counter()  # forget callers without streams


class Limits:
    """`count` tells how many jobs of a tenant wait; it is asked only when the limit may be near."""

    def __init__(
        self,
        count: Callable[[str], int],
        *,
        rate: float = RATE,
        waiting: int = WAITING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rate, self.waiting = rate, waiting
        self._count, self._clock = count, clock
        self._tokens: dict[str, tuple[float, float]] = {}
        """how many requests a token has left, and when that was"""
        self._most: dict[str, int] = {}
        """at most so many jobs of a tenant wait: the last count and what was submitted since"""
        self._lock = threading.Lock()

    def knock(self, caller: Caller) -> float:
        """Count a request; how many seconds too early it comes."""
        if caller.role == "operate":
            return 0.0
        now, most = self._clock(), 2 * self.rate
        with self._lock:
            left, then = self._tokens.pop(caller.token, (most, now))
            left = min(most, left + (now - then) * self.rate)
            early = max(0.0, (1.0 - left) / self.rate)
            self._tokens[caller.token] = (left if early else left - 1.0, now)
            if len(self._tokens) > REMEMBERED:
                del self._tokens[next(iter(self._tokens))]
        return early

    def room(self, caller: Caller, new: int) -> bool:
        """Whether so many more jobs of this submitter may wait; then they are counted."""
        if caller.role == "operate":
            return True
        with self._lock:
            most = self._most.get(caller.tenant, self.waiting) + new
            if most > self.waiting:
                most = self._count(caller.tenant) + new
            if most > self.waiting:
                return False
            self._most[caller.tenant] = most
        return True
