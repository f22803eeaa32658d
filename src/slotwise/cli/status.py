"""`slotwise status`: the service on one screen."""

from __future__ import annotations

import json
from typing import Any

from slotwise.cli.columns import table
from slotwise.cli.connecting import CONNECTION, connected
from slotwise.cli.light import LightCommand
from slotwise.display.numbers import printable
from slotwise.live.durations import in_words

MOST = 12  # rows of one table


def status(*, server: str | None, profile: str | None, as_json: bool) -> int:
    """Print the state of the service."""
    with connected(server, profile) as client:
        found = client.call("GET", "/v1/status").json()
    if as_json:
        print(json.dumps(found))
        return 0
    print(
        printable(f"slotwise {found['version']}, engine {found['engine']}, policy {found['policy'] or 'not known'}")
    )
    print(
        "jobs: "
        + ", ".join(
            f"{number:,} {state}"
            for state, number in found["jobs"].items()
            if number or state in ("waiting", "running")
        )
    )
    if found["resources"]:
        uses = found["resources"].items()
        print(
            "used: " + ", ".join(printable(f"{name} {one['used']:g} of {one['capacity']:g}") for name, one in uses)
        )
    _servers(found["servers"])
    _rows(
        "queues",
        ["type", "waiting", "running", "oldest"],
        [
            [q["type"], f"{q['waiting']:,}", f"{q['running']:,}", _age(q["oldest"])]
            for q in _largest(found["queues"])
        ],
        len(found["queues"]),
    )
    has_quotas = any(t.get("quotas") for t in found["tenants"])
    _rows(
        "tenants",
        ["tenant", "waiting", "running", *(["quotas"] if has_quotas else [])],
        [
            [t["tenant"], f"{t['waiting']:,}", f"{t['running']:,}", *([_quotas(t)] if has_quotas else [])]
            for t in _largest(found["tenants"])
        ],
        len(found["tenants"]),
    )
    print()
    if not found["trouble"]:
        print("trouble: none")
    for line in found["trouble"]:
        print(printable(f"trouble: {line}"))
    return 0


def _servers(found: list[dict[str, Any]]) -> None:
    """Print how many servers there are in each status, and each one if there are few."""
    counts: dict[str, int] = {}
    for one in found:
        counts[one["status"]] = counts.get(one["status"], 0) + 1
    print("servers: " + (", ".join(f"{number:,} {status}" for status, number in counts.items()) or "none"))
    shown = found if len(found) <= MOST else [one for one in found if one["status"] != "up"]
    rows = [
        [one["name"], one["server_class"], one["status"], str(one["jobs"]), one["reason"] or ""] for one in shown
    ]
    _rows("", ["server", "class", "status", "jobs", "reason"], rows[:MOST], len(shown))


def _largest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda one: (-one["waiting"], -one["running"]))[:MOST]


def _quotas(tenant: dict[str, Any]) -> str:
    """Return what counts against the quotas of a tenant."""
    rows = [f"{one['kind']} {one['name']} {one['used']:,g} of {one['quota']:,g}" for one in tenant["quotas"]]
    return ", ".join(rows) or "-"


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else in_words(round(seconds))


def _rows(title: str, headings: list[str], rows: list[list[str]], total: int) -> None:
    if rows:
        print()
        table(headings, rows, folded=headings[-1])
        if total > len(rows):
            print(f"... and {total - len(rows):,} more {title or 'servers'}")


STATUS = LightCommand(
    status,
    "Show the service on one screen: servers, jobs by state, queues, tenants, and what is wrong.",
    CONNECTION,
    ("slotwise status",),
)
