"""Where `guarded` knows that no head of line fits anywhere, none does: what lets a completion look at its own server alone."""

from __future__ import annotations

import random

import numpy as np
import pytest
from instances import ALL_EVENTS, Events, perform, random_instance, still_waiting

from slotwise.compiler.kernel import JIT
from slotwise.core.state import CLASS, MODE, PRESENT, STALLED, STATUS
from slotwise.policies.guarded import floors, memory
from slotwise.scheduling import Scheduler, make_policy

pytestmark = pytest.mark.core

RUNS, LENGTH = (40, 80) if JIT else (5, 50)


@pytest.mark.parametrize("actual", [0.0, 0.2], ids=["as types", "less than types"])
@pytest.mark.parametrize("options", [{}, {"beta": 0.97, "stall_cap": 1.0, "floor": 4.0, "standing": 4.0}], ids=str)
def test_no_head_of_line_fits_anywhere(options: dict[str, float], actual: float) -> None:
    """Mostly arrivals and completions, now and then something else, after which it is known again when the queue has been empty."""
    settled = 0
    for seed in range(RUNS):
        rng = random.Random(f"settled {seed}")
        instance = random_instance(rng)
        scheduler = Scheduler(instance.cluster, instance.types, make_policy("guarded", **options), seed=seed)
        weights = dict.fromkeys(ALL_EVENTS, 0.2) | {"submit": rng.choice([40, 55]), "complete": 40}
        events, waiting = Events(rng, instance, actual=actual, weights=weights), []
        for _ in range(LENGTH):
            event = events.next(scheduler, waiting)
            placements, requeued = perform(scheduler, event)
            waiting = still_waiting(waiting, event, placements, requeued)
            if scheduler._store.arrays["policy_ints"][memory.SETTLED]:
                settled += bool(waiting)
                nobody_fits(scheduler)
    assert settled > RUNS, "hardly ever known"


def nobody_fits(scheduler: Scheduler) -> None:
    """On no server that packs is room for a job of a type of which somebody waits, and no slot is kept for one."""
    store = scheduler._store
    rows, free = store.arrays["servers"], store.arrays["free"]
    packs = np.flatnonzero((rows[:, STATUS] == PRESENT) & (rows[:, MODE] != STALLED))
    for j in np.flatnonzero(store.arrays["queue_length"]):
        allowed = store.arrays["allowed"][rows[packs, CLASS], j] > 0
        assert not (allowed & (free[packs] >= store.sizes.demand[j]).all(axis=1)).any()
        assert floors.holders(scheduler._state)[j] == 0
