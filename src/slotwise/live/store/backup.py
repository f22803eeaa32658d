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
from slotwise.policies.catalogue import is_own
from slotwise.scheduling.compact import unpacked

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


def restore(store: Store, path: Path, *, tokens: bool = False, policy_code: bool = False) -> int:
    """Fill an empty store, of which the caller is the writer, from a backup, whole or not at all; the number of rows.

    Without `tokens` those of the backup are left out: they may have been revoked since, or planted. Without `policy_code` a backup whose
    policy is a Python file is refused: the next `serve` would execute that file.
    """
    rows = _rows(path)
    _, schema = next(rows)
    kept = (row for row in rows if tokens or row[0] != "token")
    return store.load(kept if policy_code else _without_code(kept, path), int(schema[0]))


def _without_code(rows: Iterator[tuple[str, list[Any]]], path: Path) -> Iterator[tuple[str, list[Any]]]:
    """Yield the rows; raise InputError at the first that names a policy in a Python file."""
    for table, values in rows:
        try:
            policies = list(_policies(table, values))
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise damaged(path) from None
        for policy in policies:
            if is_own(policy):
                raise InputError(
                    f"has the policy {policy!r}, a Python file that the service would execute",
                    where=str(path),
                    remedy="read that file; if you trust it, restore with --allow-policy-code",
                )
        yield table, values


def _policies(table: str, values: list[Any]) -> Iterator[str]:
    if table == "checkpoint":
        yield str(unpacked(values[3]).get("situation", {}).get("policy", {}).get("name", ""))
    elif table == "journal" and '"policy"' in values[2]:
        row = json.loads(values[2])
        yield str(row.get("policy") or "")


def _rows(path: Path) -> Iterator[tuple[str, list[Any]]]:
    """Yield the version of the schema as a row of table `schema`, then all rows."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            head = json.loads(next(file, "null"))
            if not isinstance(head, dict) or head.get("format") != FORMAT:
                raise InputError(
                    "is no backup of slotwise", where=str(path), remedy="name a file of `slotwise backup`"
                )
            if not 1 <= int(head["schema"]) <= NEWEST:
                raise InputError(
                    f"is of store version {head['schema']}, newer than this program knows ({NEWEST})",
                    where=str(path),
                    remedy="upgrade slotwise",
                )
            yield "schema", [head["schema"]]
            for rows, line in enumerate(file):
                row = json.loads(line)
                if isinstance(row, dict):
                    if row != {"rows": rows}:
                        raise damaged(path)
                    return
                table, values = row
                if table not in TABLES:
                    raise damaged(path)
                yield table, values
    except (
        gzip.BadGzipFile,
        EOFError,
        zlib.error,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        RecursionError,
    ):
        raise damaged(path) from None
    raise damaged(path)


def damaged(path: Path) -> InputError:
    """Return what is said of a backup that cannot be right."""
    return InputError("is damaged or cut off", where=str(path), remedy="use another backup")
