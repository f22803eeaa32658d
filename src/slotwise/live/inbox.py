"""What waits for the loop: requests of users and facts of engines, each in the order in which they came, and not without bound.

They take turns: users do not wait until ten thousand facts are heard, nor engines until ten thousand jobs are submitted.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from slotwise.errors import SlotwiseError
from slotwise.live.engines.protocol import Fact


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

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._requests: deque[Request] = deque()
        self._facts: deque[Fact] = deque()
        self._weight = 0
        self._ready = threading.Condition()
        self._woken = False
        self._shut: Exception | None = None

    def __len__(self) -> int:
        return len(self._requests) + len(self._facts)

    def ask(self, request: Request) -> Future[Any]:
        """Hand in a request."""
        with self._ready:
            if self._shut is not None:
                raise self._shut
            if self._weight and self._weight + request.weight > self._limit:
                raise FullError("too many requests wait; try again in a moment")
            self._requests.append(request)
            self._weight += request.weight
            self._ready.notify()
        return request.future

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
        """Nothing is taken any more; whoever waits is told, those of `others` too."""
        with self._ready:
            self._shut = why
            left = [*others, *self._requests]
            self._requests.clear()
            self._facts.clear()
        for item in left:
            if isinstance(item, Request) and not item.future.done():
                item.future.set_exception(why)

    def take(self, most: int, timeout: float | None) -> list[Request | Fact]:
        """Up to so many of what waits, or of whatever comes first; nothing after the timeout."""
        with self._ready:
            if not self._requests and not self._facts and not self._woken:
                self._ready.wait(timeout)
            self._woken = False
            taken: list[Request | Fact] = []
            weight = 0
            while self._requests and weight < (most // 2 if self._facts else most):
                request = self._requests.popleft()
                taken.append(request)
                self._weight -= request.weight
                weight += request.weight
            for _ in range(min(len(self._facts), max(most - weight, most // 2))):
                taken.append(self._facts.popleft())
            return taken
