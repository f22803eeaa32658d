"""Jobs in the words of Slurm: states, numbers of jobs and of jobs of arrays, exit codes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from getpass import getuser
from typing import Any, NamedTuple

from slotwise.errors import InputError
from slotwise.live.after import element
from slotwise.live.client import ENDED, PIECE, Client, Job
from slotwise.live.durations import TIME_LIMIT

PARTITION = "slotwise"  # the one partition that the commands show
OPERATOR = "operator"  # tenant of jobs that operators submit
EVERYONE = "*"  # tenant of callers who see all jobs
ACTIVE = ("held", "waiting", "placed", "running")
COMPACT = {
    "PENDING": "PD", "CONFIGURING": "CF", "RUNNING": "R", "COMPLETED": "CD", "FAILED": "F", "TIMEOUT": "TO",
    "OUT_OF_MEMORY": "OOM", "CANCELLED": "CA", "NODE_FAIL": "NF",
}  # fmt: skip
STATES = {
    "held": "PENDING", "waiting": "PENDING", "placed": "CONFIGURING", "running": "RUNNING", "done": "COMPLETED",
    "failed": "FAILED", "cancelled": "CANCELLED", "lost": "NODE_FAIL",
}  # fmt: skip
OTHER_STATES = (  # states of Slurm that no job has here
    "BOOT_FAIL", "COMPLETING", "DEADLINE", "PREEMPTED", "REQUEUED", "RESIZING", "REVOKED", "SPECIAL_EXIT", "STOPPED", "SUSPENDED",
    "BF", "CG", "DL", "PR", "RQ", "RS", "RV", "SE", "ST", "S",
)  # fmt: skip
MEMORY = re.compile(r"used more memory|out of memory", re.IGNORECASE)


class Asked(NamedTuple):
    """Jobs that were asked after, and the numbers that no job has."""

    jobs: list[Job]
    missing: list[str]


def state_of(job: Job) -> str:
    """Return the state of a job as Slurm calls it."""
    if job.state == "failed" and (job.reason or "").startswith(TIME_LIMIT):
        return "TIMEOUT"
    if job.state == "failed" and MEMORY.search(job.reason or ""):
        return "OUT_OF_MEMORY"
    return STATES[job.state]


def states_of(text: str) -> set[str] | None:
    """Return the states that a list such as `PD,running` names; None: all."""
    found: set[str] = set()
    long = {letters: name for name, letters in COMPACT.items()}
    for word in text.upper().split(","):
        if word == "ALL":
            return None
        name = long.get(word, word)
        if name not in COMPACT and name not in OTHER_STATES:
            raise InputError(f"{word!r} is no state", remedy=f"use: {', '.join(COMPACT)}")
        found.add(name)
    return found


def ours(states: Iterable[str]) -> list[str]:
    """Return the states of the service that states of Slurm may be."""
    also = {"TIMEOUT": "FAILED", "OUT_OF_MEMORY": "FAILED"}
    wanted = {also.get(one, one) for one in states}
    return [one for one, name in STATES.items() if name in wanted]


def number_of(job: Job) -> str:
    """Return the number of a job as Slurm shows it: jobs of an array as ARRAY_INDEX."""
    return str(job.id) if job.array is None else f"{job.array}_{job.array_index}"


def reason_of(job: Job, *, waits_for_others: bool = True) -> str:
    """Return why a job waits or how it ended, in a word of Slurm."""
    if job.state == "held":
        return "BeginTime" if job.due is not None else "Dependency" if waits_for_others else "JobArrayTaskLimit"
    if job.state == "waiting":
        return "Resources"
    return {"TIMEOUT": "TimeLimit", "OUT_OF_MEMORY": "OutOfMemory", "FAILED": "NonZeroExitCode", "NODE_FAIL": "NodeDown"}.get(
        state_of(job), "None"
    )  # fmt: skip


def exit_pair(job: Job) -> str:
    """Return the exit code as Slurm shows it: code:signal."""
    code = job.exit_code or 0
    return f"0:{-code}" if code < 0 else f"{code}:0"


def numbers_in(texts: Iterable[str]) -> list[str]:
    """Return the numbers of jobs in lists such as `7,8_2,9_[1-3]`.

    >>> numbers_in(["7,8_2", "9_[1-2,5%2]", "6.batch"])
    ['7', '8_2', '9_1', '9_2', '9_5', '6']
    """
    found: list[str] = []
    for text in texts:
        for word in re.split(r",(?![^\[]*\])", text):
            word = re.sub(r"\.(batch|extern|\d+)$", "", word.strip())
            match = re.fullmatch(r"(\d+)_\[([\d,-]+)(?:%\d+)?\]", word)
            if match:
                for part in match[2].split(","):
                    first, _, last = part.partition("-")
                    found += [f"{match[1]}_{index}" for index in range(int(first), int(last or first) + 1)]
            elif word.isdecimal() or element(word) is not None:
                found.append(word)
            elif word:
                raise InputError(f"{word!r} is no number of a job")
    return found


def ask(client: Client, numbers: Sequence[str]) -> Asked:
    """Return the jobs with these numbers. The number of an array means all its jobs."""
    plain = [int(one) for one in numbers if one.isdecimal()]
    there: dict[int, Job] = {}
    for at in range(0, len(plain), PIECE):
        there |= {job.id: job for job in client.jobs(id=plain[at : at + PIECE])}
    arrays: dict[int, dict[int, Job]] = {}

    def array(number: int) -> dict[int, Job]:
        if number not in arrays:
            found = client.jobs(array=number, oldest_first=True)
            arrays[number] = {job.array_index or 0: job for job in found}
        return arrays[number]

    jobs: dict[int, Job] = {}
    missing: list[str] = []
    for one in numbers:
        pair = element(one)
        if pair is not None:
            found = [job for job in (array(pair[0]).get(pair[1]),) if job is not None]
        else:
            job = there.get(int(one))
            found = [] if job is None else [job] if job.array != job.id else list(array(job.id).values())
        jobs |= {job.id: job for job in found}
        missing += [] if found else [one]
    return Asked(list(jobs.values()), missing)


class Owners:
    """Who a job belongs to: its tenant. For callers who see their own jobs only, and for operators, it is the caller's login name."""

    def __init__(self, client: Client) -> None:
        tenant = client.call("GET", "/v1/me").json()["tenant"]
        self.me = getuser()
        self._mine = OPERATOR if tenant == EVERYONE else tenant

    def user(self, job: Job) -> str:
        """Return the user of a job."""
        return self.me if job.tenant == self._mine else job.tenant

    def of(self, users: str) -> Callable[[Job], bool]:
        """Return a condition: the job belongs to one of these users."""
        wanted = set(users.split(","))
        return lambda job: self.user(job) in wanted or job.tenant in wanted


class Details:
    """What only a request for each job tells: command, needs, time limit. Asked for when a column shows it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._found: dict[int, dict[str, Any]] = {}

    def of(self, job: Job) -> dict[str, Any]:
        """Return a job with what it executes."""
        key = job.id if job.array is None else job.array  # all jobs of an array are submitted alike
        if key not in self._found:
            self._found[key] = self._client.detail(job.id)
        return self._found[key]

    def cpus(self, job: Job) -> float:
        """Return the CPUs that a job requests."""
        return float(self.of(job)["needs"].get("cpu", 1))

    def memory(self, job: Job) -> float:
        """Return the megabytes that a job requests."""
        return float(self.of(job)["needs"].get("memory", 0))


def has_ended(job: Job) -> bool:
    """Return whether a job has ended."""
    return job.state in ENDED
