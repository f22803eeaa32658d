"""Servers that join, drain and fail while a simulation runs: called between two stretches of `loop.run`.

They are rare, and compiling them takes some seconds: who has none does not wait for it.
"""

from __future__ import annotations

from typing import Any

from slotwise._kernel import kernel
from slotwise.scheduling import drive
from slotwise.scheduling.state import ABSENT, CLASS, COUNT, DRAINING, PRESENT, STATUS, State, moved, servers
from slotwise.simulation.agenda import DURATION, LEAF, NOBODY, THROWN_BACK, Agenda, ends, forget_end, stays
from slotwise.simulation.loop import close_event, take_away
from slotwise.simulation.measuring import add_up, advance, change_capacity, note_lost
from slotwise.simulation.meter import Meter

JOIN, DRAIN, FAIL = 0, 1, 2


@kernel
def happen(
    s: State, a: Agenda, m: Meter, kind: int, server: int, c: int, now: float, arrive: Any, join: Any, leave: Any
) -> None:
    """Let time pass until `now`, when the event happens."""
    advance(s, a, m, now)
    add_up(s, m, now)
    s.now = now
    server_event(s, a, m, kind, server, c, now, arrive, join, leave)
    close_event(s, a, m, now, NOBODY, False)


@kernel
def server_event(
    s: State, a: Agenda, m: Meter, kind: int, server: int, c: int, now: float, arrive: Any, join: Any, leave: Any
) -> None:
    """A server joins, drains or fails; one that is not there cannot fail, one that is there cannot join."""
    row = servers(s)[server]
    drive.begin(s)
    if kind == JOIN and (row[STATUS] == ABSENT or (row[STATUS] == DRAINING and row[COUNT] == 0)):
        drive.join(s, server, c, join)
        change_capacity(s, m, c, 1, now)
    elif kind == DRAIN and row[STATUS] == PRESENT:
        drive.drain(s, server, leave, arrive)
        if row[COUNT] == 0:
            take_away(s, a, m, server)
    elif kind == FAIL and row[STATUS] != ABSENT:
        change_capacity(s, m, row[CLASS], -1, now)
        drive.fail(s, server, leave, arrive)
        for n in range(s.n_moved):
            i = moved(s)[n]
            leaf = int(stays(a)[i, LEAF])
            note_lost(m, i, now - (ends(a)[a.leaves + leaf, 0] - stays(a)[i, DURATION]))
            forget_end(a, leaf)
            stays(a)[i, THROWN_BACK] = now
