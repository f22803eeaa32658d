"""A real `slotwise serve` to measure: started, spoken to, and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from slotwise.live.addresses import token_file
from slotwise.live.client import Client


@contextmanager
def served(folder: Path, *options: str) -> Iterator[Client]:
    """A service with its store in the folder, and a client of it."""
    os.environ["XDG_STATE_HOME"] = str(folder)  # where the service leaves its token, and the client finds it
    command = [
        sys.executable,
        "-m",
        "slotwise",
        "serve",
        *options,
        "--port",
        "0",
        "--store",
        f"sqlite:///{folder}/x.db",
    ]
    with open(folder / "service.err", "ab") as errors:
        service = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert service.stdout is not None
    try:
        line = service.stdout.readline()
        if not line.startswith("listening on "):
            raise RuntimeError((folder / "service.err").read_text())
        url = line.removeprefix("listening on ").strip()
        token = token_file("127.0.0.1", int(url.rpartition(":")[2])).read_text().strip()
        with Client(url, token) as client:  # over HTTP, as the other tools are asked
            yield client
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait()
        service.stdout.close()
        with suppress(FileNotFoundError, ProcessLookupError):  # only the engine `local` has a supervisor
            os.kill(int((folder / "x.files" / "local" / "lock").read_text()), signal.SIGTERM)


def processor_seconds(name: str) -> float:
    """What a process of this machine, found by its number, has used so far."""
    after = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
    return (int(after[11]) + int(after[12])) / os.sysconf("SC_CLK_TCK")
