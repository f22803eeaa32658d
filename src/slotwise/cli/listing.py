"""`slotwise jobs` and `slotwise job`."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from slotwise.cli.columns import clock, table
from slotwise.cli.connecting import CONNECTION, ID, connected, number_of
from slotwise.cli.light import LightCommand, Option, one_of, whole
from slotwise.display.numbers import printable
from slotwise.errors import InputError
from slotwise.live.durations import in_words, seconds_of

if TYPE_CHECKING:
    from slotwise.live.client import Client, Job

TIMES = ("submitted", "placed", "started", "ended", "deadline")
LENGTHS = ("duration", "time", "grace")  # in seconds
SHOWN = ("id", "state", "type", "server", "attempt", "exit_code", "submitted", "started", "ended")
SORTS = ("id", "submitted", "started", "ended", "name", "state")
LIMIT = 1000  # jobs that are listed unless --limit says otherwise


def plain(job: Job) -> dict[str, Any]:
    """Return a job as --json prints it: the keys that scripts rely on first."""
    values = job._asdict()
    return {name: values[name] for name in SHOWN} | values


def moment(text: str) -> float:
    """Read a time: how long ago (2h), a date, or a date with a time of day."""
    try:
        return time.time() - seconds_of(text)
    except ValueError:
        from datetime import datetime

        try:
            return datetime.fromisoformat(text).timestamp()
        except ValueError:
            raise ValueError("is no time; write how long ago (2h) or a date (2026-01-31 12:00)") from None


def show_jobs(jobs: Sequence[Job]) -> None:
    """Print jobs as a table."""
    if not jobs:
        print("no jobs", file=sys.stderr)
        return
    rows = [
        [
            str(job.id),
            job.state,
            job.type,
            job.tenant,
            job.server or "-",
            "-" if job.exit_code is None else str(job.exit_code),
            clock(job.submitted),
            clock(job.started),
            clock(job.ended),
            job.name,
        ]
        for job in jobs
    ]
    headings = ["id", "state", "type", "tenant", "server", "exit", "submitted", "started", "ended", "name"]
    table(headings, rows, ("tenant", "submitted", "type", "started", "name", "ended"))


def jobs(
    *,
    server: str | None,
    profile: str | None,
    as_json: bool,
    limit: int,
    count: bool,
    follow: bool,
    sort: str | None,
    reverse: bool,
    on: str | None,
    job_type: str | None,
    **conditions: Any,
) -> None:
    """List jobs, count them, or follow them."""
    asked = {"type": job_type, "server": on} | {name: value or None for name, value in conditions.items()}
    if count and follow:
        raise InputError("is given beside --count", where="--follow", remedy="leave one of them out")
    with connected(server, profile) as client:
        if count:
            show_counts(client, asked, as_json=as_json)
            return
        order = {"sort": sort, "oldest_first": reverse or None}
        found = list(client.jobs(limit=limit or None, **asked, **order))
        if as_json:
            print(json.dumps([plain(job) for job in found]))
        else:
            show_jobs(found)
        if limit and len(found) == limit:
            total = sum(client.call("GET", "/v1/jobs/counts", params=asked).json().values())
            if total > limit:
                sys.stdout.flush()
                print(f"slotwise: {len(found):,} of {total:,} jobs; --limit 0 lists all", file=sys.stderr)
        if follow:
            follow_jobs(client, asked, as_json=as_json)


def show_counts(client: Client, asked: dict[str, Any], *, as_json: bool) -> None:
    """Print how many jobs there are in each state."""
    counts = client.call("GET", "/v1/jobs/counts", params=asked).json()
    if as_json:
        print(json.dumps(counts))
        return
    for state, number in counts.items():
        print(f"{state:10} {number:>10,}")


def follow_jobs(client: Client, asked: dict[str, Any], *, as_json: bool) -> None:
    """Print a job each time something happens to it, until Ctrl-C."""
    for row in client.events(follow=True):
        numbers = [row["job"]] if isinstance(row.get("job"), int) else []
        numbers += [one[0] for one in row.get("placements", ()) if one[0] not in numbers]
        if not numbers:
            continue
        for job in client.jobs(**{**asked, "id": numbers}):
            if as_json:
                print(json.dumps(plain(job)), flush=True)
            else:
                where = f" on {job.server}" if job.server else ""
                print(
                    f"{clock(row.get('now'))}  job {job.id}  {job.state}{printable(where)}  {printable(job.name)}",
                    flush=True,
                )


def job(*, number: int | str, server: str | None, profile: str | None, as_json: bool) -> None:
    """Show one job."""
    with connected(server, profile) as client:
        found = client.detail(number_of(client, number))
    ordered = {name: found[name] for name in SHOWN} | found
    if as_json:
        print(json.dumps(ordered))
        return
    for key, value in ordered.items():
        if value not in (None, "", [], {}) and value is not False:
            print(f"{key:12}{printable(said(key, value))}")


def said(key: str, value: Any) -> str:
    """Return a value of a job for people."""
    if key in TIMES:
        return clock(value)
    if key in LENGTHS:
        return in_words(value)
    if key == "argv":
        return shlex.join(value)
    if isinstance(value, dict):
        return ", ".join(f"{name}={said('', one)}" for name, one in value.items())
    return "|".join(map(str, value)) if isinstance(value, list) else str(value)


FILTERS = (
    Option("state", "--state", "only jobs in this state", "STATE", repeatable=True),
    Option("name", "--name", "only jobs with this name", "NAME"),
    Option("tenant", "--tenant", "only jobs of this tenant", "NAME"),
    Option("array", "--array", "only jobs of this array", "ID", whole),
    Option("job_type", "--type", "only jobs of this type", "NAME"),
)
JOBS = LightCommand(
    jobs,
    "List jobs, newest first.",
    (
        *FILTERS,
        Option("on", "--on", "only jobs on this server", "SERVER"),
        Option("since", "--since", "only jobs submitted since: 2h (ago), or a date", "TIME", moment),
        Option("sort", "--sort", f"by {', '.join(SORTS)}", "KEY", one_of(*SORTS)),
        Option("reverse", "--reverse", "oldest or smallest first"),
        Option("limit", "--limit", "at most N jobs; 0: all", "N", whole, LIMIT),
        Option("count", "--count", "print only the number of jobs in each state"),
        Option("follow", "-f, --follow", "then print each change, until Ctrl-C"),
        *CONNECTION,
    ),
    (
        "slotwise jobs --state waiting --state running",
        "slotwise jobs --since 2h --name train --sort ended",
        "slotwise jobs --count",
    ),
)
JOB = LightCommand(job, "Show one job.", (ID, *CONNECTION), ("slotwise job 7",))
