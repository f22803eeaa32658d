"""The streams of benchmarks/live/kubernetes.py in virtual time: waits that come from the choice of nodes alone, without API server and machine.

    python -m benchmarks.live.kubernetes_virtual [trap] [whole-node] [alibaba] [--pods 1000] [--mean 8] [--seeds 6]

`slotwise` are the books of the live service with `guarded`. `spread` puts each pod on the node with the largest free share of CPU and memory, which
is kube-scheduler's default (LeastAllocated); `pack` takes the smallest. Both try each waiting pod again when a pod ends. With `pods-not-counted` the
books do not know that a node takes 250 pods at most: no node of these streams holds so many.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

from benchmarks.live.kubernetes_streams import STREAMS, Amounts, Stream, weights
from slotwise.live.engines.protocol import Ended, ServerUp
from slotwise.live.ledger import Ledger
from slotwise.live.newjob import NewJob
from slotwise.live.restart import Setup
from slotwise.model import Cluster, JobType, ServerClass

RESOURCES = ("cpu", "memory", "gpu", "pods")
UNITS = {"cpu": 1000, "memory": 1, "gpu": 1000, "pods": 1}  # of CPUs and GPUs the streams count thousandths
MOST_PODS = 250  # on a node, as benchmarks/live/kubernetes.py has it
Size = tuple[float, ...]


def sizes(amounts: Iterable[Amounts], pods: int) -> list[Size]:
    """Return amounts in CPUs, MiB and GPUs, with this number of pods."""
    return [tuple({**one, "pods": pods}.get(name, 0) / UNITS[name] for name in RESOURCES) for one in amounts]


def by_choice(stream: Stream, choose: Callable[..., int]) -> list[float]:
    """Return the wait of each pod if each goes to the chosen one of the nodes where it fits."""
    nodes, pods = sizes(stream.nodes, MOST_PODS), sizes((one.requests for one in stream.pods), 1)
    free = [list(one) for one in nodes]
    waits = [math.inf] * len(pods)
    waiting: list[int] = []
    events = [(one.at, n, -1) for n, one in enumerate(stream.pods)]  # time, pod, and the node where it ends

    def left(node: int, pod: int) -> float:
        return sum((free[node][r] - pods[pod][r]) / nodes[node][r] for r in (0, 1))

    def try_to_start(pod: int, now: float) -> bool:
        fitting = [
            node for node, has in enumerate(free) if all(a >= b for a, b in zip(has, pods[pod], strict=True))
        ]
        if not fitting:
            return False
        node = choose(fitting, key=lambda one: left(one, pod))
        free[node] = [round(a - b, 6) for a, b in zip(free[node], pods[pod], strict=True)]
        waits[pod] = now - stream.pods[pod].at
        heapq.heappush(events, (now + stream.pods[pod].seconds, pod, node))
        return True

    while events:
        now, pod, node = heapq.heappop(events)
        if node < 0:
            waiting.append(pod)
        else:
            free[node] = [round(a + b, 6) for a, b in zip(free[node], pods[pod], strict=True)]
        tried = [pod] if node < 0 else waiting
        waiting = [one for one in waiting if one not in tried or not try_to_start(one, now)]
    return waits


def by_slotwise(stream: Stream, resources: Sequence[str] = RESOURCES) -> list[float]:
    """Return the wait of each pod under the books of the live service, which count these resources, the first of all."""
    nodes = [one[: len(resources)] for one in sizes(stream.nodes, MOST_PODS)]
    pods = sizes((one.requests for one in stream.pods), 1)
    classes = tuple(
        ServerClass(name=f"class-{n}", count=1, capacity=tuple(Decimal(repr(float(value))) for value in one))
        for n, one in enumerate(dict.fromkeys(nodes), 1)
    )
    first = JobType(name="first", demand=tuple(map(Decimal, ("0.1", "1", "0", "1")))[: len(resources)])
    ledger = Ledger(Setup(Cluster(resources=tuple(resources), servers=classes), (first,)).core())
    for n, one in enumerate(nodes):
        ledger.server_up(ServerUp(f"n{n}", dict(zip(resources, one, strict=True)), {}), 0.0)
    waits = [math.inf] * len(stream.pods)
    events = [(one.at, n, 0) for n, one in enumerate(stream.pods)]  # time, pod, and the attempt that ends
    while events:
        now, pod, attempt = heapq.heappop(events)
        if attempt:
            ledger.ended(Ended(pod + 1, attempt, 0, now, ""), now)
        else:
            needs = {name: amount for name, amount in zip(resources, pods[pod], strict=False) if amount}
            ledger.submit([NewJob("default", None, needs, {})], now)
        for start in ledger.take()[1].starts:
            begun = start.job - 1
            waits[begun] = now - stream.pods[begun].at
            heapq.heappush(events, (now + stream.pods[begun].seconds, begun, start.attempt))
    return waits


WAYS: dict[str, Callable[[Stream], list[float]]] = {
    "spread": lambda stream: by_choice(stream, max),
    "pack": lambda stream: by_choice(stream, min),
    "slotwise": by_slotwise,
    "pods-not-counted": lambda stream: by_slotwise(stream, RESOURCES[:3]),
}


def row(stream: Stream, waits: Sequence[float]) -> dict[str, Any]:
    """Return the figures of a run."""
    ordered, weight = sorted(waits), weights(stream)
    half = max(weight) / 2
    large = [wait for wait, one in zip(waits, weight, strict=True) if one > half]
    other = [wait for wait, one in zip(waits, weight, strict=True) if one <= half]
    return {
        "mean_s": sum(waits) / len(waits),
        "p99_s": ordered[math.ceil(0.99 * len(ordered)) - 1],
        "longest_s": ordered[-1],
        "weighted_s": sum(wait * one for wait, one in zip(waits, weight, strict=True)) / sum(weight),
        "large_pods": len(large),
        "large_mean_s": sum(large) / len(large),
        "other_mean_s": sum(other) / max(1, len(other)),
    }


def main() -> None:
    """Each way with each stream and seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(STREAMS)} (default: all)")
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--mean", type=float, default=8.0, help="mean duration of a pod in seconds")
    parser.add_argument("--seeds", type=int, default=6)
    options = parser.parse_args()
    for part in options.parts or STREAMS:
        for seed in range(1, options.seeds + 1):
            stream = STREAMS[part](options.pods, options.mean, seed)
            for name, play in WAYS.items():
                found = {key: round(value, 3) for key, value in row(stream, play(stream)).items()}
                print(json.dumps({"part": part, "seed": seed, "way": name, **found}), flush=True)


if __name__ == "__main__":
    main()
