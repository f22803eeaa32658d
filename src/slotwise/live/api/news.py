"""Wakes those who follow the journal."""

from __future__ import annotations

import asyncio


class News:
    """The loop calls `tell` from its own thread; handlers wait."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event: asyncio.Event | None = None

    def tell(self, _seq: int) -> None:
        """There are new rows."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self, timeout: float) -> None:
        """Until there are new rows, or the timeout."""
        self._loop = asyncio.get_running_loop()
        if self._event is None:
            self._event = asyncio.Event()
        try:
            await asyncio.wait_for(self._event.wait(), timeout)
        except TimeoutError:
            return
