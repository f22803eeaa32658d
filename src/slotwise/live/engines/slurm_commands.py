"""Slurm's commands and what they print: jobs and nodes as plain values."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from typing import NamedTuple

from slotwise.errors import InputError, SlotwiseError
from slotwise.live.engines.environment import inherited
from slotwise.live.engines.protocol import Fact, ServerDrained, ServerLost, ServerUp

OVER = frozenset(
    (
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "TIMEOUT",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "BOOT_FAIL",
        "DEADLINE",
        "PREEMPTED",
    )
)
SEPARATOR = "\x1f"
# The fields that a user chooses freely come last, so that their text cannot pose as another field.
FIELDS = (
    "JobArrayID:40", "State:20", "exit_code:20", "Reason:60", "Partition:100", "NumNodes:12", "tres-alloc:300",
    "SubmitTime:24", "UserID:12", "Feature:200", "Name:200", "Comment:300",
)  # fmt: skip
# Words of a final refusal. After any other error the command is tried again.
REFUSALS = ("invalid", "not available", "denied", "violates", "not permitted", "exceeds", "no longer", "disabled")
PASSING = ("socket", "authentication", "credential", "munge")


class SlurmError(SlotwiseError):
    """A command of Slurm failed."""

    @property
    def final(self) -> bool:
        """Slurm has answered, and the answer is no. Otherwise it may even have done it, and the answer was lost."""
        text = str(self).lower()
        return any(word in text for word in REFUSALS) and not any(word in text for word in PASSING)


class QueueRow(NamedTuple):
    """A job as squeue shows it."""

    id: str
    """with the index of an array behind it: 12_3"""
    state: str
    exit_code: int
    reason: str
    partition: str
    nodes: int
    tres: dict[str, float]
    """cpu, and mem in megabytes where it was asked for"""
    submitted: int
    """numbers are given again when the controller forgets jobs, so this is part of a job's identity"""
    user: int
    features: str
    name: str
    comment: str

    @property
    def number(self) -> tuple[int, int]:
        """The same to sort by: its number, and its index in an array."""
        number, _, index = self.id.partition("_")
        return int(number), int(index or 0)

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.state in OVER

    @property
    def held(self) -> bool:
        """Whether it waits for being released."""
        return self.state == "PENDING" and self.reason.startswith("JobHeld")


def run(*command: str, text: str | None = None, env: Mapping[str, str] | None = None) -> str:
    """The output of a command."""
    try:
        done = subprocess.run(
            command, input=text, env=env, capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
    except FileNotFoundError:
        raise InputError(
            f"the command {command[0]} is not here",
            where="--engine slurm",
            remedy="run the service on a machine that has Slurm's commands",
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmError(f"{command[0]}: {error}") from None
    if done.returncode:
        raise SlurmError(f"{command[0]}: {' '.join(done.stderr.split())}")
    return done.stdout


def own_environment() -> dict[str, str]:
    """For sbatch, which hands all of it on to the job. (Told to hand on less it has the node ask a login shell, which takes half a second.)"""
    return inherited() | {name: value for name, value in os.environ.items() if name.startswith("SLURM_")}


def queue(*which: str) -> list[QueueRow]:
    """All jobs that Slurm knows, ended ones too as long as it does, the jobs of arrays one by one."""
    asked = ",".join(f"{field}{SEPARATOR}" for field in FIELDS)
    return [row_of(line) for line in run("squeue", "-h", "-a", "-r", "-t", "all", "-O", asked, *which).splitlines()]


def job(number: str) -> QueueRow | None:
    """The job that has this number now."""
    try:
        return next(iter(queue("-j", number)), None)
    except SlurmError as error:
        if not error.final:
            raise
        return None  # no job has it


def row_of(line: str) -> QueueRow:
    """A line of squeue."""
    cells = [cell.strip() for cell in line.split(SEPARATOR, len(FIELDS))]
    number, state, status, reason, partition, nodes, tres, submitted, user, features, name, comment = cells[:12]
    return QueueRow(
        number,
        state,
        exit_code(status),
        reason,
        partition,
        int(nodes.split("-")[0] or 1) if nodes[:1].isdigit() else 1,
        amounts(tres),
        moment(submitted),
        int(user or 0),
        "" if features == "(null)" else features,
        name,
        "" if comment == "(null)" else comment,
    )


def exit_code(text: str) -> int:
    """A status as of wait(), or code:signal as later versions print it; minus the signal's number where there was one.

    >>> exit_code("512"), exit_code("9"), exit_code("3:0"), exit_code("0:15")
    (2, -9, 3, -15)
    """
    code, colon, signal = text.partition(":")
    if colon:
        return -int(signal) if signal.isdigit() and int(signal) else int(code)
    return os.waitstatus_to_exitcode(int(code)) if code.isdigit() and not int(code) & 0x80 else 0


def amounts(tres: str) -> dict[str, float]:
    """Trackable resources, memory in megabytes.

    >>> amounts("cpu=2,mem=1.5G,node=1,billing=2")
    {'cpu': 2.0, 'mem': 1536.0, 'node': 1.0, 'billing': 2.0}
    """
    units = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2}
    found: dict[str, float] = {}
    for part in tres.split(","):
        name, _, amount = part.partition("=")
        unit = units.get(amount[-1:], 1.0)
        try:
            found[name] = float(amount.rstrip("KMGT")) * unit
        except ValueError:
            continue  # (null), or a resource that has no number
    return found


def moment(text: str) -> int:
    """A time as Slurm prints it, as seconds since 1970; 0: it has none."""
    try:
        return int(time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return 0


def booted() -> int:
    """When the controller was started."""
    for line in run("scontrol", "show", "config").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "BOOT_TIME":
            return moment(value.strip())
    return 0


class SlurmNode(NamedTuple):
    """A node: what it has, and what there is to say of it; None: the controller has just started and does not know yet."""

    up: ServerUp
    fact: Fact | None


def nodes(partition: str | None) -> dict[str, SlurmNode]:
    """The nodes of a partition, or all."""
    where = ["-p", partition] if partition else ["-a"]
    found: dict[str, SlurmNode] = {}
    for line in run("sinfo", "-h", "-N", *where, "-o", "%N|%c|%m|%f|%T|%E").splitlines():
        node, cpus, memory, features, state, reason = line.strip().split("|", 5)
        labels = {one: "yes" for one in features.split(",") if one not in ("", "(null)")}
        kind = "-".join([f"cpu{cpus}", f"memory{memory}", *labels])
        up = ServerUp(node, {"cpu": float(cpus), "memory": float(memory)}, labels, kind)
        found[node] = SlurmNode(up, fact_of(up, state, state if reason in ("none", "") else f"{state}: {reason}"))
    return found


def fact_of(node: ServerUp, state: str, why: str) -> Fact | None:
    """What a node's state means here."""
    plain = state.rstrip("*~#!%$@^-+")
    if plain in ("unknown", "future"):
        return None
    if plain in ("down", "fail", "error"):
        return ServerLost(node.name, why)
    if "*" in state or plain in ("draining", "drained", "drain", "maint", "failing", "powering_down", "reserved"):
        return ServerDrained(node.name, why)
    return node
