"""Hashes of every figure and every decision: `make pins` (`python tests/pins.py`) compares them with tests/pins.json.

A change that is meant to leave results alone must leave every row alone. A row is named `POLICY | KIND | CASE`:

- `figures`: every figure of two seeds of a shipped scenario, from each field of each replication to the printed JSON;
- `report`: the data beside the report page of one seed;
- `decisions`: all placements of random event lists, with the options in the case;
- `situation`: the JSON text of the situation after each list.

The rows of `capacity` and `plan` belong to no policy. `--write` replaces the file; `--policy NAME` restricts the rows, and so does `--kind`. The hashes hold
for Linux on x86-64 with AVX2: OpenBLAS and NumPy are kept from newer instructions (`PORTABLE`), which add sums in another order and would
make the rows those of one processor. Another C library may still round a logarithm differently.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
FILE = HERE / "pins.json"
SEEDS = (1, 2)
EVENTS = 6_000  # per replication of a scenario with rates: every policy stalls, drains or backfills within them
JOBS = 3_000  # per replication of a scenario with a trace
LISTS, LENGTH = 6, 120  # random event lists per variant of a policy, and events of a list
NEEDS_ONE_RESOURCE = ("vqs", "vqs-bf")
# For the processes that work out rows. On an AVX-512 machine the last bits of means would differ without it.
PORTABLE = {"OPENBLAS_CORETYPE": "Haswell", "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR"}
WORDS = {"why", "events_per_second", "setup_seconds", "seconds", "setup"}  # sentences and times: no results


def digest(value: Any) -> str:
    """Return a short hash of plain values; floats count to the last bit."""
    return hashlib.sha256(json.dumps(_plain(value), sort_keys=True).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items() if key not in WORDS}
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(item) for item in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, np.generic):
        return _plain(value.item())
    return value.hex() if isinstance(value, float) else value if isinstance(value, int | None) else str(value)


def rows_of(policy: str, kinds: Sequence[str] | None = None) -> dict[str, str]:
    """Return the rows of one policy, or those of no policy for "capacity" and "plan"."""
    sys.path.insert(0, str(HERE / "scheduling"))  # instances and variants
    if policy in ("capacity", "plan"):
        return dict(_capacities() if policy == "capacity" else _plans())
    asked = set(kinds or ("figures", "report", "decisions", "situation"))
    found = dict(_figures(policy)) if asked & {"figures", "report"} else {}
    found |= dict(_decisions(policy)) if asked & {"decisions", "situation"} else {}
    return {row: pin for row, pin in found.items() if _is_wanted(row, [policy], kinds)}


def _is_wanted(row: str, policies: Sequence[str], kinds: Sequence[str] | None) -> bool:
    policy, kind, _ = row.split(" | ")
    return policy in policies and (not kinds or kind in kinds)


def _figures(policy: str) -> Iterator[tuple[str, str]]:
    import slotwise
    from slotwise.report.comparison import comparison_page
    from slotwise.simulation.result import Comparison

    for name in slotwise.shipped_scenarios():
        for seed in SEEDS:
            case = f"{name} seed {seed}"
            scenario = slotwise.load_scenario(name, [f"run.seed={seed}"])
            size = "jobs" if scenario.workload.trace else "events"
            changes = {f"run.{size}": JOBS if size == "jobs" else EVENTS, "run.replications": 2}
            try:
                result = slotwise.simulate(scenario, policy, overrides=changes, workers=1)
            except slotwise.InputError as refused:
                yield f"{policy} | figures | {case}", f"refused at {refused.where}"
                continue
            yield f"{policy} | figures | {case}", digest([result.as_dict(), [vars(run) for run in result.runs]])
            if seed == SEEDS[0]:
                data = comparison_page(Comparison((result,))).data
                told = {key: frame.to_dict(as_series=False) for key, frame in data.items()}
                yield f"{policy} | report | {case}", digest(told)


def _decisions(policy: str) -> Iterator[tuple[str, str]]:
    from instances import ALL_EVENTS, Events, random_instance, still_waiting
    from variants import VARIANTS, label

    from slotwise.scheduling import Scheduler, as_dict, make_policy

    for name, options in VARIANTS:
        if name != policy:
            continue
        decided, situations = [], []
        for seed in range(LISTS):
            rng = random.Random(f"pins {name} {seed}")
            alone = name in NEEDS_ONE_RESOURCE
            instance = random_instance(rng, n_resources=1 if alone else None, alike=alone)
            made = make_policy(name, **options)
            scheduler = Scheduler(instance.cluster, instance.types, made, seed=seed, digits=rng.choice([0, 2]))
            weights = ALL_EVENTS | {"submit": 55, "tick": 30 if scheduler.tick_rate > 0 else 0}
            events = Events(rng, instance, weights=weights, durations=made.needs_durations)
            waiting: list[Any] = []
            for _ in range(LENGTH):
                event = events.next(scheduler, waiting)
                outcome = scheduler.apply(event)
                decided.append([as_dict(event), outcome.placements, outcome.requeued])
                placed = [(one.job, one.server) for one in outcome.placements]
                waiting = still_waiting(waiting, event, placed, list(outcome.requeued))
            situations.append(json.loads(scheduler.situation().to_json()))
        case = label((name, options))
        yield f"{policy} | decisions | {case}", digest(decided)
        yield f"{policy} | situation | {case}", digest(situations)


def _capacities() -> Iterator[tuple[str, str]]:
    import slotwise

    for name in slotwise.shipped_scenarios():
        found = slotwise.capacity(name)
        region = [found.region.intensity, found.region.lower, found.region.prices, found.region.rho]
        told = [
            region,
            [vars(one) for one in found.headroom],
            vars(found.bound),
            found.by_type().to_dict(as_series=False),
        ]
        yield f"capacity | figures | {name}", digest(told)


def _plans() -> Iterator[tuple[str, str]]:
    import slotwise

    for policy in ("best-fit", "algorithm1"):
        found = slotwise.plan("table1", {"mean_wait": 0.5}, policy=policy, overrides={"run.events": EVENTS})
        yield f"plan | figures | table1 {policy}", digest(found.as_dict())


def names() -> list[str]:
    """Return the policies, and what else has rows."""
    from slotwise.scheduling import POLICIES

    return [*POLICIES, "capacity", "plan"]


def main() -> None:
    """Compare, or write."""
    parser = argparse.ArgumentParser(description="compare every figure and decision with tests/pins.json")
    parser.add_argument("--write", action="store_true", help="replace the rows instead of comparing them")
    parser.add_argument("--check", action="store_true", help="compare; this is the default")
    parser.add_argument("--policy", action="append", help="only the rows of this policy; may be repeated")
    parser.add_argument(
        "--kind", action="append", help="only rows of this kind, such as decisions; may be repeated"
    )
    parser.add_argument("--workers", type=int, default=2)
    chosen = parser.parse_args()
    wanted = chosen.policy or names()
    known: dict[str, str] = json.loads(FILE.read_text()) if FILE.exists() else {}
    found: dict[str, str] = {}
    os.environ.update(PORTABLE)
    with ProcessPoolExecutor(chosen.workers, mp_context=get_context("spawn")) as pool:
        for rows in pool.map(partial(rows_of, kinds=chosen.kind), wanted):
            found |= rows
    mine = {row: pin for row, pin in known.items() if _is_wanted(row, wanted, chosen.kind)}
    if chosen.write:
        rest = {row: pin for row, pin in known.items() if row not in mine}
        FILE.write_text(json.dumps(dict(sorted((rest | found).items())), indent=1) + "\n")
        print(f"{len(found)} rows written to {FILE.relative_to(HERE.parent)}")
        return
    differ = sorted(row for row in mine.keys() | found.keys() if mine.get(row) != found.get(row))
    for row in differ:
        print(f"{row}: {mine.get(row, 'no row')} is now {found.get(row, 'no row')}")
    print(f"{len(found) - len(set(differ) & set(found))} of {len(found)} rows unchanged")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
