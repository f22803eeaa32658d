"""A backup: all tables of one moment as compressed lines of JSON; it can be restored into either database."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slotwise.errors import InputError
from slotwise.live.store.protocol import Store
from slotwise.live.store.schema import NEWEST, TABLES

FORMAT = "slotwise-backup"


def save(store: Store, path: Path) -> int:
    """Write a backup, while the service runs or not; the number of rows. A file of this name is replaced when all is written."""
    rows = 0
    unfinished = path.with_name(path.name + ".part")
    unfinished.unlink(missing_ok=True)  # of a backup that was killed, or a link of another user to somewhere else
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as raw:
        with gzip.open(raw, "wt", encoding="utf-8", compresslevel=5) as file:
            file.write(json.dumps({"format": FORMAT, "schema": NEWEST}) + "\n")
            for table, values in store.dump():
                file.write(json.dumps([table, values]) + "\n")
                rows += 1
            file.write(json.dumps({"rows": rows}) + "\n")
        raw.flush()
        os.fsync(raw.fileno())
    unfinished.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)  # the new name, too
    finally:
        os.close(folder)
    return rows


def restore(store: Store, path: Path) -> int:
    """Fill an empty store, of which the caller is the writer, from a backup, whole or not at all; the number of rows."""
    return store.load(_rows(path))


def _rows(path: Path) -> Iterator[tuple[str, list[Any]]]:
    damaged = InputError("is damaged or cut off", where=str(path), remedy="use another backup")
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            head = json.loads(next(file, "null"))
            if not isinstance(head, dict) or head.get("format") != FORMAT:
                raise InputError(
                    "is no backup of slotwise", where=str(path), remedy="name a file of `slotwise backup`"
                )
            if head["schema"] != NEWEST:
                raise InputError(
                    f"is of store version {head['schema']}, this program's is {NEWEST}",
                    where=str(path),
                    remedy="restore it with the version of slotwise that wrote it, then upgrade",
                )
            for rows, line in enumerate(file):
                row = json.loads(line)
                if isinstance(row, dict):
                    if row != {"rows": rows}:
                        raise damaged
                    return
                table, values = row
                if table not in TABLES:
                    raise damaged
                yield table, values
    except (gzip.BadGzipFile, EOFError, zlib.error, ValueError, TypeError):
        raise damaged from None
    raise damaged
