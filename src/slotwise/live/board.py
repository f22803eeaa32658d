"""The board: the state of the cluster as dashboards draw it, and what differs between two boards.

A board is made in two steps. The loop thread copies what it owns (`copy`), which takes microseconds a server; any other thread makes the board
of the copy (`Copy.board`). Servers keep their places in the lists until one is removed, so a change names a server by its place.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from slotwise.live.ledger import Ledger
from slotwise.live.server_books import AWAY, DRAINING, UP
from slotwise.live.store.records import Server
from slotwise.scheduling.occupancy import Snapshot, oldest

TURNING = "turning"
STATUSES = (UP, TURNING, DRAINING, AWAY)
DIGITS = 6  # significant digits of amounts: more would not be seen


class BoardCopy(NamedTuple):
    """What the loop thread gives away."""

    seq: int
    now: float
    servers: tuple[Server, ...]
    snapshot: Snapshot
    waiting: dict[str, int]
    oldest: dict[str, float]
    live: int
    fault: str | None
    policy: str
    resources: tuple[str, ...]
    types: list[dict[str, Any]]
    classes: list[dict[str, Any]]

    def board(self) -> Board:
        """Make the board."""
        found = self.snapshot.occupancy()
        place = {name: at for at, name in enumerate(found.names)}
        nothing = [0.0] * len(self.resources)
        used, kept = _brief(found.used), _brief(found.kept)
        rows: list[list[Any]] = []
        for server in self.servers:
            at = place.get(server.name)
            if at is None or server.status == AWAY:
                rows.append([STATUSES.index(server.status), 0, nothing, nothing])
                continue
            status = TURNING if server.status == UP and found.turning[at] else server.status
            rows.append([STATUSES.index(status), int(found.jobs[at]), used[at], kept[at]])
        queues = {
            name: [count, found.running.get(name, 0), self.oldest.get(name)] for name, count in self.waiting.items()
        }
        return Board(
            self.seq, self.now, self.policy, self.fault, self.live, self.resources, self.types, self.classes,
            tuple((one.name, one.server_class) for one in self.servers), rows,
            {one.name: one.reason for one in self.servers if one.reason is not None}, queues,
        )  # fmt: skip


class Board(NamedTuple):
    """The state after the journal row `seq`."""

    seq: int
    now: float
    policy: str
    fault: str | None
    live: int
    resources: tuple[str, ...]
    types: list[dict[str, Any]]
    classes: list[dict[str, Any]]
    names: tuple[tuple[str, str], ...]
    """name and class of each server"""
    rows: list[list[Any]]
    """status, number of jobs, used and kept of each resource; in the order of `names`"""
    reasons: dict[str, str]
    queues: dict[str, list[Any]]
    """waiting, running, and when the oldest waiting job was submitted"""

    def full(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "seq": self.seq, "now": self.now, "policy": self.policy, "fault": self.fault, "live": self.live,
            "statuses": list(STATUSES), "resources": list(self.resources), "types": self.types,
            "classes": self.classes, "names": [name for name, _ in self.names],
            "server_classes": [kind for _, kind in self.names], "servers": self.rows, "reasons": self.reasons,
            "queues": self.queues,
        }  # fmt: skip

    def since(self, before: Board) -> dict[str, Any] | None:
        """Return what differs from an earlier board as plain data; None if only the full board can say it."""
        kept = len(before.names)
        alike = (self.policy, self.resources, self.types, self.classes, self.names[:kept])
        if alike != (before.policy, before.resources, before.types, before.classes, before.names):
            return None
        delta: dict[str, Any] = {"seq": self.seq, "now": self.now, "after": before.seq}
        changed = [
            [at, *now] for at, (now, then) in enumerate(zip(self.rows, before.rows, strict=False)) if now != then
        ]
        if changed:
            delta["servers"] = changed
        if len(self.names) > kept:
            new = zip(self.names[kept:], self.rows[kept:], strict=True)
            delta["added"] = [[name, kind, *row] for (name, kind), row in new]
        queues = {name: row for name, row in self.queues.items() if before.queues.get(name) != row}
        if queues:
            delta["queues"] = queues
        for name in ("fault", "live", "reasons"):
            if getattr(self, name) != getattr(before, name):
                delta[name] = getattr(self, name)
        return delta


def copy(ledger: Ledger, now: float) -> BoardCopy:
    """Copy what a board is made of; in the loop thread, which owns it."""
    core = ledger.core
    return BoardCopy(
        ledger.seq, now, tuple(ledger.servers.values()), Snapshot.of(core), core.waiting, oldest(core),
        len(ledger.live), ledger.fault, core.policy.label, tuple(core.cluster.resources),
        [{"name": one.name, "demand": [float(x) for x in one.demand]} for one in core.types],
        [
            {"name": one.name, "capacity": [float(x) for x in one.capacity], "labels": dict(one.labels)}
            for one in core.cluster.servers
        ],
    )  # fmt: skip


def encode(values: dict[str, Any]) -> str:
    """Write plain data as JSON without spaces; whole amounts without a point."""
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _brief(amounts: np.ndarray[Any, Any]) -> list[list[float]]:
    """Amounts with few digits: most are whole numbers, and are written as such."""
    with np.errstate(divide="ignore"):
        scale = 10.0 ** (DIGITS - np.ceil(np.log10(np.maximum(np.abs(amounts), 1e-12))))
    rounded = np.where(amounts == 0, 0.0, np.round(amounts * scale) / scale)
    return [[int(x) if x == int(x) else x for x in row] for row in rounded.tolist()]
