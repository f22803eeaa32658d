"""What a new user types, from README to an own policy and to jobs on `serve --local`: `python tests/docs/newcomer.py` writes what is printed.

The commands stand in newcomer.txt, and the test executes them in a copy of the repository. What differs from machine to machine is
replaced: the port, the name of the machine, its CPUs and its memory.
"""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
TRANSCRIPT = ROOT / "tests" / "docs" / "newcomer.txt"
SERVE = "slotwise serve --local &"
MASKS = [
    (re.compile(r"http://127\.0\.0\.1:\d+"), "http://127.0.0.1:8700"),
    (re.compile(r"^[\d.,]+( million)? events a second a core$", re.MULTILINE), "... events a second a core"),
    (re.compile(r"used: cpu (\d+) of \d+, memory (\d+) of \d+.*"), r"used: cpu \1 of 4, memory \2 of 16000"),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
]


def load(path: Path) -> ModuleType:
    """Return a program of the repository as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def commands() -> list[str]:
    """Return the commands of the transcript, with its comments."""
    return [line for line in TRANSCRIPT.read_text().splitlines() if line.startswith(("$ ", "# "))]


def masked(text: str) -> str:
    """Return output without what differs from machine to machine."""
    if socket.gethostname() in text:
        text = re.sub(rf"(?<![\w-]){re.escape(socket.gethostname())}(?![\w-])", "machine", text)
        text = re.sub(r"(?<=\S) {2,}", "  ", text)  # columns are as wide as the name
    for pattern, instead in MASKS:
        text = pattern.sub(instead, text)
    return text


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a shell in which `slotwise` is the command."""
    programs = folder / "programs"
    programs.mkdir()
    (programs / "slotwise").write_text(f'#!/bin/sh\nexec {sys.executable} -m slotwise "$@"\n')
    (programs / "slotwise").chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "COLUMNS": "96",
        "XDG_STATE_HOME": str(folder / "state"),
    }


def run(folder: Path) -> str:
    """Execute the commands in a copy of the repository; return the transcript."""
    outputs: Any = load(ROOT / "docs" / "outputs.py")
    processes: Any = load(ROOT / "tests" / "live" / "processes.py")
    place = folder / "slotwise"
    outputs.clone(place)
    (place / "mine.toml").write_text(
        next(text for kind, text in outputs.runnable(ROOT / "README.md") if kind == "toml")
    )
    own = environment(folder)
    service = processes.Process(folder, "--local")
    said: list[str] = []
    try:
        for line in commands():
            if line.startswith("# "):
                said.append(("\n" if said else "") + line)
                continue
            if line == f"$ {SERVE}":
                service.start()
                own |= {"SLOTWISE_SERVER": service.address}
                printed = f"listening on {service.address}\n"
            else:
                done = subprocess.run(
                    ["/bin/bash", "-c", line[2:]],
                    cwd=place,
                    env=own,
                    capture_output=True,
                    text=True,
                    stdin=subprocess.DEVNULL,
                    check=False,
                )
                assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
                printed = done.stdout
            said.append(f"{line}\n{masked(printed)}".rstrip("\n"))
    finally:
        if service.address:
            service.clean_up()
    return "\n".join(said) + "\n"


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        TRANSCRIPT.write_text(run(Path(name)))
