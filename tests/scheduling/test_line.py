"""The tree of waiting jobs finds what a look at every one of them finds, while jobs come, start and are withdrawn."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from slotwise.compiler.kernel import JIT
from slotwise.core.indexes import line
from slotwise.model import Cluster, JobType, ServerClass
from slotwise.scheduling import Scheduler

pytestmark = pytest.mark.core

STEPS = 600 if JIT else 150


@pytest.mark.parametrize("resources", [1, 2, 3, 4])
@pytest.mark.parametrize("spread", [3, 1000], ids=["many alike", "no two alike"])
def test_a_search_finds_what_a_look_at_all_finds(resources: int, spread: int) -> None:
    rng = random.Random(f"{resources} {spread}")
    names = tuple(f"r{r}" for r in range(resources))
    whole = [rng.randint(500, 2000) for _ in names]
    types = [JobType(name=f"t{j}", demand=tuple(whole)) for j in range(3)]
    servers = (ServerClass(name="s", count=0, capacity=tuple(whole)),)
    scheduler = Scheduler(Cluster(resources=names, servers=servers), types, "best-fit")
    s, waiting = scheduler._state, {}
    for step in range(STEPS):
        if waiting and rng.random() < 0.45:
            name = rng.choice([*waiting])
            del waiting[name]
            scheduler.cancel(name)
        else:
            size = [max(1, w * rng.randint(1, spread) // spread) for w in whole]
            waiting[step] = size
            scheduler.submit(step, f"t{rng.randrange(3)}", demand=dict(zip(names, size, strict=True)))
        room = np.array([rng.randint(0, w) for w in whole])
        fitting = [name for name, size in waiting.items() if all(np.array(size) <= room)]
        assert found(scheduler, line.oldest(s, room, 0)) == min(fitting, default=None)

        def share(name: int) -> tuple[float, float, int]:
            parts = [a / b for a, b in zip(waiting[name], whole, strict=True)]
            return max(parts), sum(parts), -name

        def dot(name: int, room: Any = room) -> tuple[float, int]:
            return sum((a / b) * (f / b) for a, b, f in zip(waiting[name], whole, room, strict=True)), -name

        assert found(scheduler, line.largest(s, room, 0, line.BY_SHARE)) == max(fitting, key=share, default=None)
        assert found(scheduler, line.largest(s, room, 0, line.BY_DOT)) == max(fitting, key=dot, default=None)
        assert found(scheduler, line.first_in_line(s)) == min(waiting, default=None)
    assert s.n_line_used < 2 * s.max_jobs


def found(scheduler: Scheduler, i: int) -> object:
    return scheduler._register.job_of[int(i)] if i >= 0 else None


@pytest.mark.skipif(not JIT, reason="very many jobs")
def test_a_search_among_very_many_looks_at_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """50,000 jobs, no two alike; what asks for little of the one resource asks for much of the other, so hardly any fits, and minima of
    the two alone would say nothing."""
    n, capacity = 50_000, 1_000_000
    servers = (ServerClass(name="s", count=0, capacity=(capacity, capacity)),)
    types = [JobType(name="t", demand=(capacity, capacity))]
    scheduler = Scheduler(Cluster(resources=("a", "b"), servers=servers), types, "first-fit")
    rng = np.random.default_rng(1)
    a = rng.integers(1, capacity, n)
    b = np.clip(capacity - a + rng.integers(-1000, 1000, n), 1, capacity)
    for i in range(n):
        scheduler.submit(i, "t", demand={"a": int(a[i]), "b": int(b[i])})
    s, push, steps = scheduler._state, line._push, 0

    def counted(*arguments: Any) -> Any:
        nonlocal steps
        steps += 1
        return push(*arguments)

    monkeypatch.setattr(line, "_push", counted)
    for share in (0.1, 0.3, 0.499, 0.5, 0.501, 0.9):
        steps, room = 0, np.array([int(share * capacity), int(share * capacity)])
        fitting = np.flatnonzero((a <= room[0]) & (b <= room[1]))
        search: Any = line.oldest
        assert found(scheduler, search.py_func(s, room, 0)) == (int(fitting[0]) if len(fitting) else None)
        assert steps < 300, f"{steps} nodes of {n} jobs were looked into for {share}"
