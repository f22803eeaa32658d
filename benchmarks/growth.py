"""How the simulator's speed changes with the number of types and of resources (with servers: benchmarks/simulator.py).

200 servers of size 100 in every resource, jobs of random whole sizes from 20 to 60, equal rates, intensity 0.89. Algorithm 1 and guarded
look for max-weight configurations among ever more types; best-fit looks for a server with room, in ever more resources.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import slotwise

POLICIES = ("algorithm1", "guarded", "best-fit")
TYPES = (3, 10, 30, 100)
MORE_TYPES = {"guarded": (300,)}
RESOURCES = (1, 2, 4, 8)
EVENTS = 100_000
TURNS = 2


def scenario(types: int, resources: int, events: int, seed: int) -> slotwise.Scenario:
    """So many types over so many resources."""
    sizes = np.random.default_rng(1).integers(20, 61, (types, resources)).tolist()
    return slotwise.parse_scenario(
        {
            "cluster": {
                "resources": [f"r{i}" for i in range(resources)],
                "servers": [{"name": "server", "count": 200, "capacity": [100] * resources}],
            },
            "types": [
                {"name": f"t{j}", "demand": demand, "rate": 1.0, "mean_service": 1.0}
                for j, demand in enumerate(sizes)
            ],
            "workload": {"intensity": 0.89},
            "run": {"events": events, "replications": 1, "seed": seed},
        }
    )


def speed(policy: str, types: int, resources: int) -> tuple[float, str]:
    """Events a second, the best of some turns, and the solver."""
    best, solver = 0.0, ""
    slotwise.simulate(scenario(types, resources, 1000, 0), policy, workers=1)  # compiles
    for turn in range(TURNS):
        one = slotwise.simulate(scenario(types, resources, EVENTS, turn), policy, workers=1).runs[0]
        best, solver = max(best, one.events / one.seconds), one.solver
    return best, solver


def run() -> list[dict[str, Any]]:
    """Rows of name, value, unit, detail."""
    from slotwise.looks.numbers import rate  # here: `beside` has this module with versions that lack it

    rows = []
    for policy in POLICIES:
        for what, sizes in (
            ("types", [(n, 2) for n in (*TYPES, *MORE_TYPES.get(policy, ()))]),
            ("resources", [(10, n) for n in RESOURCES]),
        ):
            first = 0.0
            for types, resources in sizes:
                found, solver = speed(policy, types, resources)
                first = first or found
                size = types if what == "types" else resources
                rows.append(
                    {
                        "name": f"growth: {policy}, {size} {what if size > 1 else what[:-1]}",
                        "value": found / first,
                        "unit": f"of the speed with {sizes[0][0 if what == 'types' else 1]}",
                        "detail": f"{rate(found)} events/s" + (f"; {solver}" if solver else ""),
                    }
                )
    return rows


if __name__ == "__main__":
    for row in run():
        print(f"{row['name']:40} {row['value']:8.3g} {row['unit']:24} {row['detail']}", flush=True)
