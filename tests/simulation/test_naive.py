"""The simulator against a second, naive one that is fed the same jobs: equal figures, event for event."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest

import slotwise
from slotwise.model import Scenario, parse_scenario
from slotwise.simulation.measure.measurements import COUNT, LARGEST, SUM, Measurements
from slotwise.simulation.run.workload import jobs_of
from slotwise.workloads.traces import Trace, TraceMeta, write_trace

Make = Callable[..., Scenario]
EVENTS = 6000


def same(run: Measurements, result: slotwise.Result, figures: Any, naive: ModuleType) -> None:
    """Equal but for the order in which sums are added up; quantiles to the width of the histogram's bins."""
    assert (run.events, run.arrivals, run.completions) == (figures.events, figures.arrivals, figures.completions)
    assert run.final_queue.tolist() == figures.waiting
    assert run.final_running == figures.running
    assert run.measured == pytest.approx(figures.measured, rel=1e-9)
    assert run.mean_queue == pytest.approx(figures.mean_queue, rel=1e-9)
    areas = np.array(figures.area_queue) / figures.measured
    assert run.mean_queue_by_type == pytest.approx(areas, rel=1e-9, abs=1e-12)
    assert run.in_service == pytest.approx(figures.area_running / figures.measured, rel=1e-9)
    assert run.utilisation == pytest.approx(figures.utilisation, rel=1e-9)
    assert run.wait_sums[:, COUNT].tolist() == [len(waits) for waits in figures.waits]
    assert run.wait_sums[:, SUM] == pytest.approx([sum(waits) for waits in figures.waits], rel=1e-9)
    assert run.wait_sums[:, LARGEST] == pytest.approx([max(waits, default=0) for waits in figures.waits], rel=1e-9)
    assert run.overtakes == figures.overtakes
    waits = [wait for of_type in figures.waits for wait in of_type]
    for name, p in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        assert result.wait[name] == pytest.approx(naive.quantile(waits, figures.unended, p), rel=0.01, abs=1e-9)
    assert run.lost_jobs == figures.lost
    assert run.lost_work == pytest.approx(figures.lost_work, rel=1e-9)


def both(made: Scenario, decider: Any, naive: ModuleType, policy: str, **options: Any) -> Measurements:
    assert made.run.events is not None
    result = slotwise.simulate(made, policy, **options)
    figures = naive.simulate(made, jobs_of(made), decider, events=made.run.events, warmup=made.run.warmup)
    assert figures.mean_queue > 0.05  # or else there is nothing to compare
    same(result.runs[0], result, figures, naive)
    return result.runs[0]


RUN = {"events": EVENTS, "replications": 1, "warmup": 0.2, "seed": 3}


def test_fifo_on_unlike_servers(scenario: Make, naive: ModuleType) -> None:
    made = scenario({"small": (3, 3), "large": (2, 8)}, [(1, 5), (3, 2.0), (5, 0.4)], run=RUN)
    both(made, naive.Fifo(jobs_of(made), made), naive, "fifo")


@pytest.mark.parametrize(
    ("policy", "options"),
    [("m14", {"ties": "first"}), ("algorithm1", {"ties": "first", "z": 0.05}), ("best-fit", {})],
)
def test_decisions_through_the_scheduler(
    scenario: Make, naive: ModuleType, policy: str, options: dict[str, Any]
) -> None:
    """What is simulated is what is run: the scheduler that people call from Python decides the same."""
    made = scenario({"six": (3, 6), "nine": (1, 9)}, [(4, 1.6), (1, 10)], run=RUN)
    both(made, naive.Real(jobs_of(made), made, policy, **options), naive, policy, **options)


@pytest.mark.parametrize("law", ["mmpp", "batch", "deterministic"])
def test_arrivals_that_come_together(scenario: Make, naive: ModuleType, law: str) -> None:
    arrivals: dict[str, Any] = {
        "mmpp": {"law": "mmpp", "rates": [0.1, 2], "sojourns": [3, 3]},
        "batch": {"law": "batch", "rate": 1.4, "batches": [{"probability": 1, "jobs": {"type0": 3, "type1": 1}}]},
        "deterministic": {"law": "deterministic"},
    }
    rates = (None, None) if law == "batch" else (4.2, 1.4)
    workload = {"arrivals": arrivals[law], "service": {"law": "weibull", "shape": 0.5}}
    made = scenario({"four": (2, 4)}, [(1, rates[0]), (2, rates[1])], workload=workload, run=RUN)
    both(made, naive.Fifo(jobs_of(made), made), naive, "fifo")


def test_joins_drains_and_failures(scenario: Make, naive: ModuleType) -> None:
    """Lost jobs are back at the front, and utilisation is the integral of what is used over what is there."""
    cluster = {
        "servers": [
            {"name": "sure", "count": 3, "capacity": [4]},
            {
                "name": "frail",
                "count": 4,
                "capacity": [3],
                "failures": {"mean_time_between": 12, "mean_repair": 4},
            },
        ],
        "events": [
            {"at": 60, "action": "join", "servers": "sure", "count": 2},
            {"at": 100, "action": "drain", "servers": "sure", "count": 2},
            {"at": 150, "action": "drain", "servers": "frail"},
            {"at": 200, "action": "fail", "servers": "sure"},
            {"at": 230, "action": "join", "servers": "frail", "count": 1},
        ],
    }
    made = scenario({}, [(1, 7.5), (3, 1.5)], cluster=cluster, run=RUN)
    run = both(made, naive.Fifo(jobs_of(made), made), naive, "fifo")
    assert run.measured > 200
    assert run.lost_jobs > 50
    assert run.arrivals == run.completions + run.final_running + run.final_queue.sum()


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    """400 jobs, no two of one size (few, since waste-bounded types are searched among all sizes)."""
    rng = np.random.default_rng(7)
    frame = pl.DataFrame(
        {
            "arrival": np.sort(rng.uniform(0, 400, 400)),
            "duration": rng.exponential(10, 400) + 0.1,
            "demand.cpu": rng.uniform(0.01, 0.6, 400),
            "demand.memory": rng.uniform(0.01, 0.5, 400),
        }
    )
    write_trace(Trace(frame, TraceMeta("test", ("cpu", "memory"))), tmp_path / "jobs.parquet")
    return tmp_path / "jobs.parquet"


def of_trace(path: Path, method: str, **run: Any) -> Scenario:
    cluster = {"resources": ["cpu", "memory"], "servers": [{"name": "s", "count": 5, "capacity": [1, 1]}]}
    workload = {"trace": str(path), "typing": {"method": method, "types": 5}, "time_scale": 2.0}
    return parse_scenario({"cluster": cluster, "workload": workload, "run": {"replications": 1, **run}})


@pytest.mark.parametrize("method", ["power-of-two", "waste-bounded"])
def test_a_trace_packed_by_what_jobs_really_ask_for(trace_file: Path, naive: ModuleType, method: str) -> None:
    """Sizes of many digits: two servers are equally full only when they are empty, so naive best-fit has no ties."""
    made = of_trace(trace_file, method, events=750, warmup=0.1)
    both(made, naive.BestFit(jobs_of(made), made), naive, "best-fit")


def test_a_trace_runs_to_its_last_job_or_to_the_time_that_is_asked_for(trace_file: Path) -> None:
    whole = slotwise.simulate(of_trace(trace_file, "power-of-two", warmup=0), "best-fit").runs[0]
    assert whole.arrivals == 400
    assert whole.completions + whole.final_running + whole.final_queue.sum() == 400
    frame = pl.read_parquet(trace_file)
    assert whole.measured == pytest.approx((frame["arrival"].max() - frame["arrival"].min()) / 2)
    # by types a job takes its rounded demand, so fewer run at a time
    rounded = slotwise.simulate(of_trace(trace_file, "power-of-two", warmup=0), "best-fit", pack_by="type").runs[0]
    assert rounded.mean_queue > 2 * whole.mean_queue
    long = slotwise.simulate(of_trace(trace_file, "power-of-two", until=1e5, warmup=0), "best-fit").runs[0]
    assert long.measured == 1e5
    assert long.completions == 400
    used = np.array([(frame["duration"] * frame[f"demand.{r}"]).sum() / 2 for r in ("cpu", "memory")])
    assert long.utilisation == pytest.approx(used / (5 * 1e5), rel=1e-4)  # demands are rounded up to six digits
    again = slotwise.simulate(of_trace(trace_file, "power-of-two", jobs=100), "best-fit").runs[0]
    assert again.arrivals == 100
