"""`squeue`: jobs that have not ended, and with `-t all` those that have ended a moment ago."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from slotwise.errors import InputError, SlotwiseError
from slotwise.live.client import ENDED, Client, Job
from slotwise.shims.fields import SQUEUE, Column, Teller
from slotwise.shims.options import FLAG, SlurmOption, flags, no_effect, read_words, refused
from slotwise.shims.words import ACTIVE, ask, has_ended, numbers_in, ours, state_of, states_of

REMEMBERED = 300.0  # seconds that an ended job is shown, as Slurm's MinJobAge
DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
OPTIONS = [
    SlurmOption("format", "o"), SlurmOption("jobs", "j"), SlurmOption("user", "u"), SlurmOption("states", "t"), SlurmOption("name", "n"), SlurmOption("nodelist", "w"),
    *flags("noheader/h", "me", "long/l"),
    *no_effect("partition/p", "account/A", "qos/q", "clusters/M", "sort/S", f"array/r/{FLAG}", f"all/a/{FLAG}", f"verbose/v/{FLAG}"),
    *refused("has no counterpart here: use --format", "Format/O", "json//optional", "yaml//optional"),
    *refused("has no counterpart here; `slotwise forecast ID` says when a job starts", f"start//{FLAG}"),
    *refused("has no counterpart here", "iterate/i", f"steps/s/{FLAG}", "reservation/R", "licenses/L"),
]  # fmt: skip


def main(words: Sequence[str]) -> list[str]:
    """Return the lines to print."""
    values = read_words(words, OPTIONS).values
    columns = columns_of(values.get("format") or (LONG if "long" in values else DEFAULT))
    with Client() as client:
        teller = Teller(client)
        jobs = [job for job in chosen(client, values, teller.now) if _is_asked_for(job, values, teller)]
        lines = [] if "noheader" in values else [line_of(columns, None, teller)]
        return lines + [line_of(columns, job, teller) for job in sorted(jobs, key=lambda job: job.id)]


def chosen(client: Client, values: dict[str, str], now: float) -> Iterator[Job]:
    """Yield the jobs that were asked after, in the states that were asked for."""
    states = states_of(values["states"]) if "states" in values else {"PENDING", "CONFIGURING", "RUNNING"}
    if values.get("jobs"):
        found, missing = ask(client, numbers_in([values["jobs"]]))
        if missing:
            raise SlotwiseError("Invalid job id specified")
        yield from (job for job in found if states is None or state_of(job) in states)
        return
    asked = list(ACTIVE + ENDED) if states is None else ours(states)
    active, ended = ([one for one in asked if one in group] for group in (ACTIVE, ENDED))
    jobs = list(client.jobs(state=active)) if active else []
    if ended:
        for job in client.jobs(state=ended, sort="ended"):  # newest first
            if (job.ended or 0.0) < now - REMEMBERED:
                break
            jobs.append(job)
    yield from (job for job in jobs if states is None or state_of(job) in states)


def _is_asked_for(job: Job, values: dict[str, str], teller: Teller) -> bool:
    users = teller.owners.me if "me" in values else values.get("user")
    if users is not None and not teller.owners.of(users)(job):
        return False
    if "name" in values and job.name not in values["name"].split(","):
        return False
    return "nodelist" not in values or (not has_ended(job) and job.server in values["nodelist"].split(","))


def columns_of(form: str) -> list[tuple[str, Column | None, int, bool]]:
    """Return the parts of a format: the text before a column, the column, its width, and whether it is aligned to the right.

    >>> [(text, field and field.title, width, right) for text, field, width, right in columns_of("%i|%.8T.")]
    [('', 'JOBID', 0, False), ('|', 'STATE', 8, True), ('.', None, 0, False)]
    """
    found: list[tuple[str, Column | None, int, bool]] = []
    at = 0
    for match in re.finditer(r"%(\.?)(\d*)(.)", form):
        field = SQUEUE.get(match[3])
        if field is None:
            raise InputError(f"%{match[3]} is not known here", where="--format", remedy=f"use: {' '.join(SQUEUE)}")
        found.append((form[at : match.start()], field, int(match[2] or 0), bool(match[1])))
        at = match.end()
    return [*found, (form[at:], None, 0, False)]


def line_of(columns: Sequence[tuple[str, Column | None, int, bool]], job: Job | None, teller: Teller) -> str:
    """Return the line of a job, or the heading."""
    line = ""
    for text, field, width, right in columns:
        line += text
        if field is not None:
            cell = field.title if job is None else _plain(field.tell(teller, job))
            line += (cell[:width].rjust(width) if right else cell[:width].ljust(width)) if width else cell
    return line.rstrip()


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)
