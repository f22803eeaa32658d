"""What virtual machines write to their serial consoles. It lies in a volume on the host; here are copies, which stay when the host is gone.

A copy is made when it is asked for and at the end. The host may begin a new file when the old one is large (virtlogd does so at 2 MB): what was
not copied before is then missing, and the copy says so. That a copy exists also says that the virtual machine was once defined.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

from slotwise.live.engines.libvirt.connection import Connection, MissingError
from slotwise.live.engines.protocol import Attempt

PIECE = 1 << 20
LIMIT = 10_000_000  # bytes kept of one console, as of the output of commands
TAIL = 1 << 16  # bytes at the end in which the guest's exit status is looked for
AGAIN = b"\n[slotwise: the host has begun a new file; a part of the console may be missing]\n"
FULL = b"\n[slotwise: the console is longer than what is kept]\n"


class Consoles:
    """Copies in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()

    def open(self) -> None:
        """Make the folder."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def begin(self, key: Attempt) -> None:
        """Begin a copy."""
        self._path(key).touch(0o600)

    def has(self, key: Attempt) -> bool:
        """Return whether there is a copy."""
        return self._path(key).exists()

    def copy(self, key: Attempt, connection: Connection, volume: str) -> None:
        """Copy what is new."""
        with self._lock, open(self._path(key), "ab") as file:
            at = self._copied(key, file.tell())
            while True:
                try:
                    data, size = connection.read_volume(volume, at, PIECE)
                except MissingError:
                    return
                if size < at:
                    file.write(AGAIN)
                    at = 0
                    continue
                if not data:
                    break
                at += len(data)
                room = LIMIT - file.tell()
                if room > 0:
                    file.write(data if len(data) <= room else data[:room] + FULL)
                file.flush()
            if at != file.tell():
                self._place(key).write_text(str(at))

    @staticmethod
    def tail(connection: Connection, volume: str) -> bytes:
        """Return the end of a console, from the host: the copy may be shorter."""
        try:
            _, size = connection.read_volume(volume, 0, 0)
            return connection.read_volume(volume, max(0, size - TAIL), TAIL)[0]
        except MissingError:
            return b""

    def read(self, key: Attempt, offset: int, limit: int) -> tuple[bytes, int] | None:
        """Return a piece of a copy, and the offset after it; None if there is none."""
        with suppress(FileNotFoundError), open(self._path(key), "rb") as file:
            file.seek(offset)
            data = file.read(limit)
            return data, offset + len(data)
        return None

    def _copied(self, key: Attempt, length: int) -> int:
        """Return how far the host's file is copied: as far as the copy is long, unless a note says otherwise."""
        with suppress(FileNotFoundError, ValueError):
            return int(self._place(key).read_text())
        return length

    def _path(self, key: Attempt) -> Path:
        return self.folder / f"{key[0]}.{key[1]}"

    def _place(self, key: Attempt) -> Path:
        return self.folder / f"{key[0]}.{key[1]}.at"
