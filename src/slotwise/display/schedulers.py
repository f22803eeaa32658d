"""A `Scheduler` in a line or a small table, from its public attributes."""

from __future__ import annotations

from typing import Any

from slotwise.display import notebook

MOST = 12  # types and classes that are listed


def scheduler_line(scheduler: Any) -> str:
    """<Scheduler guarded: 32 servers, 4 running, 2 waiting>"""
    servers, running, waiting = _counts(scheduler)
    noun = "server" if servers == 1 else "servers"
    return f"<Scheduler {_policy(scheduler)}: {servers:,} {noun}, {running:,} running, {waiting:,} waiting>"


def scheduler_html(scheduler: Any) -> str:
    """Return the scheduler as a table: servers, running jobs, and waiting jobs by type."""
    servers, running, waiting = _counts(scheduler)
    rows: list[list[Any]] = [["servers", servers], ["running", running], ["waiting", waiting]]
    longest = sorted(scheduler.waiting.items(), key=lambda pair: -pair[1])
    rows += [[f"waiting: {kind}", count] for kind, count in longest[:MOST] if count]
    classes = [f"{c.name} ({', '.join(map(str, c.capacity))})" for c in scheduler.cluster.servers]
    notes = [
        f"capacity of a server ({', '.join(scheduler.cluster.resources)}): {_some(classes)}",
        f"types: {_some([job_type.name for job_type in scheduler.types])}",
    ]
    return notebook.table(f"Scheduler: {_policy(scheduler)}", ["", "number"], rows, notes)


def _policy(scheduler: Any) -> str:
    return str(scheduler.policy.label)


def _counts(scheduler: Any) -> tuple[int, int, int]:
    """Servers, running jobs and waiting jobs."""
    return len(scheduler.servers), len(scheduler.running), sum(scheduler.waiting.values())


def _some(names: list[str]) -> str:
    left = len(names) - MOST
    return ", ".join(names[:MOST]) + (f" and {left:,} more" if left > 0 else "")
