"""Why a job runs or waits, what a server does: what is common to all policies; the rest each policy says itself."""

from __future__ import annotations

from collections.abc import Hashable

from slotwise.core import sharing
from slotwise.core import state as st
from slotwise.core.contract.reasons import Because, Explanation, Reason
from slotwise.core.contract.view import View

LITTLE = 0.01  # a factor this near to 1 decides nothing


def explain_job(view: View, name: Hashable, i: int) -> Explanation:
    """Return why job i runs or waits."""
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
        because += _above_share(view, i)
    return Explanation(name, tuple(because))


def _above_share(view: View, i: int) -> list[Because]:
    """Say that the tenant of a waiting job is above its share, if shares are why the job waits."""
    store = view.store
    if not store.state.n_tenants:
        return []
    t, rows = int(store.arrays["tenant_of"][view.type_of(i)]), store.arrays["tenants"]
    if rows[t, sharing.FACTOR] > 1.0 - LITTLE:
        return []
    used = float(rows[t, sharing.USE] / rows[:, sharing.USE].sum())
    return [Because(Reason.ABOVE_SHARE, {"tenant": store.tenants[t], "used": used})]


def _held_by_none(view: View, i: int) -> Because:
    j = view.type_of(i)
    present = view.store.present_classes()
    if not view.store.allowed[present, j].any():
        return Because(Reason.REQUIRES, {"type": view.types[j].name})
    return Because(Reason.FITS_NO_SERVER, {"demand": view.sizes(view.demand(i))})


def explain_server(view: View, name: Hashable, server: int) -> Explanation:
    """Return what the server does, and why."""
    row = view.store.arrays["servers"][server]
    if row[st.STATUS] == st.PRESENT:
        return Explanation(name, view.store.policy.describe(view, server))
    if row[st.STATUS] == st.ABSENT:
        return Explanation(name, (Because(Reason.GONE),))
    if row[st.COUNT] > 0:
        return Explanation(name, (Because(Reason.DRAINING, {"holding": view.holding(server)}),))
    return Explanation(name, (Because(Reason.DRAINED),))
