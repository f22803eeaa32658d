"""`scancel`: cancels jobs that wait or run."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from slotwise.errors import InputError
from slotwise.live.client import Client
from slotwise.shims.options import FLAG, SlurmOption, flags, no_effect, read_words, refused
from slotwise.shims.words import ACTIVE, Owners, ask, has_ended, numbers_in, state_of, states_of

KILLS = ("TERM", "SIGTERM", "15", "KILL", "SIGKILL", "9")  # what cancelling sends, one after the other
OPTIONS = [
    SlurmOption("user", "u"), SlurmOption("name", "n"), SlurmOption("jobname"), SlurmOption("state", "t"), SlurmOption("signal", "s"),
    *flags("me", "quiet/Q"),
    *no_effect("partition/p", "account/A", "qos/q", "clusters/M", f"batch/b/{FLAG}", f"full/f/{FLAG}", f"verbose/v/{FLAG}", f"ctld//{FLAG}"),
    *refused("has no counterpart here", f"interactive/i/{FLAG}", "nodelist/w", "reservation/R", f"hurry/H/{FLAG}", "wckey"),
]  # fmt: skip


def main(words: Sequence[str]) -> int:
    """Cancel jobs; 1 if a number is of no job. Jobs that have ended are left alone."""
    read = read_words(words, OPTIONS, mixed=True)
    values = read.values
    if values.get("signal", "TERM").upper() not in KILLS:
        raise InputError(
            "jobs get no other signals here",
            where=f"--signal={values['signal']}",
            remedy="leave it out: SIGTERM, later SIGKILL",
        )
    if not read.rest and not values.keys() & {"user", "name", "jobname", "state", "me"}:
        raise InputError("No job identification provided")
    states = states_of(values["state"]) if "state" in values else None
    name = values.get("name", values.get("jobname"))
    with Client() as client:
        found, missing = (
            ask(client, numbers_in(read.rest)) if read.rest else (list(client.jobs(state=list(ACTIVE))), [])
        )
        owners = Owners(client)
        users = owners.me if "me" in values else values.get("user")
        chosen = [
            job.id
            for job in found
            if not has_ended(job)
            and (name is None or job.name == name)
            and (users is None or owners.of(users)(job))
            and (states is None or state_of(job) in states)
        ]
        errors = client.call("POST", "/v1/jobs/cancel", json={"ids": chosen}).json()["errors"] if chosen else {}
    errors = {number: said for number, said in errors.items() if "has ended" not in said}
    if "quiet" not in values:
        for number in missing:
            print(f"scancel: error: Kill job error on job id {number}: Invalid job id specified", file=sys.stderr)
        for said in errors.values():
            print(f"scancel: error: {said}", file=sys.stderr)
    return 1 if missing or errors else 0
