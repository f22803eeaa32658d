"""`python -m benchmarks.policies.ablation`: what each rule of `guarded` is worth, by taking the rule away.

Each variant is a copy of the source with one edit. The mean queue of the variant stands beside that of the policy as it is: the geometric mean over the scenarios
of a family, and the worst. Values above 1 speak for the rule. One run of each scenario, logs at one load a point: differences of a few percent are noise.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.policies import reality, tables
from benchmarks.policies.families import mixed_services, pool
from benchmarks.policies.suite import Entry, laws, random_scenario, traps

ROOT = Path(__file__).resolve().parents[2]
GUARDED = "src/slotwise/policies/guarded"
EVENTS = 300_000
SEED = 7
LEAST_QUEUE = 1.0  # jobs; scenarios with shorter queues say nothing
LOADS = (0.80, 0.90)
# seeds that are in no part of the suite
POOLS, MIXED, RANDOM = range(440, 456), range(440, 460), range(5_000, 5_012)


class Variant(NamedTuple):
    """A rule that is taken away: in this file of the policy, a text that stands there once becomes another."""

    name: str
    file: str = ""
    old: str = ""
    new: str = ""


VARIANTS = (
    Variant("as it is"),
    Variant("no ages in the weights", "weights.py", "AGE = 0.004", "AGE = 0.0"),
    Variant("no tightness", "policy.py", "    tightness: float = Field(\n        40.0,", "    tightness: float = Field(\n        0.0,"),
    Variant(
        "sizes are shares of a server",
        "policy.py",
        "effective_sizes(store.sizes.capacity, store.sizes.demand, store.allowed)",
        "np.maximum(store.sizes.demand @ (1.0 / (largest * len(largest))), 1e-9)",
    ),
    Variant("one refill, heaviest type first", "refill.py", "range(ORDERS if m > 1 else m)", "range(BY_WEIGHT, BY_WEIGHT + 1)"),
    Variant("placement by best fit", "placement.py", "if winner < 0 or s.n_places == 1:", "if s.n_places > 0:"),
    Variant("no turns", "rules.py", "if size_per_time(s) == 0.0:", "if s.n_types > 0:"),
    Variant("no spacing of turns", "rules.py", "    if 2.0 * since < margin:\n", "    if since < 0.0:\n"),
    Variant("a target is not kept", "rules.py", "    if more == 0:\n", "    if more >= 0:\n"),
    Variant("margin without the way back", "margin.py", "    return longest * harmonic(n)\n\n\n@kernel\ndef least", "    return 0.0 * harmonic(n)\n\n\n@kernel\ndef least"),
    Variant("margin without turning servers", "margin.py", "(1.0 + s.n_stalled)", "1.0"),
    Variant("margin without what turns took", "margin.py", "MOST_CORRECTION = 100.0", "MOST_CORRECTION = 1.0"),
    Variant("estimates: no reservations", "overdue.py", "\nBUDGET = 0.02", "\nBUDGET = -1.0"),
    Variant("estimates: no trust", "overdue.py", "BUDGET * trust(s) ** 2", "BUDGET"),
)  # fmt: skip


def scenarios() -> Iterator[Entry]:
    """Yield what every variant is run on: made-up scenarios that nothing was tuned on but the traps, and logs."""
    yield from traps()
    yield from laws()
    for family, make, seeds in (
        ("pools", pool, POOLS),
        ("mixed", mixed_services, MIXED),
        ("random", random_scenario, RANDOM),
    ):
        for seed in seeds:
            yield Entry(f"{family}-{seed}", partial(make, seed), family)
    for name in reality.MACHINES:
        if reality.is_there(name):
            for load in LOADS:
                for family in ("logs", "logs, estimates"):
                    yield Entry(f"{name}-{load}", partial(reality.at_load, name, load), family)


def queues() -> dict[str, float]:
    """Return the mean queue of each scenario under the `guarded` that this process imports."""
    import slotwise

    found = {}
    for entry in scenarios():
        made = entry.make()
        options = {} if entry.family == "logs, estimates" else {"durations": "none"}
        overrides = {"run.replications": 1, "run.seed": SEED}
        if made.workload.trace is None:
            overrides["run.events"] = EVENTS
        found[f"{entry.family}|{entry.name}"] = slotwise.simulate(
            made, "guarded", overrides=overrides, **options
        ).mean_queue.mean
    return found


def run(variant: Variant) -> dict[str, float]:
    """Run a variant in a process of its own, from a copy of the source."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        if variant.file:
            path = Path(folder) / GUARDED / variant.file
            text = path.read_text()
            assert text.count(variant.old) == 1, f"{variant.name}: {variant.file} has changed"
            path.write_text(text.replace(variant.old, variant.new))
        environment = os.environ | {"PYTHONPATH": f"{copy}{os.pathsep}{ROOT}"}
        command = [sys.executable, "-m", "benchmarks.policies.ablation", "--worker"]
        done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def beside(these: dict[str, float], base: dict[str, float]) -> dict[str, list[float]]:
    """Return the ratios of the mean queues, by family."""
    ratios: dict[str, list[float]] = {}
    for name, queue in base.items():
        if max(queue, these[name]) >= LEAST_QUEUE:
            ratios.setdefault(name.partition("|")[0], []).append(these[name] / queue)
    return ratios


def main() -> None:
    """Print one row a variant."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policies.ablation", description=__doc__)
    parser.add_argument("--only", default="", help="only variants whose name contains this")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(queues()))
        return
    base = run(VARIANTS[0])
    families = list(beside(base, base))
    rows = [["without", *families, "worst"]]
    for variant in VARIANTS[1:]:
        if arguments.only not in variant.name:
            continue
        ratios = beside(run(variant), base)
        row = [f"{math.exp(sum(map(math.log, ratios[f])) / len(ratios[f])):.2f}" for f in families]
        rows.append([variant.name, *row, f"{max(max(r) for r in ratios.values()):.2f}"])
        print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    print("\n".join(tables.markdown(rows)))


if __name__ == "__main__":
    main()
