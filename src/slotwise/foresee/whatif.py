"""The next hours as they are and as they would be after a change: queues, waits, starvation, use, each with an interval over the same drawn futures."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import default_rng

from slotwise.errors import InputError
from slotwise.foresee.change import HALF_LIFE, ClusterChange, changed
from slotwise.foresee.correction import LEVELS
from slotwise.foresee.ensemble import Outlook
from slotwise.foresee.history import F8, I8
from slotwise.model.shares import OTHERS
from slotwise.scheduling.situation import Situation
from slotwise.simulation.run.forward import Coming, Course, Forward

HOUR = 3600.0  # seconds
RUNS, FEWEST_RUNS = 24, 6
SERVICE_TIMES = (
    20.0  # the half-life of new shares in mean service times, the least that docs/guides/shares.md advises
)
MOST_ARRIVALS = (
    30_000  # of one run; where more come, the window ends earlier. 200,000 took longer than callers wait
)


def what_if(
    outlook: Outlook,
    change: ClusterChange,
    *,
    hours: float = 4.0,
    tenants: Mapping[int, str] | None = None,
    runs: int = RUNS,
    budget: float = float("inf"),
    seed: int = 1,
) -> dict[str, Any]:
    """Run the situation and the changed one into the same futures; `tenants` are the names of owners. `hours` in the answer are fewer where too many jobs would come."""
    _check_tenants(outlook.situation, change, tenants or {})
    mean = outlook.services.mean
    then = changed(outlook.situation, change, SERVICE_TIMES * mean if np.isfinite(mean) else HALF_LIFE)
    forward = Forward(then)
    names = [one.name for one in outlook.situation.types]
    retype = _Retype(outlook.situation, then, {name: number for number, name in (tenants or {}).items()})
    factor = np.array([change.rate.get(name, 1.0) for name in outlook.history.types])
    place = {job: at for at, job in enumerate(outlook.jobs)}
    order = np.array([place[job] for job in (*then.waiting.job, *then.running.job)], np.int64)
    began, now_rows, then_rows = time.monotonic(), [], []
    until = _window(outlook, hours * HOUR, factor, seed)
    for n in range(runs):
        key = seed * 20_011 + n
        rng = default_rng([key, 31])
        durations = outlook.durations(rng)
        coming = outlook.coming(until, default_rng([key, 32]))[0]
        other = outlook.coming(until, default_rng([key, 32]), factor)[0] if change.rate else coming
        as_now = outlook.forward.run(durations, coming, until, to_the_end=True)
        other = retype.coming(outlook, other)
        as_then = forward.run(durations[order], other, until, to_the_end=True)
        now_rows.append(_measured(outlook, outlook.situation, as_now, coming, until, names, tenants))
        then_rows.append(_measured(outlook, then, as_then, other, until, names, tenants, retype.base))
        if n + 1 >= FEWEST_RUNS and time.monotonic() - began > budget:
            break
    differences = [
        {"queue": b["queue"]["mean"] - a["queue"]["mean"], "wait": b["wait"] - a["wait"]}
        for a, b in zip(now_rows, then_rows, strict=True)
    ]
    return {
        "as_of": outlook.situation.now,
        "hours": until / HOUR,
        "runs": len(now_rows),
        "now": _intervals(now_rows),
        "then": _intervals(then_rows),
        "change": _intervals(differences),
        "reason": None,
    }


def _window(outlook: Outlook, until: float, factor: F8, seed: int) -> float:
    """Return the end of the window: `until`, or earlier where more than MOST_ARRIVALS jobs would come."""
    drawn, reached = outlook.coming(until, default_rng([seed, 35]), np.maximum(factor, 1.0), MOST_ARRIVALS)
    return min(reached, float(drawn.time[MOST_ARRIVALS])) if len(drawn.time) > MOST_ARRIVALS else reached


def _check_tenants(situation: Situation, change: ClusterChange, tenants: Mapping[int, str]) -> None:
    known = {*tenants.values(), *([] if situation.shares is None else situation.shares.names), OTHERS}
    known |= {one.tenant for one in situation.types if one.tenant is not None}
    for name in change.share:
        if name not in known:
            raise InputError(
                f"no tenant is called {name!r}", where="share", remedy="name a tenant that has had jobs"
            )


class _Retype:
    """Types of the changed situation: jobs that arrive for a tenant that gets a share are of the tenant's own types."""

    def __init__(self, now: Situation, then: Situation, owners: Mapping[str, int]) -> None:
        place = {one.name: at for at, one in enumerate(now.types)}
        self.base = np.arange(len(then.types))
        """the type of now that each type stands for"""
        self._own: list[tuple[int, int, int]] = []
        for at, one in enumerate(then.types):
            if one.name not in place:
                self.base[at] = place[one.name.removeprefix(f"{one.tenant}/")]
                self._own.append((owners.get(one.tenant or "", -2), int(self.base[at]), at))

    def coming(self, outlook: Outlook, coming: Coming) -> Coming:
        """Return the arrivals with their types after the change."""
        if not self._own or coming.row is None:
            return coming
        owner, kind = outlook.history.owner[coming.row], coming.type.copy()
        for number, base, own in self._own:
            kind[(owner == number) & (coming.type == base)] = own
        return replace(coming, type=kind)


def _measured(
    outlook: Outlook,
    situation: Situation,
    course: Course,
    coming: Coming,
    until: float,
    names: list[str],
    tenants: Mapping[int, str] | None,
    base: I8 | None = None,
) -> dict[str, Any]:
    """Return the figures of one run, over the jobs that wait at its beginning or come later. A job that still waits at its end counts with its wait so far:
    left out, it would make a change look good that starves a queue."""
    jobs = [*situation.waiting.job, *situation.running.job]
    place = {job: at for at, job in enumerate(outlook.jobs)}
    first = np.array([place[job] for job in jobs], np.int64)
    n = len(jobs)
    waits = np.concatenate([first < outlook.n_waiting, np.ones(len(course.start) - n, np.bool_)])
    rows = coming.row if coming.row is not None else np.zeros(0, np.int64)
    came = len(course.start) - n
    owner = np.concatenate([outlook.owner[first], outlook.history.owner[rows[:came]]])
    start = np.where(np.isnan(course.start), np.inf, course.start)
    arrival, kind = course.arrival, course.type if base is None else base[course.type]
    began = np.minimum(np.maximum(start, 0.0), until)
    queueing = np.where(waits, np.maximum(began - np.clip(arrival, 0.0, until), 0.0), 0.0)
    in_window = waits & (start <= until)
    waited = np.minimum(start, until) - arrival
    still = waits & (start > until)
    result: dict[str, Any] = {
        "queue": {"mean": float(queueing.sum() / until), "end": float(still.sum())},
        "wait": _mean(waited[waits]),
        "types": {},
        "tenants": {},
        "starved": float((still & (arrival <= 0.0)).sum()),
        "utilisation": _use(outlook, situation, course, coming, until),
        "headroom": _headroom(outlook, situation, coming, until),
    }
    for at, name in enumerate(names):
        own = kind == at
        result["types"][name] = _of_group(own, queueing, in_window, waits, waited, until)
    for number in np.unique(owner[waits]).tolist():
        name = (tenants or {}).get(number, str(number) if number >= 0 else "unknown")
        result["tenants"][name] = _of_group(owner == number, queueing, in_window, waits, waited, until)
    return result


def _of_group(own: Any, queueing: F8, in_window: Any, waits: Any, waited: F8, until: float) -> dict[str, float]:
    return {
        "queue": float(queueing[own].sum() / until),
        "wait": _mean(waited[own & waits]),
        "longest": float(waited[own & waits].max(initial=0.0)),
        "starts": float((own & in_window).sum()),
    }


def _mean(values: F8) -> float:
    return float(values.mean()) if len(values) else 0.0


def _capacity(situation: Situation) -> F8:
    total = np.zeros(len(situation.resources))
    for c, status in zip(situation.servers.server_class, situation.servers.status, strict=True):
        if status == "present":
            total += np.array([float(x) for x in situation.classes[c].capacity])
    return np.maximum(total, 1e-300)


def demands_of(situation: Situation, kinds: I8, own: list[list[int]] | None) -> F8:
    """Return what jobs demand of each resource: their own demand, or their type's."""
    sizes = np.array([[float(x) for x in one.demand] for one in situation.types]).reshape(
        -1, len(situation.resources)
    )
    if own is None:
        return np.asarray(sizes[kinds])
    return np.asarray(np.array(own, np.float64) / 10.0 ** np.array(situation.digits)).reshape(
        -1, len(situation.resources)
    )


def _coming_demand(situation: Situation, coming: Coming) -> F8:
    if coming.demand is None:
        return demands_of(situation, coming.type, None)
    return np.asarray(coming.demand / 10.0 ** np.array(situation.digits))


def _use(outlook: Outlook, situation: Situation, course: Course, coming: Coming, until: float) -> dict[str, float]:
    """Return the share of each resource that jobs hold, on average over the window."""
    waiting, running = situation.waiting, situation.running
    held = np.concatenate([
        demands_of(situation, np.array(waiting.type, np.int64), waiting.demand),
        demands_of(situation, np.array(running.type, np.int64), running.demand),
        _coming_demand(situation, coming),
    ])[: len(course.start)]  # fmt: skip
    begin = np.clip(np.where(np.isnan(course.start), until, course.start), 0.0, until)
    end = np.clip(np.where(np.isnan(course.start), until, course.start) + course.duration, 0.0, until)
    share = (held * (end - begin)[:, None]).sum(axis=0) / until / _capacity(situation)
    return {name: float(share[r]) for r, name in enumerate(situation.resources)}


def _headroom(outlook: Outlook, situation: Situation, coming: Coming, until: float) -> float:
    """Return the share of the scarcest resource that the work that comes in the window does not need."""
    work = (_coming_demand(situation, coming) * coming.duration[:, None]).sum(axis=0)
    return float(1.0 - (work / until / _capacity(situation)).max())


def _intervals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return quantiles over the runs of every figure."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(key for row in rows for key in row):
        values = [row.get(name, {} if isinstance(rows[0].get(name), dict) else 0.0) for row in rows]
        if isinstance(values[0], dict):
            filled = [value or _zero(values) for value in values]
            found[name] = _intervals(filled)
        else:
            p10, p50, p90 = np.quantile(np.array(values, np.float64), LEVELS)
            found[name] = {"p10": float(p10), "p50": float(p50), "p90": float(p90)}
    return found


def _zero(values: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a row of zeros in the form of the first row that has figures."""
    form = next((value for value in values if value), {})
    return {name: 0.0 if not isinstance(value, dict) else _zero([value]) for name, value in form.items()}
