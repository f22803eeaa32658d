"""The home of a store: the folder in which its engine keeps claims and outputs, on which machine.

Claims and outputs are known by job and attempt, so a folder serves one store only. The store has an identity, the folder carries it in a file,
and the store remembers folder and machine. A new or restored store does not take over what an earlier one has left: that folder is put aside if no
job of it runs any more, and refused otherwise.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from slotwise.errors import InputError
from slotwise.live.engines import slurm_records
from slotwise.live.engines.supervisor.claims import boot, read_log
from slotwise.live.engines.supervisor.processes import living_jobs
from slotwise.live.store.protocol import Store
from slotwise.live.store.records import Identity

log = logging.getLogger(__name__)
MARK = "store.json"
ENGINE_FILES = ("local", "slurm", "libvirt", "world")
# Engines whose jobs are processes, or files, of the machine that the service runs on.
ON_ONE_MACHINE = ("local", "simulated")


class StoreMark(NamedTuple):
    """What a folder says of its store."""

    identity: str
    url: str


def this_machine() -> dict[str, str]:
    """Return what tells this machine from others: its name, the number of its installation and of its boot."""
    number = ""
    with suppress(OSError):  # containers have none
        number = Path("/etc/machine-id").read_text().strip()
    with suppress(OSError):  # not Linux
        return {"name": socket.gethostname(), "machine": number, "boot": boot()}
    return {"name": socket.gethostname(), "machine": number, "boot": ""}


def is_same_machine(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Return whether both descriptions are of one machine; a container that was made anew has another name on the same boot."""
    if one["boot"] and one["boot"] == other["boot"]:
        return True
    key = "machine" if one["machine"] and other["machine"] else "name"
    return one[key] == other[key]


def default_folder(store: Store, known: Identity) -> Path:
    """Return the folder of a store where none is named: beside a SQLite file, and where it was before for PostgreSQL."""
    if store.file is None:
        before, name = Path("slotwise.files").absolute(), Path(f"slotwise-{store.name}.files").absolute()
        return Path(known.folder) if known.folder else before if is_older_than_marks(store, known, before) else name
    before, name = store.file.with_suffix(".files"), store.file.with_name(f"{store.file.name}.files")
    if store.file.suffix == ".db" or known.folder == str(before):
        return before
    return before if is_older_than_marks(store, known, before) else name


def is_older_than_marks(store: Store, known: Identity, folder: Path) -> bool:
    """Return whether store and folder were used before stores had identities, so that the folder has no mark yet."""
    has_files = any((folder / name).exists() for name in ENGINE_FILES)
    return not known.folder and has_files and read_mark(folder) is None and store.checkpoint() is not None


class Home:
    """The folder of one store. Made before the service waits for the store, which finds out early what is wrong; `claim` follows when it writes."""

    def __init__(self, store: Store, engine: str, folder: Path | None = None, *, moved: bool = False) -> None:
        self._store, self._engine, self._moved = store, engine, moved
        known = store.identity()
        self.folder = default_folder(store, known) if folder is None else folder.absolute()
        self._check(known)

    def claim(self) -> None:
        """Make the folder this store's; put aside what is left there of a store that is gone."""
        known = self._store.identity()
        left = self._check(known)
        if left is not None:
            aside = unused(self.folder.with_name(f"{self.folder.name}.{left.identity[:8] or 'old'}"))
            self.folder.rename(aside)
            log.warning(
                "%s holds claims and outputs of another store (%s), which is gone; they are in %s now",
                self.folder, left.url or "not known", aside,
            )  # fmt: skip
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_mark(self.folder, StoreMark(known.identity, self._store.url))
        self._store.set_home(json.dumps(this_machine()), str(self.folder))

    def check_claims(self, next_job: int) -> None:
        """Raise InputError if the folder knows jobs that the store does not: the store was put back from a copy of its file."""
        log = read_log(str(self.folder / "local"))
        if log is not None and log.highest >= next_job:
            raise InputError(
                f"has executed job {log.highest}, but the newest job of the store is {next_job - 1}: the store is an earlier state",
                where=str(self.folder),
                remedy="move the folder away; its claims and outputs are not those of the jobs that follow",
            )

    def _check(self, known: Identity) -> StoreMark | None:
        """Raise InputError if the folder is not this store's. Return the mark of a store that is gone, if its files are there."""
        mark = read_mark(self.folder)
        if mark is not None and mark.identity != known.identity:
            return self._left_behind(mark)
        self._check_machine(known)
        if mark is None:
            self._check_elsewhere(known)
            has_files = any((self.folder / name).exists() for name in ENGINE_FILES)
            if has_files and not is_older_than_marks(self._store, known, self.folder):
                return self._left_behind(StoreMark("", ""))
        return None

    def _check_machine(self, known: Identity) -> None:
        if not known.host or self._moved or self._engine not in ON_ONE_MACHINE:
            return
        before = json.loads(known.host)
        if not is_same_machine(before, this_machine()):
            raise InputError(
                f"the jobs of this store run on the machine {before['name']}, not on {socket.gethostname()}",
                where=self._store.url,
                remedy="start the service there, or with --moved if that machine is gone or store and folder were moved here",
            )

    def _check_elsewhere(self, known: Identity) -> None:
        """Refuse a folder without a mark while the folder that the store remembers is still there."""
        before = Path(known.folder) if known.folder else self.folder
        if before == self.folder or self._engine == "simulated":
            return
        mark = read_mark(before)
        if mark is not None and mark.identity == known.identity:
            raise InputError(
                f"the claims and outputs of this store are in {before}, not in {self.folder}",
                where="--folder",
                remedy=f"use --folder {before}, or move that folder; for a copy of a store, use `slotwise backup` and `restore`",
            )

    def _left_behind(self, mark: StoreMark) -> StoreMark:
        """Return the mark if the folder can be put aside: its store is gone and none of its jobs runs."""
        remedy = "name another folder with --folder"
        if mark.identity and mark.url != self._store.url and not is_gone(mark):
            raise InputError(
                f"holds claims and outputs of another store: {mark.url}", where=str(self.folder), remedy=remedy
            )
        living = sorted(living_jobs(str(self.folder / "local")) | slurm_records.living_jobs(self.folder / "slurm"))
        if living:
            shown = ", ".join(f"{job}.{attempt}" for job, attempt in living[:10])
            raise InputError(
                f"jobs of an earlier store still run from there (job.attempt): {shown}",
                where=str(self.folder),
                remedy=f"end them or wait for their end, or {remedy}",
            )
        return mark


def is_gone(mark: StoreMark) -> bool:
    """Return whether the SQLite store that a mark names is not there any more; False if it cannot be known."""
    path = mark.url.removeprefix("sqlite:///")
    if path == mark.url:
        return False
    if not os.path.exists(path):
        return True
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return bool(connection.execute("SELECT identity FROM identity").fetchone()[0] != mark.identity)
    return False


def read_mark(folder: Path) -> StoreMark | None:
    """Return what a folder says of its store; None if it says nothing."""
    try:
        values = json.loads((folder / MARK).read_text("utf-8"))
        return StoreMark(str(values["identity"]), str(values["store"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise InputError(
            "is damaged", where=str(folder / MARK), remedy="name another folder with --folder"
        ) from None


def write_mark(folder: Path, mark: StoreMark) -> None:
    """Write the mark so that it is whole or not there."""
    unfinished = folder / f"{MARK}.{os.getpid()}"
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump({"identity": mark.identity, "store": mark.url}, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(folder / MARK)


def unused(path: Path) -> Path:
    """Return the path, or the first with a number behind it at which nothing is."""
    names = [path, *(path.with_name(f"{path.name}.{n}") for n in range(2, 1000))]
    return next(one for one in names if not one.exists())
