"""How much one caller may ask for: requests a second, jobs that wait, open streams. Operators have a limit on streams only."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from slotwise.live.api.gate import RefusedRequest
from slotwise.live.auth import Caller

# Requests a second with one token; after a pause, twice as many at once.
RATE = 500.0
# Jobs of one tenant that may wait at the same time.
WAITING = 1_000_000
REMEMBERED = 10_000  # tokens whose rates are kept; the oldest is forgotten first
# Seconds before a refusal such as 401 or 429. Refusals of one token follow one another: all its connections together get 5 of them a second.
PAUSE = 0.2
LONGEST_PAUSE = 5.0  # seconds before a refusal, however many others come first
# Open streams of one token. Each costs work at every commit.
STREAMS = 20
# Open streams of all callers.
ALL_STREAMS = 500
# Seconds between two pages of a stream, for each other stream of its token: together, 20 streams send at most 42 pages a second.
SPACING = 0.025


class Streams:
    """Counts open streams. Used by the event loop only."""

    def __init__(self, most: int = STREAMS, most_of_all: int = ALL_STREAMS) -> None:
        self.most, self.most_of_all = most, most_of_all
        self._open: Counter[str] = Counter()

    def check(self, caller: Caller) -> None:
        """Refuse one stream more than the caller may have."""
        if self._open[caller.token] >= self.most:
            raise RefusedRequest(429, f"more than {self.most} open streams with this token; close one", 10.0)
        if self._open.total() >= self.most_of_all:
            raise RefusedRequest(503, f"more than {self.most_of_all} open streams", 10.0)

    def rest(self, caller: Caller, now: float) -> float:
        """Return how long a stream waits before its next page. Streams of one token wait for the same moments, so that they share pages."""
        every = 0.0 if caller.role == "operate" else SPACING * (self._open[caller.token] - 1)
        return every - now % every if every > 0.0 else 0.0

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
        pause: float = PAUSE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rate, self.waiting, self.pause = rate, waiting, pause
        self._count, self._clock = count, clock
        self._refusals: dict[str, float] = {}
        """when the last refusal of a token goes out"""
        self._tokens: dict[str, tuple[float, float]] = {}
        """how many requests a token has left, and when that was"""
        self._most: dict[str, int] = {}
        """at most so many jobs of a tenant wait: the last count and what was submitted since"""
        self._lock = threading.Lock()
        self._counting: defaultdict[str, threading.Lock] = defaultdict(
            threading.Lock
        )  # one count of a tenant at a time

    def knock(self, caller: Caller) -> float:
        """Count a request; return how many seconds too early it comes. Used by the event loop only."""
        if caller.role == "operate":
            return 0.0
        now, most = self._clock(), 2 * self.rate
        left, then = self._tokens.pop(caller.token, (most, now))
        left = min(most, left + (now - then) * self.rate)
        early = max(0.0, (1.0 - left) / self.rate)
        self._tokens[caller.token] = (left if early else left - 1.0, now)
        if len(self._tokens) > REMEMBERED:
            del self._tokens[next(iter(self._tokens))]
        return early

    def refused(self, token: str) -> float:
        """Return how long a refusal waits for those of the same token that come first. Callers without a token share "". Used by the event loop only."""
        now = self._clock()
        goes = max(now, self._refusals.pop(token, now)) + self.pause
        self._refusals[token] = min(goes, now + LONGEST_PAUSE)
        if len(self._refusals) > REMEMBERED:
            del self._refusals[next(iter(self._refusals))]
        return min(goes - now, LONGEST_PAUSE)

    def fits(self, caller: Caller, new: int) -> bool:
        """Return whether so many more jobs of this submitter may wait for certain, without a look at the store; then they are counted."""
        if caller.role == "operate":
            return True
        with self._lock:
            most = self._most.get(caller.tenant, self.waiting) + new
            if most <= self.waiting:
                self._most[caller.tenant] = most
        return most <= self.waiting

    def room(self, caller: Caller, new: int) -> bool:
        """Return whether so many more jobs of this submitter may wait; then they are counted. May ask the store, which takes a while."""
        with self._counting[caller.tenant]:
            if self.fits(caller, new):
                return True
            before = self._most.get(caller.tenant, 0)
            waiting = self._count(caller.tenant)  # without the lock that `fits` takes, which the event loop calls
            with self._lock:
                most = waiting + self._most.get(caller.tenant, 0) - before + new
                if most <= self.waiting:
                    self._most[caller.tenant] = most
        return most <= self.waiting
