"""Against Ciw, on a model that both can express: M/M/20 at 0.9, one queue, first come, first served.

Ciw simulates networks of queues whose servers hold one customer each. Ciw cannot express a job that takes parts of a
server in several resources beside other jobs, nor a server that changes its configuration with the queues. So Table 1
of the paper cannot be run there. M/M/20 is twenty servers of size 1 and jobs of size 1 here, and its mean queue is
known (Erlang C), which both must find.
"""

from __future__ import annotations

import math
import time
from typing import Any

import ciw
import numpy as np

import slotwise
from slotwise.theory.erlang import erlang_c

SERVERS, RATE = 20, 18.0
CUSTOMERS = 20_000
TURNS = 3
WARM_UP = 0.25

SCENARIO = {
    "cluster": {"resources": ["place"], "servers": [{"name": "server", "count": SERVERS, "capacity": [1]}]},
    "types": [{"name": "customer", "demand": [1], "rate": RATE, "mean_service": 1.0}],
}


def exact() -> float:
    """The mean queue: P(wait) rho / (1 - rho)."""
    share = RATE / SERVERS
    return float(erlang_c(SERVERS, RATE)) * share / (1 - share)


def in_ciw(customers: int, seed: int) -> tuple[float, float]:
    """Events a second, an arrival and an end for each customer, and the mean queue by Little's law."""
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(RATE)],
        service_distributions=[ciw.dists.Exponential(1.0)],
        number_of_servers=[SERVERS],
    )
    ciw.seed(seed)
    simulation = ciw.Simulation(network)
    begun = time.perf_counter()
    simulation.simulate_until_max_customers(customers, method="Finish")
    seconds = time.perf_counter() - begun
    records = sorted(simulation.get_all_records(), key=lambda record: record.arrival_date)
    waits = [record.waiting_time for record in records[int(WARM_UP * len(records)) :]]
    return 2 * customers / seconds, RATE * float(np.mean(waits))


def in_slotwise(events: int, replications: int, seed: int) -> slotwise.Result:
    """The same here, on one core."""
    run = {"events": events, "replications": replications, "seed": seed, "warmup": WARM_UP}
    return slotwise.simulate(slotwise.parse_scenario({**SCENARIO, "run": run}), "fifo", workers=1)


def run() -> list[dict[str, Any]]:
    """Rows of name, value, unit, detail."""
    in_slotwise(1000, 1, 0)  # compiles
    spread = in_slotwise(2 * CUSTOMERS, 40, 1).runs
    ours, theirs, found = [], [], []
    for turn in range(TURNS):
        fast = in_slotwise(100 * CUSTOMERS, 1, turn).runs[0]
        ours.append(fast.events / fast.seconds)
        speed, queue = in_ciw(CUSTOMERS, turn)
        theirs.append(speed)
        found.append(queue)
    queues = np.array([one.mean_queue for one in spread])
    true = exact()
    for who, mean, n in (("ciw", float(np.mean(found)), TURNS), ("slotwise", float(queues.mean()), len(queues))):
        assert abs(mean - true) < 4 * queues.std(ddof=1) / math.sqrt(n), f"{who} finds {mean:.2f}, not {true:.2f}"
    best, other = max(ours), max(theirs)
    return [
        {"name": "M/M/20: slotwise", "value": best, "unit": "events/s", "detail": f"mean queue {queues.mean():.2f}, Erlang C {true:.2f}"},
        {"name": "M/M/20: Ciw, the same run", "value": other, "unit": "events/s", "detail": f"mean queue {np.mean(found):.2f}"},
        {"name": "M/M/20: over Ciw", "value": best / other, "unit": "times", "detail": "Table 1 cannot be expressed in Ciw"},
    ]  # fmt: skip


if __name__ == "__main__":
    for row in run():
        print(f"{row['name']:35} {row['value']:14,.4g} {row['unit']:10} {row['detail']}")
