"""An attempt to connect to a host. libvirt waits for a host that hangs as long as it hangs, so each attempt has a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from slotwise.errors import SlotwiseError
from slotwise.live.engines.libvirt.connection import Connection, HostError


class Opening:
    """See above."""

    def __init__(self, connect: Callable[[], Connection], name: str) -> None:
        self._connect = connect
        self._connection: Connection | None = None
        self._error: SlotwiseError | None = None
        self._abandoned = False
        self._lock = threading.Lock()
        self._done = threading.Event()
        threading.Thread(target=self._run, name=f"slotwise-libvirt-open-{name}", daemon=True).start()

    def result(self, seconds: float) -> Connection | None:
        """Return the connection; None if the host has not answered yet. Raise what the attempt has raised."""
        if not self._done.wait(seconds):
            return None
        if self._error is not None:
            raise self._error
        return self._connection

    def abandon(self) -> None:
        """Close the connection as soon as there is one."""
        with self._lock:
            self._abandoned = True
            made, self._connection = self._connection, None
        if made is not None:
            made.close()

    def _run(self) -> None:
        made = None
        try:
            made = self._connect()
        except SlotwiseError as error:
            self._error = error
        except Exception as error:  # told to the thread that waits for the result
            self._error = HostError(f"{type(error).__name__}: {error}")
        with self._lock:
            if not self._abandoned:
                self._connection, made = made, None
        self._done.set()
        if made is not None:
            with suppress(SlotwiseError):
                made.close()
