"""The columns of `squeue` and `sacct`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from typing import NamedTuple

from slotwise.live.client import Client, Job
from slotwise.shims import times
from slotwise.shims.words import (
    COMPACT,
    PARTITION,
    Details,
    Owners,
    exit_pair,
    has_ended,
    number_of,
    reason_of,
    state_of,
)


class Teller:
    """Tells the columns of jobs. Columns that need a request for each job make it once."""

    def __init__(self, client: Client) -> None:
        self.owners = Owners(client)
        self.details = Details(client)
        self.now = time.time()

    def elapsed(self, job: Job) -> float:
        """Return the seconds that a job has run."""
        return 0.0 if job.started is None else max(0.0, (job.ended or self.now) - job.started)

    def limit(self, job: Job) -> str:
        """Return the time limit of a job."""
        limit = self.details.of(job)["time"]
        return "UNLIMITED" if limit is None else times.duration_shown(limit, long=True)

    def left(self, job: Job) -> str:
        """Return the time that a job has left."""
        limit = self.details.of(job)["time"]
        return "UNLIMITED" if limit is None else times.duration_shown(max(0.0, limit - self.elapsed(job)))

    def command(self, job: Job) -> str:
        """Return the command of a job; of a batch script, its name."""
        argv = self.details.of(job)["argv"]
        return job.name if argv[3:4] == ["slurm_script"] else shlex.join(argv)

    def reason(self, job: Job) -> str:
        """Return why a job waits or how it ended. Of held jobs, only their dependencies tell."""
        return reason_of(job, waits_for_others=job.state == "held" and bool(self.details.of(job)["after"]))

    def comment(self, job: Job) -> str:
        """Return the comment of a job."""
        return str(self.details.of(job)["labels"].get("comment", ""))


class Column(NamedTuple):
    """A column."""

    title: str
    width: int
    """where it is shown without one"""
    tell: Callable[[Teller, Job], str]


def _time(name: str, unknown: str) -> Callable[[Teller, Job], str]:
    return lambda _, job: times.time_shown(getattr(job, name), unknown)


def _fixed(text: str) -> Callable[[Teller, Job], str]:
    return lambda *_: text


def _reason_or_server(teller: Teller, job: Job) -> str:
    return (
        f"({teller.reason(job)})" if job.server is None or (has_ended(job) and job.started is None) else job.server
    )


# Columns of squeue by letter.
SQUEUE = {
    "a": Column("ACCOUNT", 8, lambda _, job: job.tenant), "A": Column("JOBID", 18, lambda _, job: str(job.id)),
    "C": Column("CPUS", 4, lambda t, job: f"{t.details.cpus(job):g}"), "D": Column("NODES", 5, _fixed("1")),
    "e": Column("END_TIME", 19, _time("ended", "N/A")),
    "F": Column("ARRAY_JOB_ID", 12, lambda _, job: str(job.array or job.id)), "i": Column("JOBID", 18, lambda _, job: number_of(job)),
    "j": Column("NAME", 8, lambda _, job: job.name), "k": Column("COMMENT", 10, lambda t, job: t.comment(job)),
    "K": Column("ARRAY_TASK_ID", 13, lambda _, job: "N/A" if job.array_index is None else str(job.array_index)),
    "l": Column("TIME_LIMIT", 10, lambda t, job: t.limit(job)), "L": Column("TIME_LEFT", 10, lambda t, job: t.left(job)),
    "m": Column("MIN_MEMORY", 10, lambda t, job: times.memory_shown(t.details.memory(job))),
    "M": Column("TIME", 10, lambda t, job: times.duration_shown(t.elapsed(job))), "N": Column("NODELIST", 10, lambda _, job: job.server or ""),
    "o": Column("COMMAND", 20, lambda t, job: t.command(job)), "P": Column("PARTITION", 9, _fixed(PARTITION)),
    "q": Column("QOS", 6, _fixed("normal")), "Q": Column("PRIORITY", 8, _fixed("0")), "r": Column("REASON", 10, lambda t, job: t.reason(job)),
    "R": Column("NODELIST(REASON)", 16, _reason_or_server), "S": Column("START_TIME", 19, _time("started", "N/A")),
    "t": Column("ST", 2, lambda _, job: COMPACT[state_of(job)]), "T": Column("STATE", 10, lambda _, job: state_of(job)),
    "u": Column("USER", 8, lambda t, job: t.owners.user(job)), "V": Column("SUBMIT_TIME", 19, _time("submitted", "N/A")),
    "Z": Column("WORK_DIR", 20, lambda t, job: t.details.of(job)["cwd"] or ""),
}  # fmt: skip

# Columns of sacct by name in lower case. What is not measured is empty, as in Slurm without accounting.
SACCT = {field.title.lower(): field for field in (
    Column("JobID", 12, lambda _, job: number_of(job)), Column("JobIDRaw", 12, lambda _, job: str(job.id)),
    Column("JobName", 10, lambda _, job: job.name), Column("Partition", 10, _fixed(PARTITION)), Column("Account", 10, lambda _, job: job.tenant),
    Column("AllocCPUS", 10, lambda t, job: "0" if job.server is None else f"{t.details.cpus(job):g}"),
    Column("NCPUS", 10, lambda t, job: "0" if job.server is None else f"{t.details.cpus(job):g}"),
    Column("ReqCPUS", 8, lambda t, job: f"{t.details.cpus(job):g}"), Column("State", 10, lambda _, job: state_of(job)),
    Column("ExitCode", 8, lambda _, job: exit_pair(job)), Column("DerivedExitCode", 15, lambda _, job: exit_pair(job)),
    Column("Submit", 19, _time("submitted", "Unknown")), Column("Eligible", 19, _time("submitted", "Unknown")),
    Column("Start", 19, _time("started", "Unknown")), Column("End", 19, _time("ended", "Unknown")),
    Column("Elapsed", 10, lambda t, job: times.duration_shown(t.elapsed(job), long=True)),
    Column("ElapsedRaw", 10, lambda t, job: str(int(t.elapsed(job)))), Column("Timelimit", 10, lambda t, job: t.limit(job)),
    Column("TimelimitRaw", 12, lambda t, job: str(int((t.details.of(job)["time"] or 0) // 60))),
    Column("NodeList", 15, lambda _, job: job.server or "None assigned"), Column("NNodes", 8, _fixed("1")), Column("AllocNodes", 10, _fixed("1")),
    Column("ReqMem", 10, lambda t, job: times.memory_shown(t.details.memory(job))), Column("User", 9, lambda t, job: t.owners.user(job)),
    Column("WorkDir", 20, lambda t, job: t.details.of(job)["cwd"] or ""), Column("Reason", 22, lambda t, job: t.reason(job)),
    Column("Comment", 14, lambda t, job: t.comment(job)), Column("QOS", 10, _fixed("normal")), Column("Priority", 10, _fixed("0")),
    Column("Cluster", 10, _fixed(PARTITION)), Column("Restarts", 8, lambda _, job: str(max(0, job.attempt - 1))),
    *(Column(name, 10, _fixed("")) for name in ("MaxRSS", "AveRSS", "MaxVMSize", "TotalCPU", "CPUTime", "UserCPU", "SystemCPU", "ReqTRES", "AllocTRES")),
)}  # fmt: skip
