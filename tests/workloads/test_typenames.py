"""Types of a trace are named by their size: short, different, always the same."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import polars as pl
import pytest

from slotwise.model import Cluster, ServerClass, TypeMaking
from slotwise.workloads.tracejobs import jobs_of_trace
from slotwise.workloads.traces import Trace, TraceMeta
from slotwise.workloads.typemaking import make_types
from slotwise.workloads.typenames import names_by_size

GB = {"cpu": "core", "memory": "GB"}


@pytest.mark.parametrize(
    ("demands", "units", "names"),
    [
        ([[4, 16], [8, 16]], GB, ["4cpu-16GB", "8cpu-16GB"]),
        ([[0.5, Decimal("1.75")], [1, 0]], GB, ["0.5cpu-1.75GB", "1cpu"]),
        ([[0.0625, 0.0318]], {}, ["0.0625cpu-0.0318memory"]),
        ([[0.031251, 1], [0.031259, 1]], GB, ["0.03125cpu-1GB", "0.03126cpu-1GB"]),
        ([[2, 1_500_000]], {"memory": "MiB"}, ["2cpu-1500000MiB"]),
        ([[0, 0]], GB, ["nothing"]),
        ([[1, 1], [1, 1]], GB, ["1cpu-1GB-1", "1cpu-1GB-2"]),
        ([[1e-7, 2]], {"memory": "largest machine"}, ["0.0000001cpu-2memory"]),
    ],
)
def test_names(demands: list[list[float]], units: dict[str, str], names: list[str]) -> None:
    assert names_by_size(demands, ("cpu", "memory"), units) == names


def test_two_resources_in_bytes_go_by_their_names() -> None:
    units = {"memory": "GB", "disk": "GB"}
    assert names_by_size([[1, 2, 3]], ("cpu", "memory", "disk"), units) == ["1cpu-2memory-3disk"]


def trace(units: dict[str, str]) -> Trace:
    rng = np.random.default_rng(1)
    n = 300
    frame = pl.DataFrame(
        {
            "arrival": np.sort(rng.uniform(0, 1000, n)),
            "duration": rng.exponential(50, n),
            "demand.cpu": rng.choice([1.0, 2.0, 4.0], n),
            "demand.memory": rng.choice([2.0, 16.0], n),
        }
    )
    return Trace(frame, TraceMeta("test", ("cpu", "memory"), units))


def servers(units: dict[str, str]) -> Cluster:
    return Cluster(
        resources=("cpu", "memory"),
        units=units,
        servers=(ServerClass(name="n", count=5, capacity=(Decimal(16), Decimal(64))),),
    )


@pytest.mark.parametrize("method", ["exact", "waste-bounded", "grid", "power-of-two"])
def test_the_types_of_a_scenario_s_trace(method: str) -> None:
    jobs = jobs_of_trace(trace({}), servers({"memory": "GB"}), TypeMaking(method=method))
    for job_type in jobs.types:
        cpu, memory = job_type.demand
        assert job_type.name == f"{float(cpu):g}cpu-{float(memory):g}GB"
    again = jobs_of_trace(trace({}), servers({"memory": "GB"}), TypeMaking(method=method))
    assert [one.name for one in again.types] == [one.name for one in jobs.types]


def test_the_trace_s_own_units_serve_where_the_scenario_has_none() -> None:
    assert "4cpu-16GB" in make_types(trace(GB), "exact").names
    assert "4cpu-16GB" in [
        one.name for one in jobs_of_trace(trace(GB), servers({}), TypeMaking(method="exact")).types
    ]
    assert "4cpu-16memory" in make_types(trace({}), "exact").names
