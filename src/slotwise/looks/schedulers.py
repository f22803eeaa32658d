"""A `Scheduler` in a line or a small table, from what it shows to everybody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from slotwise.looks import notebook

MOST = 12
"""types and classes that are listed"""


def scheduler_line(scheduler: Any) -> str:
    """<Scheduler guarded: 32 servers, 4 running, 2 waiting>"""
    name = scheduler.policy.name or type(scheduler.policy).__name__
    running, waiting = _count(scheduler.running), _count(scheduler.waiting)
    return f"<Scheduler {name}: {_count(scheduler.servers):,} servers, {running:,} running, {waiting:,} waiting>"


def scheduler_html(scheduler: Any) -> str:
    """The same as a table: what is there, by class and by type."""
    name = scheduler.policy.name or type(scheduler.policy).__name__
    rows = [["servers", _count(scheduler.servers)], ["running", _count(scheduler.running)]]
    rows.append(["waiting", _count(scheduler.waiting)])
    waiting = _by_type(scheduler.waiting)
    rows += [[f"waiting: {kind}", count] for kind, count in waiting.most_common(MOST)]
    classes = ", ".join(f"{c.name} {list(map(str, c.capacity))}" for c in scheduler.cluster.servers[:MOST])
    types = ", ".join(job_type.name for job_type in scheduler.types[:MOST])
    return notebook.table(f"Scheduler: {name}", ["", "number"], rows, [f"classes: {classes}", f"types: {types}"])


def _count(things: Any) -> int:
    """Jobs may be told one by one, or counted by type."""
    if isinstance(things, dict) and things and all(isinstance(value, int) for value in things.values()):
        return sum(things.values())
    return len(things)


def _by_type(things: Any) -> Counter[str]:
    if isinstance(things, dict) and all(isinstance(value, int) for value in things.values()):
        return Counter({str(key): value for key, value in things.items() if value})
    kinds: Iterable[Any] = things.values() if isinstance(things, dict) else things
    return Counter(str(kind) for thing in kinds if (kind := getattr(thing, "type", None)) is not None)
