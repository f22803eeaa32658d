"""`scontrol show job`, `show hostnames` and `ping`. What changes jobs or nodes has its own commands here."""

from __future__ import annotations

import re
from collections.abc import Sequence

from slotwise.errors import InputError, SlotwiseError
from slotwise.live import redirect
from slotwise.live.client import Client, Job
from slotwise.shims import times
from slotwise.shims.fields import Teller
from slotwise.shims.options import FLAG, flags, no_effect, read_words
from slotwise.shims.words import PARTITION, ask, exit_pair, numbers_in, state_of

OPTIONS = [
    *flags("oneliner/o"),
    *no_effect(f"details/d/{FLAG}", f"all/a/{FLAG}", f"quiet/Q/{FLAG}", f"verbose/v/{FLAG}", "clusters/M"),
]
INSTEAD = {
    "requeue": "a job is executed again by `slotwise submit --retry`, or resubmitted by `slotwise resubmit`", "hold": "jobs are not held by users",
    "release": "jobs are not held by users", "update": "`slotwise drain` and `slotwise resume` are for servers", "suspend": "jobs are not interrupted",
    "resume": "jobs are not interrupted", "reboot": "`slotwise drain` takes a server out of service", "cancel_reboot": "`slotwise drain` takes a server out of service",
}  # fmt: skip


def main(words: Sequence[str]) -> list[str]:
    """Return the lines to print."""
    read = read_words(words, OPTIONS, mixed=True)
    verb, rest = (read.rest[0].lower(), read.rest[1:]) if read.rest else ("", [])
    if verb == "ping":
        with Client() as client:
            client.call("GET", "/v1/me")
            return [f"Slurmctld(primary) at {client.address.url} is UP"]
    if verb in INSTEAD:
        raise InputError("is not known here", where=verb, remedy=INSTEAD[verb])
    what = re.split("[= ]", rest[0].lower())[0] if rest else ""
    if verb != "show" or what not in ("job", "jobs", "jobid", "hostnames", "hostname"):
        raise InputError(
            "is not known here",
            where=" ".join([verb, what]).strip() or "scontrol",
            remedy="use: show job, show hostnames, ping",
        )
    named = [*rest[0].split("=", 1)[1:], *rest[1:]]
    if what.startswith("hostname"):
        return [host for one in named for host in hosts_in(one)]
    with Client() as client:
        if named:
            jobs, missing = ask(client, numbers_in(named))
            if missing:
                raise SlotwiseError("slurm_load_jobs error: Invalid job id specified")
        else:
            jobs = list(client.jobs(state=["held", "waiting", "placed", "running"], oldest_first=True))
        teller = Teller(client)
        shown = [described(job, teller) for job in jobs]
    between = " " if "oneliner" in read.values else "\n   "
    return [between.join(" ".join(f"{key}={value}" for key, value in line) for line in one) for one in shown]


def described(job: Job, teller: Teller) -> list[list[tuple[str, str]]]:
    """Return what `show job` says of a job, line by line."""
    spec = teller.details.of(job)
    user = teller.owners.user(job)
    array = [] if job.array is None else [("ArrayJobId", str(job.array)), ("ArrayTaskId", str(job.array_index))]
    cpus = f"{teller.details.cpus(job):g}"
    return [
        [("JobId", str(job.id)), *array, ("JobName", job.name)],
        [("UserId", user), ("Account", job.tenant), ("Partition", PARTITION)],
        [("JobState", state_of(job)), ("Reason", teller.reason(job)), ("Dependency", "(null)")],
        [("Requeue", str(int(spec["on_loss"] == "requeue"))), ("Restarts", str(max(0, job.attempt - 1))), ("ExitCode", exit_pair(job))],
        [("RunTime", times.duration_shown(teller.elapsed(job), long=True)), ("TimeLimit", teller.limit(job))],
        [("SubmitTime", times.time_shown(job.submitted, "Unknown"))],
        [("StartTime", times.time_shown(job.started, "Unknown")), ("EndTime", times.time_shown(job.ended, "Unknown"))],
        [("NodeList", job.server or "(null)"), ("NumNodes", "1"), ("NumCPUs", cpus)],
        [("MinMemoryNode", times.memory_shown(teller.details.memory(job)))],
        [("Command", teller.command(job)), ("WorkDir", spec["cwd"] or "")],
        [(key, file_of(job, spec[name])) for key, name in (("StdErr", "stderr"), ("StdIn", "stdin"), ("StdOut", "stdout"))],
    ]  # fmt: skip


def file_of(job: Job, pattern: str | None) -> str:
    """Return the file of a standard stream of a job."""
    return redirect.filled(pattern, job.id, job.attempt, job.array, job.array_index) if pattern else "/dev/null"


def hosts_in(text: str) -> list[str]:
    """Return the hosts of a list such as `a,n[1-3,07-08]`.

    >>> hosts_in("a,n[1-3,07-08]")
    ['a', 'n1', 'n2', 'n3', 'n07', 'n08']
    """
    found: list[str] = []
    for one in re.split(r",(?![^\[]*\])", text):
        match = re.fullmatch(r"([^\[]*)\[([\d,-]+)\](.*)", one)
        if match is None:
            found.append(one)
            continue
        for part in match[2].split(","):
            first, _, last = part.partition("-")
            found += [
                f"{match[1]}{number:0{len(first)}}{match[3]}"
                for number in range(int(first), int(last or first) + 1)
            ]
    return found
