"""Wakes streams that follow the journal."""

from __future__ import annotations

import asyncio


class News:
    """The loop calls `tell` from its own thread; handlers wait."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event: asyncio.Event | None = None

    def tell(self, _seq: int) -> None:
        """Wake the streams: there are new rows."""
        self.ring()

    def ring(self) -> None:
        """Wake the streams, from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        if self._event is not None:
            self._event.set()
            self._event = None

    def next(self) -> asyncio.Event:
        """Return the event that the next call of `ring` sets. Ask for it before reading, so that no news is missed."""
        loop = asyncio.get_running_loop()
        if self._event is None or self._loop is not loop:
            self._event, self._loop = asyncio.Event(), loop
        return self._event
