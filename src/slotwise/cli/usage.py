"""`slotwise usage`: who used how much."""

from __future__ import annotations

import csv
import json
import sys
from typing import Any

from slotwise.cli.columns import clock, table
from slotwise.cli.connecting import CONNECTION, connected
from slotwise.cli.light import LightCommand, Option
from slotwise.cli.listing import moment
from slotwise.display.numbers import printable
from slotwise.errors import InputError
from slotwise.live.durations import in_words

WAITS = ("mean", "p50", "p95")


def usage(
    *,
    by: str,
    since: float | None,
    until: float | None,
    tenant: str | None,
    as_csv: bool,
    server: str | None,
    profile: str | None,
    as_json: bool,
) -> None:
    """Print what was used in a window."""
    if as_csv and as_json:
        raise InputError("is given beside --json", where="--csv", remedy="leave one of them out")
    with connected(server, profile) as client:
        asked = {"by": by, "since": since, "until": until, "tenant": tenant}
        found = client.call("GET", "/v1/usage", params=asked).json()
    if as_json:
        print(json.dumps(found))
    elif as_csv:
        write_csv(found)
    else:
        show(found)


def resources_of(found: dict[str, Any]) -> list[str]:
    """Return the resources of all rows, in the order of the cluster."""
    return list(dict.fromkeys(name for row in found["rows"] for name in row["hours"]))


def write_csv(found: dict[str, Any]) -> None:
    """Print the rows as CSV, with all digits, in seconds and hours."""
    resources = resources_of(found)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    waits = [f"wait_{name}" for name in WAITS]
    hours = [f"{name}_hours" for name in resources]
    writer.writerow(["since", "until", *found["by"], "started", "ended", "retried", *waits, *hours, "exit_codes"])
    for row in found["rows"]:
        wait = row["wait"] or dict.fromkeys(WAITS, "")
        codes = " ".join(f"{code}:{count}" for code, count in row["exit_codes"].items())
        writer.writerow(
            [found["since"], found["until"], *row["group"].values(), row["started"], row["ended"], row["retried"]]
            + [wait[name] for name in WAITS]
            + [row["hours"].get(name, 0.0) for name in resources]
            + [codes]
        )


def show(found: dict[str, Any]) -> None:
    """Print the rows as a table, and what the store no longer has."""
    resources = resources_of(found)
    rows = [
        [
            *(value or "-" for value in row["group"].values()),
            *(hours_in_words(row["hours"].get(name, 0.0)) for name in resources),
            f"{row['started']:,}",
            f"{row['ended']:,}",
            f"{row['retried']:,}",
            *("-" if row["wait"] is None else in_words(row["wait"][name]) for name in WAITS),
            ", ".join(f"{code}: {count:,}" for code, count in row["exit_codes"].items()) or "-",
        ]
        for row in found["rows"]
    ]
    print(f"from {clock(found['since'])} to {clock(found['until'])}")
    if rows:
        waits = ["wait mean", "wait p50", "wait p95"]
        headings = [*found["by"], *(f"{name} h" for name in resources)]
        headings += ["started", "ended", "retried", *waits, "exit codes"]
        table(headings, rows, ("retried", "wait p50", "wait mean", "exit codes"))
    else:
        print("no job was there")
    kept = f"the store keeps ended jobs for {in_words(found['keep_days'] * 86_400)}"
    if found["complete"]:
        print(kept)
    else:
        print(printable(f"not complete: {kept}, and has none that ended before {clock(found['kept_since'])}"))


def hours_in_words(hours: float) -> str:
    """Return a number of hours with its digits that matter."""
    return f"{hours:,.0f}" if hours >= 1000 else f"{hours:.4g}"


USAGE = LightCommand(
    usage,
    "Show the use of the cluster: resource-hours, jobs that started and ended, waits, exit codes. A job uses what it requests, from its placement to "
    "its end, on every attempt. The window is by default all that the store keeps.",
    (
        Option(
            "by",
            "--by",
            "a row for each value of these keys, separated by commas: tenant, type, user, state, name, server",
            "KEYS",
            default="tenant",
        ),
        Option("since", "--since", "begin of the window: 7d (ago), or a date", "TIME", moment),
        Option("until", "--until", "end of the window: 1d (ago), or a date", "TIME", moment),
        Option("tenant", "--tenant", "only jobs of this tenant", "NAME"),
        Option("as_csv", "--csv", "print CSV on standard output, with all digits"),
        *CONNECTION,
    ),
    (
        "slotwise usage --by tenant,type --since 7d",
        "slotwise usage --by user --since 2026-01-01 --until 2026-02-01 --csv",
    ),
)
