"""`slotwise maintenance`: windows in which a server takes no jobs, or only those of one tenant."""

from __future__ import annotations

import json
from typing import Any

from slotwise.cli.columns import clock, table
from slotwise.cli.connecting import CONNECTION, connected
from slotwise.cli.light import Argument, CommandGroup, LightCommand, Option, whole
from slotwise.display.numbers import printable
from slotwise.errors import InputError
from slotwise.live.durations import coming, in_words, seconds_of


def add(
    *,
    name: str,
    begin: float,
    until: float | None,
    length: float | None,
    reason: str,
    assumed: float | None,
    tenant: str,
    server: str | None,
    profile: str | None,
    as_json: bool,
) -> None:
    """Plan a window."""
    if (until is None) == (length is None):
        raise InputError("are given both, or none of them", where="--until and --for", remedy="give one of them")
    end = until if until is not None else begin + (length or 0.0)
    wanted: dict[str, Any] = {"server": name, "begin": begin, "until": end, "reason": reason, "tenant": tenant}
    if assumed is not None:
        wanted["assumed"] = assumed
    with connected(server, profile) as client:
        made = client.call("POST", "/v1/maintenance", json=wanted).json()
    if as_json:
        print(json.dumps(made))
        return
    takes = f"only jobs of tenant {tenant}" if tenant else "no jobs"
    print(printable(f"window {made['id']}: server {name} takes {takes} from {clock(begin)} to {clock(end)}"))
    print(about_jobs(made))


def about_jobs(window: dict[str, Any]) -> str:
    """Return what the jobs on the server mean for a window."""
    number, free_at = window["jobs"], window["free_at"]
    if not number:
        return "no job runs on it"
    jobs = f"{number:,} jobs run on it" if number > 1 else "1 job runs on it"
    late = free_at - window["begin"]
    if late <= 0:
        return f"{jobs}; the last is expected to end {in_words(-late)} before the window"
    return f"{jobs}; the last may run for {in_words(late)} of the window: no job is interrupted"


def list_windows(*, server: str | None, profile: str | None, as_json: bool) -> None:
    """List windows."""
    with connected(server, profile) as client:
        found = client.call("GET", "/v1/maintenance").json()
    if as_json:
        print(json.dumps(found))
        return
    if not found:
        print("no maintenance is planned")
        return
    rows = [
        [
            str(one["id"]),
            one["server"],
            clock(one["begin"]),
            clock(one["until"]),
            one["state"],
            str(one["jobs"]),
            clock(one["free_at"]),
            one["tenant"] or "-",
            one["reason"],
        ]
        for one in found
    ]
    headings = ["id", "server", "from", "until", "state", "jobs", "free at", "tenant", "reason"]
    table(headings, rows, ("free at", "reason"))


def cancel(*, number: int, server: str | None, profile: str | None, as_json: bool) -> None:
    """Cancel a window."""
    with connected(server, profile) as client:
        found = client.call("DELETE", f"/v1/maintenance/{number}").json()
    print(json.dumps(found) if as_json else printable(f"window {number} of server {found['server']} is cancelled"))


MAINTENANCE = CommandGroup(
    "Plan windows in which a server takes no jobs, or only those of one tenant. Before a window the server takes only jobs that end by then.",
    {
        "add": LightCommand(
            add,
            "Plan a window. Before it begins, the server takes only jobs that are expected to end by then: by their time limit, else by their "
            "expected duration, else by earlier jobs of their type. In the window it takes no jobs, and running jobs go on. After the "
            "window it takes jobs again. With --tenant, the server is reserved: jobs of this tenant need not end by then, and start in the window.",
            (
                Argument("name", "SERVER", "the name of a server"),
                Option(
                    "begin",
                    "--from",
                    "begin: in a time (2h), a date, or now",
                    "TIME",
                    coming,
                    required=True,
                ),
                Option("until", "--until", "end: in a time, or a date", "TIME", coming),
                Option("length", "--for", "length of the window, instead of --until", "TIME", seconds_of),
                Option("tenant", "--tenant", "reserve the server for this tenant's jobs", "NAME", default=""),
                Option("reason", "--reason", "shown by `slotwise servers`", "TEXT", default=""),
                Option(
                    "assumed",
                    "--expect",
                    "expected duration of a job of which nothing is known (default: 1d)",
                    "TIME",
                    seconds_of,
                ),
                *CONNECTION,
            ),
            (
                'slotwise maintenance add node1 --from "2026-01-31 08:00" --for 2h',
                "slotwise maintenance add node1 --from 6h --until 8h",
                "slotwise maintenance add node1 --from 6h --for 2h --tenant course",
            ),
        ),
        "list": LightCommand(
            list_windows,
            "List windows, and whether the jobs on their servers end in time.",
            CONNECTION,
            ("slotwise maintenance list",),
        ),
        "cancel": LightCommand(
            cancel,
            "Cancel a planned window, or end one that has begun: the server takes jobs again.",
            (Argument("number", "ID", "of `slotwise maintenance list`", whole), *CONNECTION),
            ("slotwise maintenance cancel 3",),
        ),
    },
)
