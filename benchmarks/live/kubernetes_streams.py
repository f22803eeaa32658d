"""Streams of pods for benchmarks/live/kubernetes.py: the nodes, and for each pod its arrival, requests and duration."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

TRACES = Path(__file__).parents[2].parent / "shared" / "traces"
GPU = "example.com/gpu-thousandths"
SHORTEST = 0.5  # seconds; KWOK plays shorter pods no more exactly
EACH = 60  # of the nodes of the cloud trace one is taken: 1,000 pods with a mean of 8 s fill their GPUs within a minute
LONGEST = 8.0  # times the mean duration: of longer pods a run would see the beginning only
Amounts = dict[str, int]


class Arrival(NamedTuple):
    """A pod of a stream."""

    at: float
    seconds: float
    requests: Amounts
    """thousandths of CPUs, MiB, thousandths of GPUs"""


class Stream(NamedTuple):
    """Nodes, and pods by arrival."""

    name: str
    nodes: list[Amounts]
    pods: list[Arrival]
    load: float
    """share of the scarcest resource that the pods would keep busy"""


def scaled(
    name: str, nodes: list[Amounts], pods: Sequence[tuple[float, float, Amounts]], mean: float, load: float
) -> Stream:
    """Return a stream with this mean duration in seconds and this load; arrival times keep their proportions."""
    factor = mean / (sum(one[1] for one in pods) / len(pods))
    lasting = [min(mean * LONGEST, max(SHORTEST, seconds * factor)) for _, seconds, _ in pods]
    have = {key: sum(one.get(key, 0) for one in nodes) for key in nodes[0]}
    work = {
        key: sum(one[2].get(key, 0) * seconds for one, seconds in zip(pods, lasting, strict=True)) for key in have
    }
    span = max(work[key] / have[key] for key in have if have[key]) / load
    first, last = pods[0][0], pods[-1][0]
    made = [
        Arrival((at - first) / (last - first) * span, seconds, requests)
        for (at, _, requests), seconds in zip(pods, lasting, strict=True)
    ]
    return Stream(name, nodes, made, load)


def weights(stream: Stream) -> list[float]:
    """Return how much each pod requests of the scarcest resource."""
    have = {key: sum(one.get(key, 0) for one in stream.nodes) for key in stream.nodes[0]}
    work = {
        key: sum(one.requests.get(key, 0) * one.seconds for one in stream.pods) / have[key]
        for key in have
        if have[key]
    }
    scarcest = max(work, key=lambda key: work[key])
    return [float(one.requests.get(scarcest, 0)) for one in stream.pods]


def trap(capacity: int, first: int, second: int, nodes: int, load: float) -> Callable[[int, float, int], Stream]:
    """Return a maker of two types of pods, half of the load each: scenario trap-... of benchmarks/policies."""

    def make(count: int, mean: float, seed: int) -> Stream:
        chance = random.Random(seed)
        sizes, rates = (first, second), (capacity // first, capacity // second)
        now, pods = 0.0, []
        for _ in range(count):
            now += chance.expovariate(sum(rates))
            size = chance.choices(sizes, rates)[0]
            pods.append((now, chance.expovariate(1.0), {"cpu": size * 1000, "memory": 64}))
        each = {"cpu": capacity * 1000, "memory": 65536}
        return scaled(f"trap-{capacity}-{first}-{second}-x{nodes}-{load}", [each] * nodes, pods, mean, load)

    return make


def alibaba(count: int, mean: float, seed: int) -> Stream:
    """Return pods and each sixtieth node of the cluster with GPUs (Alibaba, 2023)."""
    folder = TRACES / "alibaba_gpu2023"
    with open(folder / "openb_node_list_all_node.csv") as file:
        nodes = [
            {"cpu": int(row["cpu_milli"]), "memory": int(row["memory_mib"]), "gpu": int(row["gpu"]) * 1000}
            for n, row in enumerate(csv.DictReader(file))
            if n % EACH == seed % EACH
        ]
    with open(folder / "openb_pod_list_default.csv") as file:
        rows = list(csv.DictReader(file))
    pods = []
    for row in rows:
        count_of, share = int(row["num_gpu"]), int(row["gpu_milli"] or 0)
        size = {
            "cpu": int(row["cpu_milli"]),
            "memory": int(row["memory_mib"]),
            "gpu": count_of * 1000 if count_of > 1 else share,
        }
        lasts = int(row["deletion_time"]) - int(row["creation_time"])
        if lasts > 0 and any(all(node[key] >= size[key] for key in size) for node in nodes):
            pods.append((float(row["creation_time"]), float(lasts), size))
    pods.sort(key=lambda one: one[0])
    # the first part of the trace is what was there when it began; arrivals come after it
    return scaled("alibaba_gpu2023", nodes, pods[-count:], mean, 0.9)


STREAMS: dict[str, Callable[[int, float, int], Stream]] = {
    "trap": trap(10, 5, 2, 20, 0.95),
    "whole-node": trap(10, 10, 1, 5, 0.9),
    "alibaba": alibaba,
}
