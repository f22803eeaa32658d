"""What dashboards read: the board, and a stream of what changes on it.

One task makes boards while any stream is open: at most one a second, and fewer where much changes, so that no stream sends more than `PACE`
bytes a second on average. Every stream sends the same text, so ten dashboards cost little more than one.
"""

from __future__ import annotations

import asyncio
import gzip
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from slotwise.live import metrics
from slotwise.live.alarms import Alarms
from slotwise.live.api.common import House, Number, Reader, done
from slotwise.live.api.stream import EventStream, described
from slotwise.live.auth import Caller
from slotwise.live.board import Board, copy, encode
from slotwise.live.inbox import FullError
from slotwise.live.loop import NotReadyError

APART_SECONDS = 1.0  # between two boards: browsers need no more, and each costs a copy in the loop
PACE = 12_000  # bytes a second and page; the budget is 20 kB, and headers and other requests need some
KEPT = 120  # changes that are kept for streams that come back
QUIET_SECONDS = 15.0
LARGE = 20_000  # bytes from which an answer is packed


class Boards:
    """The newest board, what led to it, and the task that makes the next."""

    def __init__(self, house: House, alarms: Alarms) -> None:
        self._house, self._alarms = house, alarms
        self._board: Board | None = None
        self._extra: dict[str, Any] = {}
        self._changes: deque[tuple[int, int, str]] = deque(maxlen=KEPT)
        """from which row, to which row, and the text"""
        self._streams = 0
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Condition()
        self._made = 0.0
        self._making = asyncio.Lock()

    async def full(self) -> dict[str, Any]:
        """Return the board as it is now. One that is younger than a second is good enough."""
        async with self._making:
            if self._board is None or time.monotonic() - self._made > APART_SECONDS:
                await self._next()
        assert self._board is not None
        return self._board.full() | self._extra

    async def follow(self, after: int | None, *, on: bool = True) -> AsyncGenerator[str, None]:
        """Send changes after a row; where they are not kept, the full board first. Without `on`, end after what there is."""
        loop = self._house.service.loop
        with suppress(NotReadyError, FullError):  # the task below tells it when the service is ready again
            await self.full()
        self._streams += 1
        try:
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._make())
            while True:
                pieces = [text for start, _, text in self._changes if after is not None and start >= after]
                known = after is not None and any(start == after for start, _, _ in self._changes)
                if self._board is not None and after is not None and not known and after == self._board.seq:
                    pieces, known = [], True
                if not known and self._board is not None:
                    full = self._board.full() | self._extra
                    after = self._board.seq
                    yield f"id: {after}\nevent: full\ndata: {encode(full)}\n\n"
                elif pieces:
                    assert self._board is not None
                    after = self._board.seq
                    yield "".join(pieces)
                if not on or loop.ended.is_set():
                    return
                try:
                    async with self._news:
                        await asyncio.wait_for(self._news.wait(), QUIET_SECONDS)
                except TimeoutError:
                    yield ": quiet\n\n"
        finally:
            self._streams -= 1

    async def _make(self) -> None:
        """Make boards while any stream is open."""
        loop = self._house.service.loop
        while self._streams > 0 and not loop.ended.is_set():
            began, size = time.monotonic(), 0
            try:
                async with self._making:
                    size = await self._next()
            except (NotReadyError, FullError):
                size = self._tell_trouble()
            if size:
                async with self._news:
                    self._news.notify_all()
            await asyncio.sleep(max(APART_SECONDS, size / PACE) - (time.monotonic() - began))

    async def _next(self) -> int:
        """Make a board; the size of the text that says what has changed."""
        taken = await done(self._house.service.loop.ask(copy))
        board = await asyncio.to_thread(taken.board)
        alarms = self._alarms.now(board)
        metrics.show_alarms(alarms, self._alarms.load, board)
        extra = {"alarms": alarms, "load": self._load(), "trouble": None, "epoch": self._house.service.epoch}
        before, self._board, self._made = self._board, board, time.monotonic()
        told, self._extra = self._extra, extra
        if before is None:
            return 0
        delta = board.since(before)
        if delta is None:
            self._changes.clear()
            return len(encode(board.full()))
        for name, value in extra.items():
            if told.get(name) != value:
                delta[name] = value
        if len(delta) == 3 and board.seq == before.seq:
            return 0
        text = f"id: {board.seq}\nevent: delta\ndata: {encode(delta)}\n\n"
        self._changes.append((before.seq, board.seq, text))
        return len(text)

    def _load(self) -> dict[str, Any] | None:
        """The observed load as plain data; `why` says why it is not known."""
        load = self._alarms.load
        if load is None:
            return None
        kept = load._asdict()
        del kept["seen"]
        return {name: round(x, 4) if isinstance(x, float) else x for name, x in kept.items()}

    def _tell_trouble(self) -> int:
        """Say once why there are no new boards."""
        trouble = self._house.service.loop.trouble
        if self._board is None or self._extra.get("trouble") == trouble:
            return 0
        self._extra["trouble"] = trouble
        seq = self._board.seq
        text = f"id: {seq}\nevent: delta\ndata: {encode({'seq': seq, 'after': seq, 'trouble': trouble})}\n\n"
        self._changes.append((seq, seq, text))
        return len(text)


def packed(request: Request, text: str) -> Response:
    """Return JSON, packed where it is large and the client takes that."""
    body = text.encode()
    if len(body) < LARGE or "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(body, media_type="application/json")
    headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Response(gzip.compress(body, 5), headers=headers, media_type="application/json")


def routes(house: House) -> APIRouter:
    """Return the routes of the board."""
    router = APIRouter(prefix="/v1", tags=["board"])
    alarms = Alarms(house.service)
    boards = house.boards = Boards(house, alarms)

    @router.get("/board", responses={200: {"description": "see the guide to the dashboard"}})
    async def board(request: Request, caller: Reader) -> Response:
        """The state of the cluster for dashboards: every server with what it holds, keeps and has, every queue, alarms.

        `servers` has a row for each of `names`: the position of its status in `statuses`, its number of jobs, what jobs use and what the policy
        keeps of each of `resources`. `queues` has for each type: waiting, running, and when the oldest waiting job was submitted.
        """
        full = await boards.full()
        return packed(request, await asyncio.to_thread(encode, full))

    async def changes_for(caller: Caller, first: int | None, follow: bool) -> AsyncIterator[str]:
        """Yield changes as long as the token holds; the stream counts among those of the token."""
        with house.streams.one(caller) as counted:
            if not counted:
                return
            async with aclosing(boards.follow(first, on=follow)) as pieces:
                async for text in pieces:
                    if not house.guard.holds(caller):
                        return
                    yield text

    changed = described("changes of the board", "full or delta", "JSON: the whole board, or what differs")

    @router.get("/board/changes", response_class=EventStream, responses={200: changed})
    async def changes(
        request: Request, caller: Reader, after: Number | None = None, follow: bool = True
    ) -> EventStream:
        """What changes on the board, as server-sent events, at most one a second.

        `delta` has what differs since the row `after`: rows of servers by place (`servers`), new servers (`added`), queues, alarms. `full` is the
        whole board, sent where the changes since `after` (or Last-Event-ID) are not kept.
        """
        house.streams.check(caller)
        resumed = request.headers.get("last-event-id", "")
        first = int(resumed) if resumed.isascii() and resumed.isdigit() and len(resumed) < 17 else after
        return EventStream(changes_for(caller, first, follow))

    @router.get("/alarms")
    async def show_alarms(caller: Reader) -> list[dict[str, Any]]:
        """What needs attention now: each with `kind`, `text` and `since`."""
        full = await boards.full()
        found: list[dict[str, Any]] = full["alarms"]
        return found

    return router
