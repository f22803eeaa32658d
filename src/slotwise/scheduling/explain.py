"""Why a job runs or waits, what a server does: what is common to all policies; the rest each policy says itself."""

from __future__ import annotations

from collections.abc import Hashable

from slotwise.core import state as st
from slotwise.core.contract.reasons import Because, Explanation, Reason
from slotwise.core.contract.view import View


def explain_job(view: View, name: Hashable, i: int) -> Explanation:
    """Why job i runs or waits."""
    on = int(view.store.arrays["jobs"][i, st.SERVER])
    if on != st.WAITING:
        return Explanation(name, (Because(Reason.RUNS, {"server": view.server_of[on]}),))
    ahead = view.ahead(i)
    because = [Because(Reason.BEHIND, {"ahead": ahead}) if ahead else Because(Reason.FIRST)]
    if not view.present.any():
        because.append(Because(Reason.NO_SERVERS))
    elif not view.can_hold(i).any():
        because.append(_held_by_none(view, i))
    else:
        because.append(view.store.policy.why_waits(view, i))
    return Explanation(name, tuple(because))


def _held_by_none(view: View, i: int) -> Because:
    j = view.type_of(i)
    present = view.store.present_classes()
    if not view.store.allowed[present, j].any():
        return Because(Reason.REQUIRES, {"type": view.types[j].name})
    return Because(Reason.FITS_NO_SERVER, {"demand": view.sizes(view.demand(i))})


def explain_server(view: View, name: Hashable, server: int) -> Explanation:
    """What the server does, and why."""
    row = view.store.arrays["servers"][server]
    if row[st.STATUS] == st.PRESENT:
        return Explanation(name, view.store.policy.describe(view, server))
    if row[st.STATUS] == st.ABSENT:
        return Explanation(name, (Because(Reason.GONE),))
    if row[st.COUNT] > 0:
        return Explanation(name, (Because(Reason.DRAINING, {"holding": view.holding(server)}),))
    return Explanation(name, (Because(Reason.DRAINED),))
