"""The engine `slurm`: nodes of a Slurm cluster are servers, and jobs reach them in two ways.

Jobs that were submitted to Slotwise are given to Slurm with `sbatch -w NODE` when they are placed. Jobs that users gave to Slurm themselves, held, in
a partition that is watched, are scheduled too: when such a job is placed it is bound to its node and released.

Slurm forgets what it was told in the seconds before its controller dies: jobs vanish, or wait again although they have run, and their numbers are
given to others. So files say what began and how it ended (`slurm_records`); Slurm's word counts where there is none.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TypeVar

from slotwise.errors import InputError
from slotwise.live.durations import TIME_LIMIT
from slotwise.live.engines import slurm_commands as slurm
from slotwise.live.engines.protocol import (
    Attempt,
    Ended,
    Fact,
    Known,
    Lost,
    Refused,
    ServerLost,
    ServerUp,
    Start,
    Started,
    Tell,
    UnknownAttempt,
)
from slotwise.live.engines.slurm_arrivals import SeenArrivals, foreign_of
from slotwise.live.engines.slurm_commands import QueueRow, SlurmError, run
from slotwise.live.engines.slurm_records import Foreign, SlurmRecords

log = logging.getLogger(__name__)
T = TypeVar("T")
FILES_SECONDS = 0.02  # between two looks for files that end attempts: cheap, and a wait of the user
POLL_SECONDS = 0.5  # between two calls of squeue
NODES_SECONDS = 2.0  # between two calls of scontrol for the nodes, which change seldom
FORGET_SECONDS = 600.0  # between two searches for files that are no longer needed
AGAIN_SECONDS = 1.0  # until a command that failed is tried again
# Seconds after which a placement that Slurm has not started is taken back.
DEADLINE_SECONDS = 60.0
# Seconds to wait for the file with the exit code after an attempt has gone from Slurm.
GRACE_SECONDS = 10.0
# As GRACE_SECONDS, after the controller has started anew: the job may still run until its node reports.
DOUBT_SECONDS = 120.0
STOPPED = -15


@dataclass
class SlurmAttempt:
    """An attempt that Slurm was given, or is about to be."""

    start: Start | None
    since: float
    """when it was given, or seen there"""
    foreign: Foreign | None = None
    """the user's own job that it is"""
    given: bool = False
    unsure: bool = False
    """an earlier try may have come through"""
    started: bool = False
    running_since: float | None = None
    """since when Slurm has said that a user's job runs; None: it does not say so"""
    stop: bool = False
    taken_back: bool = False
    told: bool = False
    """its end was told; the loop forgets nothing"""


class SlurmEngine:
    """See `Engine`. `folder` and `records` must be seen by the nodes under the same names."""

    name = "slurm"

    def __init__(
        self,
        folder: Path,
        *,
        partition: str | None = None,
        records: Path | None = None,
        deadline: float = DEADLINE_SECONDS,
    ) -> None:
        self.partition, self.deadline = partition, deadline
        self.records = SlurmRecords(folder, records)
        self._placed: dict[Attempt, SlurmAttempt] = {}
        self._nodes: dict[str, Fact | None] = {}
        self._arrivals = SeenArrivals(partition, self.records)
        self._lock = threading.RLock()
        self._work: queue.SimpleQueue[tuple[Attempt, SlurmAttempt] | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._tell: Tell = lambda facts: None

    # -- the protocol -------------------------------------------------------------------------------------------

    def open(self, tell: Tell, epoch: int) -> None:
        self._tell = tell
        self.records.open()
        for target in (self._give_on, self._look_on):
            thread = threading.Thread(target=target, name=f"slotwise-slurm{target.__name__}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def servers(self) -> list[ServerUp]:
        return [one.fact for one in self._patiently(self._reported).values() if isinstance(one.fact, ServerUp)]

    def shape(self) -> list[ServerUp]:
        """All nodes, whatever their states."""
        return [one.up for one in self._patiently(self._reported).values()]

    def _reported(self) -> dict[str, slurm.SlurmNode]:
        found = slurm.nodes(self.partition)
        if not found:
            raise InputError("Slurm has no nodes there", where="--partition", remedy="`sinfo` lists partitions")
        if all(one.fact is None for one in found.values()):
            raise SlurmError("its nodes have not reported yet")
        return found

    def start(self, starts: Sequence[Start]) -> None:
        for start in starts:
            key = start.job, start.attempt
            with self._lock:
                placed = self._placed.get(key)
                if placed is not None and placed.given:
                    continue  # Slurm has it
                unsure = placed is not None and placed.unsure
                placed = SlurmAttempt(start, time.monotonic(), foreign_of(start.spec), unsure=unsure)
                self._placed[key] = placed
            self._work.put((key, placed))

    def stop(self, job: int, attempt: int) -> None:
        with self._lock:
            placed = self._placed.get((job, attempt))
            if placed is None:
                return
            placed.stop = True
        if placed.given:
            self._cancel((job, attempt), placed)

    def known(self, attempts: Sequence[tuple[int, int, str]]) -> dict[Attempt, Known]:
        rows = self._patiently(slurm.queue)
        found: dict[Attempt, Known] = {}
        for job, attempt, _ in attempts:
            key = job, attempt
            foreign = self.records.released(key)
            placed = SlurmAttempt(None, time.monotonic(), foreign, unsure=True)
            row = row_for(self.records.name(key), foreign, rows)
            code = self._code(key, foreign)
            if code is not None:
                found[key] = Ended(*key, code, self.records.exit_time(key, foreign))
            elif (row is not None and not row.held) or foreign is not None or self.records.claimed(key):
                # the look-out goes on from here and finds out what has become of it
                placed.given = True
                placed.started = runs = row is not None and not row.over and row.state != "PENDING"
                found[key] = Started(*key, time.time()) if runs else UnknownAttempt()
            else:
                found[key] = UnknownAttempt()
            with self._lock:
                self._placed[key] = placed
        return found

    def settled(self, attempts: Sequence[Attempt]) -> None:
        with self._lock:
            for key in attempts:
                self._placed.pop(key, None)

    def output(self, job: int, attempt: int, offset: int, limit: int) -> tuple[bytes, int] | None:
        try:
            with open(self.records.output((job, attempt)), "rb") as file:
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

    def _give_on(self) -> None:
        while not self._closing.is_set():
            item = self._work.get()
            if item is None:
                return
            key, placed = item
            assert placed.start is not None
            if not self.records.held():
                log.error("another service has taken over; nothing more is given to Slurm")
                return
            try:
                fact = self._release(key, placed) if placed.foreign is not None else self._submit(key, placed.start)
            except SlurmError as error:
                log.warning("cannot give job %d to Slurm, trying on: %s", key[0], error)
                placed.unsure = True
                self._closing.wait(AGAIN_SECONDS)
                self._work.put(item)
                continue
            placed.since, placed.given = time.monotonic(), True
            if fact is not None:
                self._tell([fact])
            elif placed.stop:
                self._cancel(key, placed)

    def _submit(self, key: Attempt, start: Start) -> Fact | None:
        name = self.records.name(key)
        if self.records.claimed(key):
            return None
        if self._placed[key].unsure and run("squeue", "-h", "-t", "all", "-n", name, "-o", "%i").split():
            return None
        where = ["-p", self.partition] if self.partition else []
        if start.spec.get("time"):  # Slurm counts in minutes
            where += ["-t", str(ceil(start.spec["time"] / 60))]
        try:
            run(
                "sbatch", "--parsable", "--no-requeue", "-J", name, "-w", start.server, *where,
                "-N", "1", "-n", "1", "-c", str(max(1, ceil(start.demand.get("cpu", 1)))),
                f"--mem={ceil(start.demand.get('memory', 0)) or 1}M",
                "-o", str(self.records.output(key)), "--open-mode=append", "-D", "/", "--export=ALL",
                text=self.records.script(start), env=slurm.own_environment(),
            )  # fmt: skip
        except SlurmError as error:
            if not error.final:
                raise
            return self._refuse(key, str(error))
        return None

    def _release(self, key: Attempt, placed: SlurmAttempt) -> Fact | None:
        job, start = placed.foreign, placed.start
        assert job is not None
        assert start is not None
        gone = Ended(*key, STOPPED, time.time(), "cancelled in Slurm", by_user=True)
        if the_same(job) is None:
            return gone
        changes = [f"ReqNodeList={start.server}", "Requeue=0"]
        if job.memory:
            changes.append(f"MinMemoryNode={ceil(job.memory)}")
        self.records.release(key, job)
        placed.foreign = self.records.released(key)
        try:
            run("scontrol", "update", f"JobId={job.id}", *changes)
            run("scontrol", "release", job.id)
        except SlurmError as error:
            if not error.final:
                raise
            row = the_same(job)
            if row is None or row.state == "CANCELLED":
                return gone
            return self._refuse(key, str(error)) if row.held else None
        return None

    def _cancel(self, key: Attempt, placed: SlurmAttempt) -> None:
        try:
            if placed.foreign is None:
                run("scancel", "-n", self.records.name(key))
            elif the_same(placed.foreign) is not None:
                run("scancel", placed.foreign.id)
        except SlurmError as error:
            log.warning("%s", error)  # the look-out tries again

    def _refuse(self, key: Attempt, reason: str) -> Fact:
        """The attempt will not be executed: for ours that is made sure, since another attempt follows."""
        placed = self._placed.get(key)
        if (placed is None or placed.foreign is None) and not self.records.claim(key):
            return Lost(*key, reason)
        with self._lock:
            self._placed.pop(key, None)
        return Refused(*key, reason)

    # -- looking ------------------------------------------------------------------------------------------------

    def _look_on(self) -> None:
        next_jobs, next_nodes, next_forget = 0.0, 0.0, time.monotonic() + FORGET_SECONDS
        seen: tuple[int, ...] = ()
        away = False
        while not self._closing.wait(FILES_SECONDS):
            now = time.monotonic()
            try:
                if (files := self.records.changed()) != seen:
                    seen = files
                    self._look_at_files()
                if now >= next_jobs:
                    rows = slurm.queue()
                    self._look_at_jobs(rows)
                    if now >= next_nodes:
                        next_nodes = now + NODES_SECONDS
                        self._compare_nodes({node: one.fact for node, one in slurm.nodes(self.partition).items()})
                    if now >= next_forget:
                        next_forget = now + FORGET_SECONDS
                        self.records.forget(self._busy(rows))
                    next_jobs = time.monotonic() + POLL_SECONDS
                    away = False
            except SlurmError as error:  # nothing is known, so nothing is told
                if not away:
                    log.warning("Slurm does not answer: %s", error)
                away, next_jobs = True, time.monotonic() + POLL_SECONDS
            except Exception:
                log.exception("looking at Slurm failed, and is tried again")
                next_jobs = time.monotonic() + AGAIN_SECONDS

    def _all_given(self) -> list[tuple[Attempt, SlurmAttempt]]:
        with self._lock:
            return [(key, one) for key, one in self._placed.items() if one.given and not one.told]

    def _look_at_files(self) -> None:
        """Ends and beginnings that files tell at once."""
        facts: list[Fact] = []
        for key, one in self._all_given():
            code = self._code(key, one.foreign)
            if code is not None:
                one.told = True
                facts.append(Ended(*key, code, self.records.exit_time(key, one.foreign)))
            elif not one.started and self._began(key, one.foreign):
                one.started = True
                facts.append(Started(*key, time.time()))
        if facts:
            self._tell(facts)

    def _look_at_jobs(self, rows: list[QueueRow]) -> None:
        with self._lock:
            placed = [one.foreign for one in self._placed.values() if one.foreign is not None]
        facts = self._arrivals.look(rows, placed, self._nodes.values())
        if facts:  # at once: it is told only once, and what follows may fail
            self._tell(facts)
        facts = []
        by_name = {
            row.name: row for row in sorted(rows, key=lambda row: not row.over) if self.records.ours(row.name)
        }
        by_id = {(row.id, row.submitted): row for row in rows}
        now = time.monotonic()
        for key, one in self._all_given():
            code = self._code(key, one.foreign)
            if code is not None:
                fact: Fact | None = Ended(*key, code, self.records.exit_time(key, one.foreign))
            elif one.foreign is None:
                fact = self._judge(key, one, by_name.get(self.records.name(key)), now)
            else:
                fact = self._judge_foreign(key, one, by_id.get((one.foreign.id, one.foreign.submitted)), now)
            if fact is not None:
                one.told = not isinstance(fact, Started)
                facts.append(fact)
        if facts:
            self._tell(facts)

    def _judge(self, key: Attempt, one: SlurmAttempt, row: QueueRow | None, now: float) -> Fact | None:
        """What has become of an attempt of ours that has no exit code; None: nothing new, or not clear yet."""
        claimed = self.records.claimed(key) and not self.records.taken_back(key)
        if row is not None and not row.over:
            if row.state != "PENDING":
                one.since = now
                if not one.started:
                    one.started = True
                    return Started(*key, time.time())
            elif not claimed and (one.stop or now - one.since > self.deadline):
                fact = self._refuse(key, f"Slurm did not start it in time ({row.reason})")
                self._cancel(key, one)
                return fact
            return None
        state = row.state if row is not None else "nothing of it any more"
        waited = now - one.since
        if waited < GRACE_SECONDS and not (one.stop and row is not None and waited > AGAIN_SECONDS):
            return None  # its file may still appear
        if not claimed:
            return self._refuse(key, f"Slurm did not execute it (it knows {state})")
        if row is not None and row.state in ("CANCELLED", "TIMEOUT", "DEADLINE", "PREEMPTED"):
            if row.state == "TIMEOUT":
                return Ended(*key, STOPPED, time.time(), f"{TIME_LIMIT} exceeded", over_time=True)
            if one.stop or not self._controller_is_new(waited):
                return Ended(*key, STOPPED, time.time(), f"Slurm: {state}", by_user=row.state == "CANCELLED")
            if waited < DOUBT_SECONDS:
                return None
        return Lost(*key, f"there is no exit code, and Slurm knows {state}")

    def _judge_foreign(self, key: Attempt, one: SlurmAttempt, row: QueueRow | None, now: float) -> Fact | None:
        """What has become of a user's own job that was released."""
        job = one.foreign
        assert job is not None
        began, waited = self.records.began(job), now - one.since
        if row is not None and not row.over:
            if row.state != "PENDING":
                one.since, one.taken_back = now, False
                if one.running_since is None:
                    one.running_since = now
                if not one.started:
                    one.started = True
                    return Started(*key, time.time())
                return None
            one.running_since = None
            if row.held:
                return self._judge_held(key, one, began, waited)
            if waited > self.deadline and not began and not one.taken_back:
                log.warning("job %s does not start on its node (%s): taken back", job.id, row.reason)
                one.taken_back = True
                run("scontrol", "hold", job.id)
            return None
        if row is None or row.state in ("NODE_FAIL", "BOOT_FAIL") or self.records.again(job):
            if row is None and job.records and not one.started and not began and waited >= GRACE_SECONDS:
                return Ended(*key, STOPPED, time.time(), "it has vanished from Slurm", by_user=True)
            return Lost(*key, "there is no exit code, and Slurm has lost it") if waited >= GRACE_SECONDS else None
        if row.state == "CANCELLED":
            if (began or one.started or not job.records) and not one.stop and self._may_be_wrong(one, waited):
                return (
                    Lost(*key, "there is no exit code, and Slurm has lost it") if waited >= DOUBT_SECONDS else None
                )
            return Ended(*key, STOPPED, time.time(), "cancelled in Slurm", by_user=True)
        return Ended(*key, row.exit_code, time.time(), "" if row.state in ("COMPLETED", "FAILED") else row.state)

    def _judge_held(self, key: Attempt, one: SlurmAttempt, began: bool, waited: float) -> Fact | None:
        """A released job that is held: taken back by us, held by its user, or the controller has forgotten that it was released, and it may have run."""
        job = one.foreign
        assert job is not None
        if began or one.started:
            return Lost(*key, "there is no exit code, and Slurm has lost it") if waited >= DOUBT_SECONDS else None
        if not one.taken_back and waited < GRACE_SECONDS:
            return None
        if job.records or slurm.booted() < int(job.released):  # Slurm tells whole seconds
            return self._refuse(
                key, "Slurm did not start it in time" if one.taken_back else "Slurm has not released it"
            )
        return Lost(*key, "Slurm's controller started anew and has forgotten whether it ran")

    def _may_be_wrong(self, one: SlurmAttempt, waited: float) -> bool:
        """Whether `cancelled` may mean that the controller came back from an old state, released the job once more, and a node refused it. Not
        where it has said for a while that the job runs."""
        assert one.foreign is not None
        seen = 0.0 if one.running_since is None else one.since - one.running_since
        forgetful = slurm.booted() >= int(one.foreign.released)  # Slurm tells whole seconds
        return self._controller_is_new(waited) or (forgetful and seen < GRACE_SECONDS)

    def _controller_is_new(self, seconds: float) -> bool:
        """Whether the controller was started since the job was last seen; then its word on jobs of that time means little."""
        return slurm.booted() > time.time() - seconds - GRACE_SECONDS

    def _compare_nodes(self, found: dict[str, Fact | None]) -> None:
        """Tell what has changed."""
        gone: dict[str, Fact | None] = {
            node: ServerLost(node, "Slurm does not have it any more") for node in self._nodes if node not in found
        }
        known = {node: fact for node, fact in (found | gone).items() if fact is not None}
        facts = [fact for node, fact in known.items() if self._nodes.get(node) != fact]
        self._nodes |= known
        if facts:
            self._tell(facts)

    # -- small things -------------------------------------------------------------------------------------------

    def _code(self, key: Attempt, foreign: Foreign | None) -> int | None:
        return self.records.exit_code(key) if foreign is None else self.records.ended(foreign)

    def _began(self, key: Attempt, foreign: Foreign | None) -> bool:
        return self.records.claimed(key) if foreign is None else self.records.began(foreign)

    def _busy(self, rows: list[QueueRow]) -> set[str]:
        with self._lock:
            return {self.records.name(key) for key in self._placed} | {row.name for row in rows if not row.over}

    @staticmethod
    def _patiently(ask: Callable[[], T]) -> T:
        """At the beginning Slurm may be away: wait for it, and say so."""
        told = 0.0
        while True:
            try:
                return ask()
            except SlurmError as error:
                if time.monotonic() - told > 10:
                    told = time.monotonic()
                    log.warning("waiting for Slurm: %s", error)
                time.sleep(AGAIN_SECONDS)


def the_same(job: Foreign) -> QueueRow | None:
    """Return a user's job in Slurm, or None if another job has its number by now: Slurm finds jobs by number only."""
    row = slurm.job(job.id)
    return row if row is not None and row.submitted == job.submitted else None


def row_for(name: str, foreign: Foreign | None, rows: list[QueueRow]) -> QueueRow | None:
    """An attempt's job in Slurm; one that has not ended, if there are several."""
    if foreign is not None:
        found = [row for row in rows if (row.id, row.submitted) == (foreign.id, foreign.submitted)]
    else:
        found = [row for row in rows if row.name == name]
    return min(found, key=lambda row: row.over, default=None)
