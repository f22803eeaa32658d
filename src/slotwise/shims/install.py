"""`slotwise slurm-shims DIR`: the scripts that stand for Slurm's commands."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable

from slotwise.errors import InputError

COMMANDS = ("sbatch", "squeue", "scancel", "sacct", "scontrol", "srun")
MARK = "# written by slotwise slurm-shims"


def install(folder: str, commands: Iterable[str] = COMMANDS) -> list[str]:
    """Write the scripts into a folder; their paths. Refuse to replace another program, such as the real sbatch."""
    os.makedirs(folder, exist_ok=True)
    paths = [os.path.join(os.path.abspath(folder), name) for name in commands]
    for path in paths:
        if os.path.lexists(path) and not is_ours(path):
            raise InputError("is another program", where=path, remedy="choose an empty folder")
    for path in paths:
        name = os.path.basename(path)
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\n{MARK}\nexec {shlex.quote(sys.executable)} -m slotwise.shims {name} "$@"\n')
        os.chmod(path + ".new", 0o755)
        os.replace(path + ".new", path)
    return paths


def is_ours(path: str) -> bool:
    """Return whether a file was written by `install`."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return MARK in file.read(200)
    except OSError:
        return False
