"""Free capacity that no job can use, why, until when, and what a drain would free. Nothing is moved."""

from __future__ import annotations

from typing import Any

import numpy as np

from slotwise.foresee.correction import LEVELS
from slotwise.foresee.ensemble import Outlook
from slotwise.foresee.history import F8, I8
from slotwise.foresee.whatif import demands_of
from slotwise.model.labels import matches

USUAL_DAYS = 7.0  # a type of which a job was submitted within so many days is usual
DRAINS = 5  # servers that are named for each type that fits nowhere
SERVERS = 100  # servers that are listed


def advice(outlook: Outlook, ends: F8) -> dict[str, Any]:
    """Return which free capacity is unusable. `ends`: (runs, running jobs), seconds from now, as an ensemble gives them."""
    situation = outlook.situation
    resources, table = situation.resources, situation.servers
    present = np.array([status == "present" for status in table.status], np.bool_)
    capacity = np.array([[float(x) for x in one.capacity] for one in situation.classes])
    kinds = np.array(table.server_class, np.int64)
    running = situation.running
    held = demands_of(situation, np.array(running.type, np.int64), running.demand)
    where = np.array(running.server, np.int64)
    free = capacity[kinds].copy()
    np.subtract.at(free, where, held)
    free[~present] = 0.0
    size = np.array([[float(x) for x in one.demand] for one in situation.types])
    usual = _usual(outlook)
    allowed = np.array([[matches(t.requires, c.labels) for t in situation.types] for c in situation.classes])
    can = allowed[kinds] & present[:, None]
    fits = can & (free[:, None, :] >= size[None, :, :] - 1e-9).all(axis=2)
    useless = present & (free > 1e-9).any(axis=1) & ~fits[:, usual].any(axis=1)
    total, lost = free.sum(axis=0), free[useless].sum(axis=0)
    waiting = sorted(set(situation.waiting.type))
    stuck = [j for j in waiting if not fits[:, j].any()]
    rows = []
    for server in np.flatnonzero(useless).tolist()[:SERVERS]:
        mine = np.flatnonzero(where == server)
        wanted = _wanted(server, usual, stuck, can, capacity[kinds[server]], size)
        until = None if wanted is None else _when(free[server], held[mine], ends[:, mine], size[wanted])
        rows.append({
            "server": table.name[server],
            "free": _named(resources, free[server]),
            "unusable": _named(resources, free[server]),
            "jobs": [running.job[at] for at in mine.tolist()],
            "until": None if until is None else _levels(until),
            "fits_then": None if wanted is None else situation.types[wanted].name,
        })  # fmt: skip
    drains = []
    for j in stuck:
        found = []
        for server in np.flatnonzero(can[:, j]).tolist():
            if (capacity[kinds[server]] < size[j] - 1e-9).any():
                continue
            mine = np.flatnonzero(where == server)
            after = _when(free[server], held[mine], ends[:, mine], size[j])
            found.append((float(np.median(after)), server, after))
        for _, server, after in sorted(found, key=lambda one: one[:2])[:DRAINS]:
            holds = np.floor((capacity[kinds[server]] + 1e-9) / np.where(size[j] > 0, size[j], np.inf))
            gains = int(holds[size[j] > 0].min()) if (size[j] > 0).any() else 0
            drains.append({
                "server": table.name[server],
                "type": situation.types[j].name,
                "after": _levels(after),
                "gains": gains,
            })  # fmt: skip
    share = np.where(total > 0, lost / np.maximum(total, 1e-300), 0.0)
    return {
        "as_of": situation.now,
        "free": _named(resources, total),
        "unusable": _named(resources, lost),
        "share": _named(resources, share),
        "servers": rows,
        "drains": drains,
        "reason": None,
    }


def _usual(outlook: Outlook) -> I8:
    """Return the types of which a job waits or was submitted lately."""
    names = [one.name for one in outlook.situation.types]
    recent = outlook.history.submitted >= outlook.situation.now - USUAL_DAYS * outlook.day
    kinds = outlook.history.types_as(names)[recent]
    found = {*outlook.situation.waiting.type, *kinds[kinds >= 0].tolist()}
    return np.array(sorted(found) or list(range(len(names))), np.int64)


def _wanted(server: int, usual: I8, stuck: list[int], can: Any, capacity: F8, size: F8) -> int | None:
    """Return the type to wait for on a server: a waiting type that fits nowhere, otherwise the smallest usual type that an empty server holds."""
    possible: list[int] = [j for j in usual.tolist() if can[server, j] and (capacity >= size[j] - 1e-9).all()]
    if not possible:
        return None
    share = {j: float((size[j] / np.maximum(capacity, 1e-300)).max()) for j in possible}
    return min(possible, key=lambda j: (j not in stuck, share[j], j))


def _when(free: F8, held: F8, ends: F8, size: F8) -> F8:
    """Return, of each run, when a job of this size fits if the server takes no other job."""
    order = np.argsort(ends, axis=1)
    after = free + np.cumsum(held[order], axis=1)
    enough = np.asarray((after >= size - 1e-9).all(axis=2), np.bool_)
    first = np.argmax(enough, axis=1)
    times = np.take_along_axis(ends, np.take_along_axis(order, first[:, None], axis=1), axis=1)[:, 0]
    return np.where(enough.any(axis=1), times, np.inf)


def _levels(values: F8) -> dict[str, float | None]:
    found = np.quantile(values, LEVELS) if np.isfinite(values).all() else [np.inf] * 3
    return {
        name: float(x) if np.isfinite(x) else None for name, x in zip(("p10", "p50", "p90"), found, strict=True)
    }


def _named(resources: list[str], values: F8) -> dict[str, float]:
    return {name: float(values[r]) for r, name in enumerate(resources)}
