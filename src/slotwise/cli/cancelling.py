"""`slotwise cancel` and `slotwise stop`."""

from __future__ import annotations

import json
import sys
from typing import Any

from slotwise.cli.connecting import CONNECTION, connected, job_id, number_of
from slotwise.cli.light import Argument, LightCommand, Option
from slotwise.cli.listing import FILTERS, plain, show_jobs
from slotwise.display.numbers import printable
from slotwise.errors import InputError

MANY = 20  # errors that are printed one by one


def cancel(
    *,
    numbers: list[int | str],
    every: bool,
    dry_run: bool,
    job_type: str | None,
    server: str | None,
    profile: str | None,
    as_json: bool,
    **conditions: Any,
) -> int:
    """Cancel jobs; 0 only if there were no errors."""
    chosen = {name: value for name, value in ({"type": job_type} | conditions).items() if value not in (None, [])}
    if not numbers and not chosen and not every:
        raise InputError(
            "no job is named",
            where="cancel",
            remedy="give numbers, --array, --state, --name, --tenant, --type or --all",
        )
    if every and (numbers or chosen):
        raise InputError("is given beside other conditions", where="--all", remedy="leave one of them out")
    with connected(server, profile) as client:
        ids = [number_of(client, one) for one in numbers]
        asked = chosen | ({"ids": ids} if ids else {}) | {"all": every, "dry_run": dry_run}
        done = client.call("POST", "/v1/jobs/cancel", json=asked).json()
    cancelled, errors = done["cancelled"], done["errors"]
    if as_json:
        print(json.dumps({"cancelled": cancelled, "errors": errors}))
        return 1 if errors else 0
    would = "would cancel" if dry_run else "cancelled"
    print(f"{would} {len(cancelled):,} {'job' if len(cancelled) == 1 else 'jobs'}{_listed(cancelled)}")
    for said in list(errors.values())[:MANY]:
        print(f"slotwise: {printable(said)}", file=sys.stderr)
    if len(errors) > MANY:
        print(f"slotwise: and {len(errors) - MANY:,} more errors; --json lists all", file=sys.stderr)
    return 1 if errors else 0


def _listed(numbers: list[int]) -> str:
    if not numbers:
        return ""
    if len(numbers) <= 8:
        return ": " + ", ".join(map(str, numbers))
    return f": {numbers[0]} ... {numbers[-1]}"


def stop(*, numbers: list[int | str], server: str | None, profile: str | None, as_json: bool) -> None:
    """Stop running jobs."""
    with connected(server, profile) as client:
        stopped = [client.stop(number_of(client, one)) for one in numbers]
    if as_json:
        print(json.dumps([plain(job) for job in stopped]))
    else:
        show_jobs(stopped)


CANCEL = LightCommand(
    cancel,
    "Cancel jobs. A waiting job is withdrawn; a running job gets SIGTERM, and SIGKILL after its grace period. If several "
    "options choose jobs, jobs that meet all of them are cancelled. The exit code is 0 only if there was no error.",
    (
        Argument(
            "numbers", "ID...", "the numbers of jobs; 7_1 is index 1 of array 7", job_id, many=True, required=False
        ),
        *FILTERS,
        Option("every", "--all", "every job that has not ended"),
        Option("dry_run", "--dry-run", "list the jobs, and cancel none"),
        *CONNECTION,
    ),
    (
        "slotwise cancel 7",
        "slotwise cancel 7 8 9",
        "slotwise cancel --array 7",
        "slotwise cancel --state waiting --name train --dry-run",
    ),
)
STOP = LightCommand(
    stop,
    "Stop running jobs: SIGTERM, and SIGKILL after the grace period. `slotwise cancel` does the same for running and waiting jobs.",
    (Argument("numbers", "ID...", "the numbers of jobs", job_id, many=True), *CONNECTION),
    ("slotwise stop 7", "slotwise stop 7 8 9"),
)
