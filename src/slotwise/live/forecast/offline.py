"""Forecasts without a service: from a store (its journal), or from a situation that was saved."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from slotwise.errors import InputError
from slotwise.foresee.ensemble import Outlook, ensemble
from slotwise.foresee.fragments import advice
from slotwise.foresee.history import History, empty
from slotwise.foresee.whatif import what_if
from slotwise.live.forecast.foreseer import PROBE, RUNS, Foreseer
from slotwise.live.forecast.worker import answer, change_of
from slotwise.live.store import existing_store
from slotwise.live.store.protocol import Store
from slotwise.scheduling import Scheduler
from slotwise.scheduling.events import Submit
from slotwise.scheduling.situation import Situation

DRAWN = 4_000  # jobs of the history that is drawn from the types' rates and mean service times


def ask(source: str, request: dict[str, Any]) -> dict[str, Any]:
    """Answer a request from a store (a URL or a SQLite file) or from a file with a situation."""
    path = Path(source)
    if "://" not in source and not path.is_file():
        raise InputError("is not there", where=source, remedy="give a store, or a file with a situation")
    if "://" not in source and path.read_bytes()[:1] == b"{":
        return _of_situation(Situation.from_json(path.read_bytes()), request)
    url = source if "://" in source else f"sqlite:///{path}"
    with closing(existing_store(url)) as store:
        return answer(Foreseer(store, clock=lambda: _last(store)), request)


def _last(store: Store) -> float:
    """Return the time of the newest row: a store that nothing writes to stands still."""
    last = store.last_entry()
    return 0.0 if last is None else last.time


def drawn_history(situation: Situation, seed: int = 1) -> History:
    """Return a past in which jobs came and ran as the types' rates and mean service times say; empty where types have no rates."""
    names = [one.name for one in situation.types]
    rates = np.array([one.rate or 0.0 for one in situation.types])
    if not rates.sum() > 0:
        return empty(names)
    rng = np.random.default_rng([seed, 33])
    gaps = rng.exponential(1.0 / rates.sum(), DRAWN)
    submitted = situation.now - np.cumsum(gaps)[::-1]
    kinds = rng.choice(len(rates), DRAWN, p=rates / rates.sum())
    durations = rng.exponential(1.0, DRAWN) * np.array([one.mean_service for one in situation.types])[kinds]
    durations = np.minimum(durations, situation.now - submitted)
    return History(
        tuple(names), submitted, submitted, submitted + durations, np.ones(DRAWN, np.bool_), kinds.astype(np.int64),
        np.full(DRAWN, -1, np.int64), np.full(DRAWN, np.nan),
    )  # fmt: skip


def _of_situation(situation: Situation, request: dict[str, Any]) -> dict[str, Any]:
    history = drawn_history(situation)
    nothing = {"p10": None, "p50": None, "p90": None, "coverage": None, "of": 0, "as_of": situation.now}
    reason = None
    if not len(history):
        reason = "not known: the situation's types have no rates, and no history comes with it; give a store"
    kind = request["kind"]
    job: Any = request.get("job")
    if kind == "needs":
        if request.get("type") is None:
            raise InputError("is missing", where="--type", remedy="a situation needs a type: " + ", ".join(t.name for t in situation.types))  # fmt: skip
        core = Scheduler.from_situation(situation)
        outcome = core.apply(Submit(PROBE, request["type"], situation.now, None, request.get("time")))
        if any(one.job == PROBE for one in outcome.placements):
            return nothing | {"p10": 0.0, "p50": 0.0, "p90": 0.0, "reason": None}
        situation, job = core.situation(), PROBE
    if reason is not None:
        return nothing | {"now": None, "then": None, "servers": [], "drains": [], "reason": reason}
    outlook = Outlook(situation, history)
    if kind == "whatif":
        return what_if(outlook, change_of(request), hours=float(request.get("hours", 4.0)))
    if kind == "advice":
        return advice(outlook, ensemble(outlook, RUNS).ends)
    waiting = situation.waiting.job
    name = job if job in waiting else str(job)
    if name not in waiting:
        return nothing | {"reason": f"job {job} does not wait in this situation"}
    at = np.array([waiting.index(name)])
    starts = ensemble(outlook, RUNS, watched=at).starts[:, at[0]]
    levels = np.quantile(starts, (0.1, 0.5, 0.9))
    return (
        nothing | {name: float(x) for name, x in zip(("p10", "p50", "p90"), levels, strict=True)} | {"reason": None}
    )
