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
    "existing_store",
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


def existing_store(url: str) -> Store:
    """Return a store that has been written to. Raise InputError where there is none, and make nothing."""
    if not url.startswith("sqlite:///") or Path(url.removeprefix("sqlite:///")).exists():
        store = open_store(url)
        if store.ask("SELECT epoch FROM writer")[0][0]:
            return store
        store.close()
    raise InputError(
        f"there is no store at {url}",
        where="--store",
        remedy="name the store of the service; the log of `slotwise serve` says where it is",
    )
