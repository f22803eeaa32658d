"""Follow an arrival and a completion through the source: `python tools/walk.py [--policy NAME]... [--source DIR]`.

Prints, for the median event of a loaded cluster, how many modules take part and how often the walk changes module, then the modules
in the order in which they are entered. The kernels run as Python for this. `--source` measures another tree, such as an older one.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
from pathlib import Path
from typing import Any

os.environ["NUMBA_DISABLE_JIT"] = "1"
EVENTS = 600  # followed, after as many to fill the cluster
LOAD = 0.89  # intensity of table1


class Walk:
    """The modules of one event, in order."""

    def __init__(self, root: str) -> None:
        self.root, self.order, self.changes, self.last = root, [], 0, ""  # type: tuple[str, list[str], int, str]

    def __call__(self, frame: Any, event: str, _: object) -> None:
        if event not in ("call", "return"):
            return
        name = frame.f_code.co_filename
        if not name.startswith(self.root):
            return
        if event == "return":
            back = frame.f_back
            name = back.f_code.co_filename if back is not None else ""
            if not name.startswith(self.root):
                return
        if name != self.last:
            self.changes += self.last != ""
            self.last = name
            if name not in self.order:
                self.order.append(name)


def follow(policy: str, root: str) -> dict[str, list[Walk]]:
    """Return the walks of arrivals and of completions."""
    import slotwise

    scenario = slotwise.load_scenario("table1")
    scheduler = slotwise.Scheduler(scenario.cluster, scenario.types, policy)
    rng, now, number = random.Random(1), 0.0, 0
    rates = [float(job_type.rate or 0.0) for job_type in scenario.types]
    names = [job_type.name for job_type in scenario.types]
    scale = LOAD * 80 / sum(rates)  # about as many jobs in service as 20 servers hold
    walks: dict[str, list[Walk]] = {"arrival": [], "completion": []}
    for n in range(2 * EVENTS):
        running = list(scheduler.running)
        arrives = rng.random() < scale * sum(rates) / (scale * sum(rates) + len(running))
        now += rng.expovariate(scale * sum(rates) + len(running))
        walk = Walk(root)
        if arrives or not running:
            number += 1
            kind = rng.choices(names, rates)[0]
            sys.setprofile(walk)
            scheduler.submit(number, kind, now=now)
        else:
            job = rng.choice(running)
            sys.setprofile(walk)
            scheduler.complete(job, now=now)
        sys.setprofile(None)
        if n >= EVENTS:
            walks["arrival" if arrives or not running else "completion"].append(walk)
    return walks


def main() -> None:
    """Print the counts, and the median walk of each kind."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--policy", action="append", default=[], metavar="NAME")
    parser.add_argument("--source", type=Path, default=Path(__file__).resolve().parents[1] / "src")
    chosen = parser.parse_args()
    chosen.source = chosen.source.resolve()
    sys.path.insert(0, str(chosen.source))
    root = str(chosen.source / "slotwise")
    for policy in chosen.policy or ["guarded"]:
        for kind, walks in follow(policy, root).items():
            modules = statistics.median_low(len(walk.order) for walk in walks)
            changes = statistics.median_low(walk.changes for walk in walks)
            print(f"{policy}, median {kind} of {len(walks)}: {modules} modules, {changes} changes of module")
            median = min((w for w in walks if len(w.order) == modules), key=lambda w: abs(w.changes - changes))
            print("  " + ", ".join(Path(name).relative_to(root).as_posix() for name in median.order))


if __name__ == "__main__":
    main()
