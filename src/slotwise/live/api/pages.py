"""Pages of the journal, read once for all streams that follow it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from slotwise.live.auth import EVERYONE
from slotwise.live.store.protocol import Store
from slotwise.live.store.records import Entry
from slotwise.live.store.records import Query as JobQuery

ROWS = 1000  # journal rows of one page
KEPT = 64  # pages
PIECE = 500  # jobs in one query


class Page:
    """Rows of the journal after one row, as text for each tenant."""

    def __init__(self, rows: Sequence[tuple[Entry, dict[str, Any]]], tenants: dict[int, str]) -> None:
        self._rows, self._tenants = rows, tenants
        self._texts: dict[str, asyncio.Task[str]] = {}
        self.last = rows[-1][0].seq if rows else None
        """the sequence number of the last row; None: there is no row"""

    async def text(self, tenant: str) -> str:
        """Return the rows that a tenant may see as server-sent events. A thread writes them once for all streams of the tenant."""
        task = self._texts.get(tenant)
        if task is None:
            task = self._texts[tenant] = asyncio.create_task(asyncio.to_thread(self._text, tenant))
        return await asyncio.shield(task)

    def _text(self, tenant: str) -> str:
        return "".join(
            event_text(entry, row, placements=tenant == EVERYONE)
            for entry, row in self._rows
            if tenant == EVERYONE or ("job" in row and self._tenants.get(row["job"]) == tenant)
        )


def event_text(entry: Entry, row: dict[str, Any], *, placements: bool) -> str:
    """Return one row as a server-sent event; placements may be of jobs of other tenants."""
    data = {**row, "placements": json.loads(entry.placements) if placements else []}
    if entry.note is not None:
        data["note"] = json.loads(entry.note)
    return f"id: {entry.seq}\nevent: {row['event']}\ndata: {json.dumps(data)}\n\n"


class Pages:
    """The last pages that were read. Rows of the journal never change, so a page stays right; it may end before the newest row."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[int, Page] = {}
        self._loading: dict[int, asyncio.Task[Page]] = {}

    async def after(self, seq: int) -> Page:
        """Return a page of rows after this one; streams that ask for the same page share one query."""
        page = self._kept.get(seq)
        if page is not None:
            return page
        task = self._loading.get(seq)
        if task is None:
            task = self._loading[seq] = asyncio.create_task(asyncio.to_thread(self._load, seq))
            task.add_done_callback(lambda _: self._loading.pop(seq))
        page = await asyncio.shield(task)
        if page.last is not None:
            self._kept[seq] = page
            if len(self._kept) > KEPT:
                del self._kept[next(iter(self._kept))]
        return page

    def _load(self, seq: int) -> Page:
        rows = [(entry, json.loads(entry.event)) for entry in self._store.entries(seq, limit=ROWS)]
        numbers = sorted({row.get("job", -1) for _, row in rows} - {-1})
        tenants: dict[int, str] = {}
        for at in range(0, len(numbers), PIECE):
            ids = tuple(numbers[at : at + PIECE])
            tenants |= {job.id: job.tenant for job in self._store.jobs(JobQuery(ids=ids, limit=PIECE))}
        return Page(rows, tenants)
