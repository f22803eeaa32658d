"""The journal and the read model behind one small protocol: SQLite by default, PostgreSQL by URL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from slotwise.errors import InputError
from slotwise.live.store.records import (
    ENDED,
    STATES,
    Batch,
    BusyError,
    Checkpoint,
    Entry,
    FencedError,
    Job,
    Query,
    Server,
    StoreBrokenError,
    StoreError,
    StoreGoneError,
    Token,
)

if TYPE_CHECKING:
    from slotwise.live.store.protocol import Store

__all__ = [
    "ENDED",
    "STATES",
    "Batch",
    "BusyError",
    "Checkpoint",
    "Entry",
    "FencedError",
    "Job",
    "Query",
    "Server",
    "StoreBrokenError",
    "StoreError",
    "StoreGoneError",
    "Token",
    "open_store",
]


def open_store(url: str) -> Store:
    """The store at `sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://...`; made if it is not there."""
    scheme, separator, rest = url.partition(":")
    if scheme == "sqlite" and rest.startswith("///") and len(rest) > 3:
        from slotwise.live.store.sqlite import SQLiteStore

        return SQLiteStore(Path(rest[3:]))
    if scheme in ("postgresql", "postgres") and separator:
        try:
            from slotwise.live.store.postgres import PostgresStore
        except ImportError:
            raise InputError(
                "psycopg is not installed", where="--store", remedy="pip install 'slotwise[serve]'"
            ) from None
        return PostgresStore(url)
    raise InputError(f"{url!r} is no store", where="--store", remedy="use sqlite:///FILE or postgresql://...")
