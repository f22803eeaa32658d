"""`sacct`: jobs of the past and the present."""

from __future__ import annotations

import time
from collections.abc import Sequence

from slotwise.errors import InputError
from slotwise.live.client import Client, Job
from slotwise.shims.fields import SACCT, Column, Teller
from slotwise.shims.options import FLAG, SlurmOption, flags, no_effect, read_words, refused, typed
from slotwise.shims.times import moment_of
from slotwise.shims.words import ask, numbers_in, state_of, states_of

DEFAULT = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
BRIEF = "JobID,State,ExitCode"
OPTIONS = [
    SlurmOption("format", "o"), SlurmOption("jobs", "j"), SlurmOption("starttime", "S"), SlurmOption("endtime", "E"), SlurmOption("user", "u"), SlurmOption("state", "s"),
    SlurmOption("name"), SlurmOption("delimiter"),
    *flags("noheader/n", "parsable/p", "parsable2/P", "helpformat/e", "brief/b"),
    *no_effect("clusters/M", "accounts/A", "partition/r", "units", f"allocations/X/{FLAG}", f"allusers/a/{FLAG}", f"allclusters/L/{FLAG}",
               f"truncate/T/{FLAG}", f"duplicates/D/{FLAG}", f"array//{FLAG}", f"local//{FLAG}", f"verbose/v/{FLAG}", "noconvert//flag"),
    *refused("has no counterpart here: use --format and --parsable2", f"long/l/{FLAG}", "json//optional", "yaml//optional"),
    *refused("has no counterpart here", "nodelist/N", "file/f", "completion/c/flag", "batch-script/B/flag", "env-vars//flag"),
]  # fmt: skip


def main(words: Sequence[str]) -> list[str]:
    """Return the lines to print."""
    read = read_words(words, OPTIONS)
    values = read.values
    if "helpformat" in values:
        return [" ".join(field.title for field in SACCT.values())]
    fields = fields_of(values.get("format") or (BRIEF if "brief" in values else DEFAULT))
    with Client() as client:
        teller = Teller(client)
        jobs = [job for job in found(client, read.repeated.get("jobs", []), values) if _fits(job, values, teller)]
        rows = [
            [field.tell(teller, job).replace("\n", " ") for field, _ in fields]
            for job in sorted(jobs, key=lambda job: job.id)
        ]
    heading = [] if "noheader" in values else [[field.title for field, _ in fields]]
    if "parsable" in values or "parsable2" in values:
        between = values.get("delimiter", "|")
        return [between.join(row) + (between if "parsable" in values else "") for row in heading + rows]
    rule = [["-" * abs(width) for _, width in fields]] if heading else []
    return [
        " ".join(aligned(cell, width) for cell, (_, width) in zip(row, fields, strict=True))
        for row in heading + rule + rows
    ]


def found(client: Client, numbers: Sequence[str], values: dict[str, str]) -> Sequence[Job]:
    """Return the jobs that were asked after; without numbers, those that were there since a time, by default since midnight."""
    if numbers:
        return ask(client, numbers_in(numbers)).jobs
    since = typed(moment_of, values, "starttime") or moment_of("today")
    until = typed(moment_of, values, "endtime") or time.time()
    return [job for job in client.jobs() if job.submitted <= until and (job.ended is None or job.ended >= since)]


def _fits(job: Job, values: dict[str, str], teller: Teller) -> bool:
    if "user" in values and not teller.owners.of(values["user"])(job):
        return False
    if "name" in values and job.name not in values["name"].split(","):
        return False
    states = states_of(values["state"]) if "state" in values else None
    return states is None or state_of(job) in states


def fields_of(form: str) -> list[tuple[Column, int]]:
    """Return the columns of a format such as `JobID,State%20`, with their widths; a negative width aligns to the left."""
    found = []
    for word in filter(None, form.split(",")):
        name, _, width = word.partition("%")
        field = SACCT.get(name.strip().lower())
        if field is None or (width and not width.lstrip("-").isdecimal()):
            raise InputError(f"{word!r} is no field", where="--format", remedy="`sacct --helpformat` lists them")
        found.append((field, int(width or field.width)))
    return found


def aligned(cell: str, width: int) -> str:
    """Return a cell of a width; what is too long ends with +, as in Slurm."""
    size = abs(width)
    cell = cell if len(cell) <= size else cell[: size - 1] + "+"
    return cell.ljust(size) if width < 0 else cell.rjust(size)
