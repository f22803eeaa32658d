"""`srun`: within a job, a command of the job; elsewhere, a job that its caller waits for."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from typing import NoReturn

from slotwise.errors import InputError, SlotwiseError
from slotwise.live.client import Client
from slotwise.live.patience import patiently
from slotwise.shims import sbatch
from slotwise.shims.options import FLAG, flags, ignored, no_effect, read_words
from slotwise.shims.waiting import AWAY, say_away, wait_for

OWN = [
    *flags("unbuffered/u", "label/l"),
    *no_effect("mpi", "kill-on-bad-exit/K/optional", f"exact//{FLAG}", f"overlap//{FLAG}", "gpu-bind", "wait/W", "cpus-per-node", "relative/r",
               f"disable-status/X/{FLAG}"),
]  # fmt: skip
SBATCH_ONLY = ("wait", "parsable", "wrap", "array")
OPTIONS = [*OWN, *(one for one in sbatch.OPTIONS if one.name not in SBATCH_ONLY)]
PATTERN = re.compile(r"%(\d*)(.)")


def main(words: Sequence[str]) -> int:
    """Execute a command; its exit code."""
    read = read_words(words, OPTIONS)
    if not read.rest:
        raise InputError("names no command", where="srun", remedy="write srun COMMAND")
    without_effect = ignored(read.values, OPTIONS)
    if without_effect and "quiet" not in read.values:
        print(f"srun: note: {', '.join(without_effect)}: no effect here", file=sys.stderr)
    return within(read.values, read.rest) if "SLURM_JOB_ID" in os.environ else alone(read.values, read.rest)


def within(values: dict[str, str], argv: Sequence[str]) -> int:
    """Execute a command of this job, once for each task."""
    if values.get("nodes", "1") not in ("1", "1-1"):
        raise InputError(sbatch.ONE_SERVER, where=f"--nodes={values['nodes']}", remedy="use 1")
    text = values.get("ntasks") or os.environ.get("SLURM_NTASKS", "1")
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{text!r} is no number of 1 or more", where="--ntasks")
    tasks = int(text)
    if "chdir" in values:
        os.chdir(values["chdir"])
    os.environ |= {
        "SLURM_STEP_ID": "0",
        "SLURM_STEPID": "0",
        "SLURM_STEP_NUM_TASKS": str(tasks),
        "SLURM_NTASKS": str(tasks),
    }
    # A signal that the batch script does not get is for its commands. And Python ignores SIGPIPE.
    for name in signal.valid_signals():
        if signal.getsignal(name) is signal.SIG_IGN:
            signal.signal(name, signal.SIG_DFL)
    if tasks == 1:
        become(values, argv)
    started = [start(values, argv, task) for task in range(tasks)]
    codes = [one.wait() for one in started]
    return max(128 - code if code < 0 else code for code in codes)


def start(values: dict[str, str], argv: Sequence[str], task: int) -> subprocess.Popen[bytes]:
    """Start a task."""
    environment = {**os.environ, "SLURM_PROCID": str(task), "SLURM_LOCALID": str(task)}
    stdin, stdout, stderr = streams(values, task)
    try:
        return subprocess.Popen(list(argv), env=environment, stdin=stdin, stdout=stdout, stderr=stderr)
    except OSError as error:
        raise SlotwiseError(f"{argv[0]}: {error.strerror}") from None


def become(values: dict[str, str], argv: Sequence[str]) -> NoReturn:
    """Replace this process by a command, so that the command gets the signals of the job."""
    for number, file in enumerate(streams(values, 0)):
        if file is not None:
            os.dup2(file, number)
    try:
        os.execvp(argv[0], list(argv))
    except OSError as error:
        raise SlotwiseError(f"{argv[0]}: {error.strerror}") from None


def streams(values: dict[str, str], task: int) -> list[int | None]:
    """Return the open files of standard input, output and error of a task; None: those of srun."""
    mode = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if values.get("open-mode", "").startswith("a") else os.O_TRUNC)
    output = values.get("output")
    opened: dict[str, int] = {}
    found: list[int | None] = []
    for pattern, how in ((values.get("input"), os.O_RDONLY), (output, mode), (values.get("error", output), mode)):
        path = "" if pattern is None else filled(pattern, task)
        if path and path not in opened:
            try:
                opened[path] = os.open(path, how, 0o666)
            except OSError as error:
                raise SlotwiseError(f"{path}: {error.strerror}") from None
        found.append(opened.get(path))
    return found


def filled(pattern: str, task: int) -> str:
    """Return the name of a file for a task of this job."""
    job = os.environ["SLURM_JOB_ID"]
    values = {
        "j": job, "J": f"{job}.0", "A": os.environ.get("SLURM_ARRAY_JOB_ID", job), "a": os.environ.get("SLURM_ARRAY_TASK_ID", "0"),
        "t": str(task), "n": "0", "s": "0", "x": os.environ.get("SLURM_JOB_NAME", ""), "N": os.environ.get("SLURMD_NODENAME", ""),
        "u": os.environ.get("USER", ""), "%": "%",
    }  # fmt: skip

    def value(match: re.Match[str]) -> str:
        if match[2] not in values:
            raise InputError(f"%{match[2]} is not known here", where=pattern, remedy=f"use: {' '.join(values)}")
        return values[match[2]].zfill(int(match[1] or 0))

    return PATTERN.sub(value, pattern)


def alone(values: dict[str, str], argv: Sequence[str]) -> int:
    """Submit a command as a job, print its output as it comes, and exit as it does."""
    again = (
        f"{shlex.quote(sys.executable)} -m slotwise.shims srun"
        if (sbatch.count_of(values, "ntasks") or 1) > 1
        else ""
    )
    body = sbatch.request(values, f'#!/bin/sh\nexec {again} "$@"\n', os.path.basename(argv[0]), argv, None)
    body["key"] = uuid.uuid4().hex
    with Client() as client:
        number = patiently(lambda: client.call("POST", "/v1/jobs", json=body).json()["id"], say_away("srun"), AWAY)
        try:
            for piece in client.output(number, follow=True, on_away=say_away("srun")):
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
            return wait_for(client, [number])
        except KeyboardInterrupt:
            client.call("POST", "/v1/jobs/cancel", json={"ids": [number]})
            raise
