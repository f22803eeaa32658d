"""Servers that join, drain and fail while a simulation runs: between two stretches of `loop.run_jobs`.

Compiling this takes some seconds. A run without such servers calls `loop.run_jobs` alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.core import server_steps, steps
from slotwise.core import state as st
from slotwise.simulation.measure.measuring import add_up, advance, change_capacity, note_lost
from slotwise.simulation.measure.meter import Meter
from slotwise.simulation.run.agenda import DURATION, LEAF, NONE, THROWN_BACK, Agenda, ends, forget_end, stays
from slotwise.simulation.run.loop import FAULT, MORE_SERVER_EVENTS, SERVER_EVENT, close_event, run_jobs, take_away

JOIN, DRAIN, FAIL = 0, 1, 2
KIND, NUMBER, SERVER_CLASS = 0, 1, 2  # columns of what happens


@kernel
def run(
    s: st.State,
    a: Agenda,
    m: Meter,
    arrive: Any,
    complete: Any,
    tick: Any,
    join: Any,
    leave: Any,
    time: NDArray[np.float64],
    job_type: NDArray[np.int64],
    service: NDArray[np.float64],
    demands: NDArray[np.int64],
    expected: NDArray[np.float64],
    due: NDArray[np.float64],
    happens: NDArray[np.int64],
) -> int:
    """Run as `run_jobs` does, with server events in columns as well: when each is due and what happens."""
    while a.at_server_event < a.n_server_events:
        next_event = due[a.at_server_event]
        what = run_jobs(s, a, m, arrive, complete, tick, time, job_type, service, demands, expected, next_event)
        if what != SERVER_EVENT:
            return what
        row = happens[a.at_server_event]
        a.at_server_event += 1
        happen(s, a, m, row[KIND], row[NUMBER], row[SERVER_CLASS], next_event, arrive, join, leave)
        if s.failed:
            return FAULT
    return MORE_SERVER_EVENTS


@kernel
def happen(
    s: st.State, a: Agenda, m: Meter, kind: int, server: int, c: int, now: float, arrive: Any, join: Any, leave: Any
) -> None:
    """Let time pass until `now`, when the event happens."""
    advance(s, a, m, now)
    add_up(s, m, now)
    s.now = now
    server_event(s, a, m, kind, server, c, now, arrive, join, leave)
    close_event(s, a, m, now, NONE, False)


@kernel
def server_event(
    s: st.State, a: Agenda, m: Meter, kind: int, server: int, c: int, now: float, arrive: Any, join: Any, leave: Any
) -> None:
    """Let a server join, drain or fail. An absent server cannot fail, and a present server cannot join."""
    row = st.servers(s)[server]
    steps.begin(s)
    if kind == JOIN and (row[st.STATUS] == st.ABSENT or (row[st.STATUS] == st.DRAINING and row[st.COUNT] == 0)):
        server_steps.join(s, server, c, join)
        change_capacity(s, m, c, 1, now)
    elif kind == DRAIN and row[st.STATUS] == st.PRESENT:
        server_steps.drain(s, server, leave, arrive)
        if row[st.COUNT] == 0:
            take_away(s, a, m, server)
    elif kind == FAIL and row[st.STATUS] != st.ABSENT:
        change_capacity(s, m, row[st.CLASS], -1, now)
        server_steps.fail(s, server, leave, arrive)
        for n in range(s.n_moved):
            i = st.moved(s)[n]
            leaf = int(stays(a)[i, LEAF])
            note_lost(m, i, now - (ends(a)[a.leaves + leaf, 0] - stays(a)[i, DURATION]))
            forget_end(a, leaf)
            stays(a)[i, THROWN_BACK] = now
