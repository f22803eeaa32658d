"""The engine `slurm`: nodes of a Slurm cluster are servers, and jobs reach them in two ways.

Jobs that were submitted to Slotwise are given to Slurm with `sbatch -w NODE` when they are placed. Jobs that users gave to Slurm themselves, held, in
a partition that is watched, are scheduled too: when such a job is placed it is bound to its node and released.

Slurm may forget what it was told shortly before its controller dies, and may tell wrong exit codes then. So a job runs inside a small shell script that
makes a file before the command (at most one execution) and another with the true exit code after it. Both lie in a folder that nodes and service share.
"""

from __future__ import annotations

import json
import logging
import queue
import shlex
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from slotwise.errors import SlotwiseError
from slotwise.live.engines.protocol import (
    Arrived,
    Attempt,
    Ended,
    Fact,
    Known,
    Lost,
    Refused,
    ServerDrained,
    ServerLost,
    ServerUp,
    Start,
    Started,
    Tell,
    Unknown,
    Withdrawn,
)

log = logging.getLogger(__name__)
POLL_SECONDS = 0.5
NODES_SECONDS = 2.0
PENDING_SECONDS = 60.0
"""a placement that Slurm has not started by then is taken back"""
VANISHED_SECONDS = 10.0
"""a job that Slurm does not know any more, or that ended without an exit code, is given so long for its file to appear"""
OVER = {
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "BOOT_FAIL",
    "DEADLINE",
    "PREEMPTED",
}
STOPPED = -15


class SlurmError(SlotwiseError):
    """A command of Slurm failed."""


class Row(NamedTuple):
    """A job as squeue shows it."""

    id: str
    state: str
    name: str
    exit_code: int
    reason: str
    partition: str
    cpus: float
    memory: float
    features: str


@dataclass
class Placed:
    """An attempt that Slurm was given, or is about to be."""

    start: Start | None
    since: float
    id: str = ""
    own: bool = True
    """submitted by us; False: a user's own job, released by us"""
    started: bool = False
    stop: bool = False


def run(*command: str, text: str | None = None) -> str:
    """The output of a command."""
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmError(f"{command[0]}: {error}") from None
    if done.returncode:
        raise SlurmError(f"{command[0]}: {' '.join(done.stderr.split())}")
    return done.stdout


def megabytes(text: str) -> float:
    """2000M, 4G, 0."""
    units = {"K": 0.001, "M": 1.0, "G": 1000.0, "T": 1_000_000.0}
    text = text.rstrip("nc")
    return float(text[:-1]) * units[text[-1]] if text[-1:] in units else float(text or 0)


class SlurmEngine:
    """See `Engine`. `folder` must be seen by the nodes under the same name."""

    name = "slurm"

    def __init__(self, folder: Path, *, partition: str | None = None, submit_to: str | None = None) -> None:
        self.folder, self.partition, self.submit_to = folder, partition, submit_to
        self._placed: dict[Attempt, Placed] = {}
        self._nodes: dict[str, Fact] = {}
        self._held: set[str] = set()
        self._lock = threading.RLock()
        self._work: queue.SimpleQueue[Placed | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._tell: Tell = lambda facts: None

    # -- the protocol -------------------------------------------------------------------------------------------

    def open(self, tell: Tell) -> None:
        self._tell = tell
        for name in ("claims", "exits", "output"):
            (self.folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        for target in (self._submit_on, self._look_on):
            thread = threading.Thread(target=target, name=f"slotwise-slurm{target.__name__}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def servers(self) -> list[ServerUp]:
        return [fact for fact in self._look_at_nodes().values() if isinstance(fact, ServerUp)]

    def start(self, starts: Sequence[Start]) -> None:
        for start in starts:
            key = start.job, start.attempt
            with self._lock:
                placed = self._placed.get(key)
                if placed is not None and placed.id:
                    continue  # Slurm has it
                placed = Placed(start, time.monotonic(), own="slurm" not in start.spec)
                self._placed[key] = placed
            self._work.put(placed)

    def stop(self, job: int, attempt: int) -> None:
        with self._lock:
            placed = self._placed.get((job, attempt))
            if placed is None:
                return
            placed.stop = True
            number = placed.id
        if number:
            self._try("scancel", number)

    def known(self, attempts: Sequence[tuple[int, int, str]]) -> dict[Attempt, Known]:
        rows = {row.name: row for row in self._queue()}
        found: dict[Attempt, Known] = {}
        for job, attempt, _ in attempts:
            key = job, attempt
            code = self._exit_code(key)
            row = rows.get(name_of(key))
            if code is not None:
                found[key] = Ended(*key, code, time.time())
            elif row is not None:
                with self._lock:
                    self._placed[key] = Placed(None, time.monotonic(), row.id)
                found[key] = (
                    Started(*key, time.time()) if row.state not in OVER and row.state != "PENDING" else Unknown()
                )
            elif self._claimed(key):  # it ran, and Slurm has forgotten it: the look-out finds out what became of it
                with self._lock:
                    self._placed[key] = Placed(None, time.monotonic(), "?")
                found[key] = Started(*key, time.time())
            else:
                found[key] = Unknown()
        return found

    def settled(self, attempts: Sequence[Attempt]) -> None:
        for key in attempts:
            with self._lock:
                self._placed.pop(key, None)
            for kind in ("claims", "exits"):
                (self.folder / kind / name_of(key)).unlink(missing_ok=True)

    def output(self, job: int, attempt: int, offset: int, limit: int) -> tuple[bytes, int] | None:
        try:
            with open(self.folder / "output" / name_of((job, attempt)), "rb") as file:
                file.seek(offset)
                data = file.read(limit)
        except FileNotFoundError:
            return None
        return data, offset + len(data)

    def close(self) -> None:
        self._closing.set()
        self._work.put(None)
        for thread in self._threads:
            thread.join()

    # -- giving jobs to Slurm -----------------------------------------------------------------------------------

    def _submit_on(self) -> None:
        while not self._closing.is_set():
            placed = self._work.get()
            if placed is None:
                return
            assert placed.start is not None
            try:
                self._give(placed, placed.start)
            except SlurmError as error:
                if "invalid" in str(error).lower() or "not available" in str(error).lower():
                    self._refuse((placed.start.job, placed.start.attempt), str(error))
                    continue
                log.warning("cannot submit job %d, trying on: %s", placed.start.job, error)
                self._closing.wait(1.0)
                self._work.put(placed)

    def _give(self, placed: Placed, start: Start) -> None:
        key = start.job, start.attempt
        if not placed.own:
            number = str(start.spec["slurm"])
            run("scontrol", "update", f"JobId={number}", f"ReqNodeList={start.server}")
            run("scontrol", "release", number)
            placed.id = number
            return
        if self._claimed(key):
            placed.id = "?"
            return
        known = run("squeue", "-h", "-t", "all", "-n", name_of(key), "-o", "%i").split()
        if known:  # an earlier try came through although its answer did not
            placed.id = known[0]
            return
        where = ["-p", self.submit_to] if self.submit_to else []
        placed.id = run(
            "sbatch", "--parsable", "--no-requeue", "-J", name_of(key), "-w", start.server, *where,
            "-n", "1", "-c", str(max(1, ceil(start.demand.get("cpu", 1)))), f"--mem={ceil(start.demand.get('memory', 0)) or 1}M",
            "-o", str(self.folder / "output" / name_of(key)), "--open-mode=append",
            "-D", start.spec.get("cwd") or "/", "--export=NONE",
            text=self._script(start),
        ).split(";")[0].strip()  # fmt: skip
        placed.since = time.monotonic()
        if placed.stop:
            self._try("scancel", placed.id)

    def _script(self, start: Start) -> str:
        """A claim, the command, and its exit code on the disk."""
        key = start.job, start.attempt
        claim, end = (shlex.quote(str(self.folder / kind / name_of(key))) for kind in ("claims", "exits"))
        environment = {
            **start.spec.get("env", {}),
            "SLOTWISE_JOB_ID": str(start.job),
            "SLOTWISE_ATTEMPT": str(start.attempt),
            "SLOTWISE_SERVER": start.server,
        }
        if start.spec.get("array_index") is not None:
            environment["SLOTWISE_ARRAY_INDEX"] = str(start.spec["array_index"])
        setting = "\n".join(
            f"export {name}={shlex.quote(value)}" for name, value in environment.items() if name.isidentifier()
        )
        return f"""#!/bin/sh
(set -C; : > {claim}) 2>/dev/null || exit 0  # it was executed before
{setting}
{shlex.join(start.spec["argv"])}
code=$?
echo $code > {end}.new
sync {end}.new
ln {end}.new {end}
rm -f {end}.new
exit $code
"""

    # -- looking ------------------------------------------------------------------------------------------------

    def _look_on(self) -> None:
        next_nodes = 0.0
        while not self._closing.wait(POLL_SECONDS):
            try:
                self._look_at_jobs()
                if time.monotonic() >= next_nodes:
                    next_nodes = time.monotonic() + NODES_SECONDS
                    self._compare_nodes(self._look_at_nodes())
            except SlurmError as error:
                log.warning("Slurm does not answer: %s", error)  # nothing is known, so nothing is told

    def _queue(self) -> list[Row]:
        widths = (
            "JobID:20,State:20,Name:130,exit_code:20,Reason:60,Partition:60,NumCPUs:20,MinMemory:20,Feature:100"
        )
        size = [int(part.split(":")[1]) for part in widths.split(",")]
        rows = []
        for line in run("squeue", "-h", "-a", "-t", "all", "-O", widths).splitlines():
            cells, at = [], 0
            for width in size:
                cells.append(line[at : at + width].strip())
                at += width
            code, _, signal = cells[3].partition(":")
            exit_code = -int(signal) if signal.isdigit() and int(signal) else int(code) if code.isdigit() else 0
            if exit_code > 255:  # a wait status
                exit_code >>= 8
            number, state, name, _, reason, partition, cpus, memory, features = cells
            rows.append(
                Row(
                    number, state, name, exit_code, reason, partition, float(cpus or 1), megabytes(memory), features
                )
            )
        return rows

    def _look_at_jobs(self) -> None:
        rows = self._queue()
        by_id = {row.id: row for row in rows}
        facts: list[Fact] = self._look_at_held(rows)
        with self._lock:
            placed = list(self._placed.items())
        now = time.monotonic()
        for key, one in placed:
            if one.id:
                fact = self._judge(key, one, by_id.get(one.id), now)
                if fact is not None:
                    facts.append(fact)
        if facts:
            self._tell(facts)

    def _judge(self, key: Attempt, one: Placed, row: Row | None, now: float) -> Fact | None:
        """What has become of an attempt; None: nothing new, or not clear yet."""
        code = self._exit_code(key) if one.own else None
        if code is not None:
            return Ended(*key, code, time.time())
        if row is not None and row.state == "PENDING":
            if now - one.since > PENDING_SECONDS and not one.stop:
                one.stop = True
                log.warning("job %d does not start on its node (%s): taken back", key[0], row.reason)
                self._try("scancel", row.id) if one.own else self._try("scontrol", "hold", row.id)
            return None
        if row is not None and row.state not in OVER:
            one.since = now
            if not one.started:
                one.started = True
                return Started(*key, time.time())
            return None
        if row is not None and not one.own:
            return self._judge_foreign(key, row)
        if now - one.since < VANISHED_SECONDS and not (
            row is not None and row.state in ("CANCELLED", "NODE_FAIL") and one.stop
        ):
            return None  # its file may still appear
        if one.stop and row is not None and row.state == "CANCELLED" and self._claimed(key):
            return Ended(*key, STOPPED, time.time(), "stopped")
        if not self._claimed(key):
            return self._refuse(
                key, f"Slurm did not execute it ({row.state if row is not None else 'it has vanished'})"
            )
        state = row.state if row is not None else "vanished"
        return Lost(*key, f"Slurm says {state}, and there is no exit code")

    @staticmethod
    def _judge_foreign(key: Attempt, row: Row) -> Fact:
        if row.state == "NODE_FAIL":
            return Lost(*key, "Slurm says NODE_FAIL")
        if row.state == "CANCELLED":
            return Ended(*key, STOPPED, time.time(), "cancelled in Slurm")
        return Ended(*key, row.exit_code, time.time(), "" if row.state in ("COMPLETED", "FAILED") else row.state)

    def _refuse(self, key: Attempt, reason: str) -> Refused:
        with self._lock:
            self._placed.pop(key, None)
        fact = Refused(*key, reason)
        if threading.current_thread().name.endswith("_submit_on"):
            self._tell([fact])
        return fact

    def _look_at_held(self, rows: list[Row]) -> list[Fact]:
        """Users' own jobs that wait for us, and those that do so no more."""
        if self.partition is None:
            return []
        held = {
            row.id: row
            for row in rows
            if row.partition == self.partition and row.state == "PENDING" and row.reason.startswith("JobHeld")
        }
        with self._lock:
            ours = {one.id for one in self._placed.values() if not one.own}
            waiting = {
                str(one.start.spec["slurm"])
                for one in self._placed.values()
                if not one.own and one.start is not None
            }
        facts: list[Fact] = [
            Arrived(
                f"slurm-{row.id}",
                {
                    "needs": {"cpu": row.cpus, "memory": row.memory},
                    "requires": {
                        feature: ("yes",) for feature in row.features.split("&") if feature not in ("", "(null)")
                    },
                    "name": row.name,
                    "body": json.dumps({"slurm": row.id, "argv": ["(in Slurm)"]}),
                },
            )
            for number, row in held.items()
            if number not in self._held and number not in ours | waiting
        ]
        over = {row.id for row in rows if row.state in OVER} | (self._held - {row.id for row in rows})
        facts += [Withdrawn(f"slurm-{number}") for number in sorted((self._held & over) - ours - waiting)]
        self._held = set(held)
        return facts

    def _look_at_nodes(self) -> dict[str, Fact]:
        found: dict[str, Fact] = {}
        for line in run("sinfo", "-h", "-N", "-a", "-o", "%N|%c|%m|%f|%T").splitlines():
            node, cpus, memory, features, state = line.strip().split("|")
            labels = {one: "yes" for one in features.split(",") if one not in ("", "(null)")}
            plain = state.rstrip("*~#!%$@^-")
            if plain in ("unknown", "future"):
                continue  # the controller has just started and has not heard of the node yet: nothing is known
            if plain in ("down", "fail", "error"):
                found[node] = ServerLost(node, state)
            elif plain in ("draining", "drained", "drain", "maint", "failing", "power_down"):
                found[node] = ServerDrained(node, state)
            else:
                kind = "-".join([f"cpu{cpus}", f"memory{memory}", *labels])
                found[node] = ServerUp(node, {"cpu": float(cpus), "memory": float(memory)}, labels, kind)
        return found

    def _compare_nodes(self, found: dict[str, Fact]) -> None:
        """Tell what has changed."""
        facts = [fact for node, fact in found.items() if self._nodes.get(node) != fact]
        self._nodes |= found
        if facts:
            self._tell(facts)

    # -- small things -------------------------------------------------------------------------------------------

    def _claimed(self, key: Attempt) -> bool:
        return (self.folder / "claims" / name_of(key)).exists()

    def _exit_code(self, key: Attempt) -> int | None:
        try:
            text = (self.folder / "exits" / name_of(key)).read_text().strip()
        except OSError:
            return None
        return int(text) if text else None

    @staticmethod
    def _try(*command: str) -> Any:
        try:
            return run(*command)
        except SlurmError as error:
            log.warning("%s", error)
            return None


def name_of(key: Attempt) -> str:
    """What an attempt is called in Slurm."""
    return f"slotwise-{key[0]}-{key[1]}"
