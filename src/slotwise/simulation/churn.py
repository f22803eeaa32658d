"""Servers that join, drain and fail while a simulation runs: called between two stretches of `loop.run`.

They are rare, and compiling them takes some seconds: who has none does not wait for it.
"""

from __future__ import annotations

from typing import Any

from slotwise._kernel import kernel
from slotwise.scheduling import drive
from slotwise.scheduling.state import ABSENT, CLASS, COUNT, DRAINING, PRESENT, STATUS, State, moved, servers
from slotwise.simulation.loop import NOBODY, add_capacity, advance, close_event, forget_end, settle, take_away
from slotwise.simulation.meter import ARRIVAL, DURATION, LEAF, Meter, ends, stays

JOIN, DRAIN, FAIL = 0, 1, 2


@kernel
def happen(
    s: State, m: Meter, kind: int, server: int, c: int, now: float, arrive: Any, join: Any, leave: Any
) -> None:
    """Let time pass until `now`, when the event happens."""
    advance(s, m, now)
    settle(s, m, now)
    s.now = now
    server_event(s, m, kind, server, c, now, arrive, join, leave)
    close_event(s, m, now, NOBODY, False)


@kernel
def server_event(
    s: State, m: Meter, kind: int, server: int, c: int, now: float, arrive: Any, join: Any, leave: Any
) -> None:
    """A server joins, drains or fails; one that is not there cannot fail, one that is there cannot join."""
    row = servers(s)[server]
    drive.begin(s)
    if kind == JOIN and (row[STATUS] == ABSENT or (row[STATUS] == DRAINING and row[COUNT] == 0)):
        drive.join(s, server, c, join)
        add_capacity(s, m, c, 1)
    elif kind == DRAIN and row[STATUS] == PRESENT:
        drive.drain(s, server, leave, arrive)
        if row[COUNT] == 0:
            take_away(s, m, server)
    elif kind == FAIL and row[STATUS] != ABSENT:
        add_capacity(s, m, row[CLASS], -1)
        drive.fail(s, server, leave, arrive)
        for n in range(s.n_moved):
            i = moved(s)[n]
            m.lost += 1
            leaf = int(stays(m)[i, LEAF])
            m.lost_work += now - (ends(m)[m.leaves + leaf, 0] - stays(m)[i, DURATION])
            forget_end(m, leaf)
            # it waits again: that counts as queue, but its wait is the one before its first start
            stays(m)[i, ARRIVAL] = -now
