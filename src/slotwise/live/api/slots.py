"""How many requests are handled at the same time; further ones wait, up to a limit."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class NoSlotError(Exception):
    """Too many requests wait already."""


class KeyedSlots:
    """`at_once` slots for each key. Requests of one key get them in the order in which they came."""

    def __init__(self, at_once: int, waiting: int) -> None:
        self.at_once, self.waiting = at_once, waiting
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._users: Counter[str] = Counter()

    @asynccontextmanager
    async def one(self, key: str = "") -> AsyncIterator[Callable[[], None]]:
        """Hold a slot; the function that is given frees it earlier."""
        if self._users[key] >= self.at_once + self.waiting:
            raise NoSlotError(f"more than {self.at_once + self.waiting} requests at the same time")
        self._users[key] += 1
        slots = self._slots.setdefault(key, asyncio.Semaphore(self.at_once))
        held = False

        def free() -> None:
            nonlocal held
            if held:
                held = False
                slots.release()

        try:
            await slots.acquire()
            held = True
            yield free
        finally:
            free()
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._slots[key]
