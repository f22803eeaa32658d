"""Mean queues close to the edge of the capacity region, with the paper's beta and with one that tends to 1.

`python -m benchmarks.hysteresis [--events N] [--write PAGE]`. The paper's beta tends to b = 0.9, so that loads above 0.9 are not proven for it.
The sublinear beta of `algorithm1` and the margin of `guarded` are proven for all loads below 1 (docs/theory/guarded.md).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import slotwise

LOADS = (0.97, 0.99, 0.995)
EVENTS = 3_000_000
SETTINGS = {
    "algorithm1, b = 0.9": ("algorithm1", {"b": 0.9}),
    "algorithm1, b = 0.98": ("algorithm1", {"b": 0.98}),
    "algorithm1, sublinear": ("algorithm1", {"hysteresis": "sublinear"}),
    "guarded": ("guarded", {}),
}


def scenarios(load: float, events: int) -> Iterator[tuple[str, slotwise.Scenario]]:
    """Example 1, a cluster on which best-fit fails, and Table 1."""
    run = [f"workload.intensity={load}", f"run.events={events}", "run.replications=2"]
    yield "example 1", slotwise.load_scenario("example1", run)
    yield "capacity 10, demands 5 and 2", slotwise.load_scenario("best-fit-trap", run)
    yield "Table 1", slotwise.load_scenario("table1", run)


def rows(events: int) -> Iterator[str]:
    """A table for Markdown."""
    yield "| scenario | load | " + " | ".join(SETTINGS) + " |"
    yield "|---|---|" + "---|" * len(SETTINGS)
    for load in LOADS:
        for name, scenario in scenarios(load, events):
            cells = []
            for policy, options in SETTINGS.values():
                queue = slotwise.simulate(scenario, policy, **options).mean_queue
                cells.append(f"{queue.mean:,.0f}")
            yield f"| {name} | {load} | " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hysteresis", description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--write", type=Path, help="put the table behind the page's heading")
    given = parser.parse_args()
    lines = []
    for line in rows(given.events):
        print(line, flush=True)
        lines.append(line)
    if given.write:
        text = given.write.read_text().partition("\n| ")[0].rstrip()
        given.write.write_text(text + "\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
