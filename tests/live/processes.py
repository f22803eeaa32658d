"""`slotwise serve` as a real process, and its commands. The fixture `serve` of conftest makes them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from slotwise.shims.install import install

# Seconds that anything may take on a slow machine. Tests wait no longer.
PATIENCE = float(os.environ.get("SLOTWISE_PATIENCE", 300))


def gone(pid: int) -> bool:
    """Return whether a process has ended; it may be a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # it may go while it is looked at
        return True
    return state in "ZX"


def kill_supervisor(folder: Path) -> None:
    """Kill the supervisor of an engine's folder, if there is one: it may have ended by itself."""
    with suppress(FileNotFoundError, ProcessLookupError, ValueError):
        os.kill(int((folder / "lock").read_text()), signal.SIGKILL)


class Process:
    """A service in a folder of its own; it can be ended in any way and started again."""

    def __init__(self, folder: Path, *options: str, **environment: str) -> None:
        self.environment = {
            **os.environ, "XDG_STATE_HOME": str(folder / "state"), "PYTHONUNBUFFERED": "1", **environment
        }  # fmt: skip
        self.folder = folder
        self.options = options
        self.address, self.port = "", "0"

    def start(self) -> None:
        self.errors = open(self.folder / "errors", "ab")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "slotwise", "serve", *self.options, "--port", self.port],
            cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=self.errors, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("listening on http://127.0.0.1:"):
            self.end(signal.SIGKILL)
            raise AssertionError((self.folder / "errors").read_text())
        self.address = line.split()[-1]
        self.port = self.address.rpartition(":")[2]  # the same after a restart, for clients that wait for it

    def end(self, how: int = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        code = self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.errors.close()
        return code

    def clean_up(self) -> None:
        """Nothing is left running, whatever happened."""
        if self.process.poll() is None:
            self.end(signal.SIGKILL)
        for lock in self.folder.glob("**/local/lock"):
            kill_supervisor(lock.parent)

    def command(self, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "slotwise", *argv], cwd=self.folder, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, env={**self.environment, "SLOTWISE_SERVER": self.address, **environment},
        )  # fmt: skip


def with_shims(folder: Path) -> Process:
    """A service on this machine that runs, and Slurm's commands in the folder `bin`."""
    made = Process(folder, "--local")
    made.start()
    install(str(folder / "bin"))
    return made
