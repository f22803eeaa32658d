"""Streams of pods: their load, counted anew; and quantiles."""

from __future__ import annotations

import pytest
from benchmarks.live.kubernetes import pending, quantile
from benchmarks.live.kubernetes_streams import LONGEST, SHORTEST, STREAMS, TRACES


@pytest.mark.parametrize("name", list(STREAMS))
def test_a_stream_has_the_load_that_it_says(name: str) -> None:
    if name == "alibaba" and not (TRACES / "alibaba_gpu2023").exists():
        pytest.skip("needs ../shared/traces/alibaba_gpu2023")
    mean = 4.0
    found = STREAMS[name](400, mean, 1)
    assert len(found.pods) == 400
    times = [one.at for one in found.pods]
    assert times == sorted(times)
    assert times[0] == 0
    assert all(SHORTEST <= one.seconds <= mean * LONGEST for one in found.pods)
    loads = {}
    for key in found.nodes[0]:
        work = sum(one.requests.get(key, 0) * one.seconds for one in found.pods)
        loads[key] = work / times[-1] / max(1, sum(node.get(key, 0) for node in found.nodes))
    assert max(loads.values()) == pytest.approx(found.load)
    for one in found.pods:
        assert any(all(node.get(key, 0) >= amount for key, amount in one.requests.items()) for node in found.nodes)


def test_quantiles_and_pods_that_wait() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile(list(range(1, 101)), 0.99) == 99
    times = [{"created": 0.0, "bound": 5.0}, {"created": 4.0, "bound": 4.5}]
    assert pending(times, 0.0, 10.0, points=4) == [1, 2, 0, 0]
