"""What waits for the loop: requests of users and facts of engines, each in the order in which they came, and not without bound.

They take turns: users do not wait until ten thousand facts are heard, nor engines until ten thousand jobs are submitted. Large requests, of many
jobs, stand aside: small ones are taken first, and one large one at most at a time, so that no caller waits for the large requests of another.
While small requests come, large ones have a third of the time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from slotwise.errors import SlotwiseError
from slotwise.live.engines.protocol import Fact

QUIET_SECONDS = 1.0  # without a small request, after which no other caller is there
REST = 2.0  # seconds without a large request, for each second that the last one took, while other callers are there
LARGE = 20  # jobs of a request that stands aside: they take about as long as the transaction around them


class FullError(SlotwiseError):
    """Too much waits; try again in a moment."""


class Request:
    """Something a user asks for: what to do with the ledger at what time, and where the answer goes."""

    __slots__ = ("act", "future", "weight")

    def __init__(self, act: Callable[[Any, float], Any], weight: int = 1) -> None:
        self.act, self.weight = act, weight
        self.future: Future[Any] = Future()


class Inbox:
    """Requests are refused when too much waits; facts never are, since they cannot be asked for again soon."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._clock = limit, clock
        self._requests: deque[Request] = deque()
        self._large: deque[Request] = deque()
        self._passed = False  # whether the first large request let small ones pass
        self.small_at = float("-inf")
        """when a small request came last, on the monotonic clock"""
        self._large_at: float | None = None
        """when the large request of this round was taken"""
        self._rests_until = float("-inf")
        self._facts: deque[Fact] = deque()
        self._weight = 0
        self._ready = threading.Condition()
        self._woken = False
        self._shut: Exception | None = None

    def __len__(self) -> int:
        return len(self._requests) + len(self._large) + len(self._facts)

    def ask(self, request: Request) -> Future[Any]:
        """Hand in a request."""
        with self._ready:
            if self._shut is not None:
                raise self._shut
            if self._weight and self._weight + request.weight > self._limit:
                raise FullError("too many requests wait; try again in a moment")
            if request.weight > LARGE:
                self._large.append(request)
            else:
                self._requests.append(request)
                self.small_at = self._clock()
            self._weight += request.weight
            self._ready.notify()
        return request.future

    def is_quiet(self) -> bool:
        """Return whether no other caller waits for the end of a large request."""
        return self._clock() - self.small_at > QUIET_SECONDS

    def tell(self, facts: Sequence[Fact]) -> None:
        """Hand in facts."""
        with self._ready:
            self._facts.extend(facts)
            self._ready.notify()

    def wake(self) -> None:
        """Let the loop look around."""
        with self._ready:
            self._woken = True
            self._ready.notify()

    def shut(self, why: Exception, others: Sequence[Request | Fact] = ()) -> None:
        """Accept no more items. Tell every waiting request why, those in `others` included."""
        with self._ready:
            self._shut = why
            left = [*others, *self._requests, *self._large]
            self._requests.clear()
            self._large.clear()
            self._facts.clear()
        for item in left:
            if isinstance(item, Request) and not item.future.done():
                item.future.set_exception(why)

    def _rest(self) -> float:
        """Return for how many seconds no large request is taken."""
        return 0.0 if self.is_quiet() else max(0.0, self._rests_until - self._clock())

    def take(self, most: int, timeout: float | None) -> list[Request | Fact]:
        """Up to so many of what waits, or of whatever comes first; nothing after the timeout."""
        with self._ready:
            if self._large_at is not None:
                now = self._clock()
                self._rests_until, self._large_at = now + REST * (now - self._large_at), None
            rest = self._rest()
            if not (self._requests or self._facts or self._woken or (self._large and not rest)):
                waits = [one for one in (timeout, rest if self._large else None) if one is not None]
                self._ready.wait(min(waits, default=None))
                rest = self._rest()
            self._woken = False
            taken: list[Request | Fact] = []
            weight = 0
            while self._requests and weight < (most // 2 if self._facts else most):
                request = self._requests.popleft()
                taken.append(request)
                self._weight -= request.weight
                weight += request.weight
            if self._large and not rest and (self._passed or not taken):
                self._large_at = self._clock()
                request = self._large.popleft()
                taken.append(request)
                self._weight -= request.weight
                weight += request.weight
                self._passed = False
            else:
                self._passed = bool(self._large)
            for _ in range(min(len(self._facts), max(most - weight, most // 2))):
                taken.append(self._facts.popleft())
            return taken
