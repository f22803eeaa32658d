"""Lengths of runs, warm-up, time series, results: what a run reports and over what."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import slotwise
from slotwise.model import Scenario, parse_scenario
from slotwise.simulation.judge.drift import Stability
from slotwise.simulation.judge.statistics import mser5
from slotwise.simulation.measure.meter import SAMPLES
from slotwise.simulation.run.choice import Choice
from slotwise.simulation.run.replication import Task, replicate
from slotwise.simulation.run.serverevents import FAIL, JOIN, ServerEvents
from slotwise.simulation.run.workload import jobs_of
from slotwise.simulation.simulate import InterruptedRunError

Make = Callable[..., Scenario]


def one(scenario: Make, policy: str = "fifo", **run: Any) -> Any:
    made = scenario({"five": (1, 5)}, [(1, 3), (2, 0.5)], run={"replications": 1, **run})
    return slotwise.simulate(made, policy).runs[0]


def test_lengths(scenario: Make) -> None:
    by_events = one(scenario, events=5001)
    assert by_events.events == 5001 == by_events.arrivals + by_events.completions
    by_jobs = one(scenario, jobs=2500)
    assert by_jobs.arrivals == 2500
    by_time = one(scenario, until=300.0, warmup=0.5)
    assert by_time.measured == 150.0
    assert by_time.arrivals == pytest.approx(3.5 * 300, rel=0.15)


def test_warmup_is_a_share_of_the_length_that_is_asked_for(scenario: Make) -> None:
    """The same run measured whole and in part: areas and jobs of the first part are those that are missing."""
    for length in ({"events": 8000}, {"jobs": 4000}, {"until": 1000.0}):
        whole, part = one(scenario, **length, warmup=0.0), one(scenario, **length, warmup=0.4)
        assert (whole.events, whole.arrivals) == (part.events, part.arrivals)
        assert part.measured == pytest.approx(0.6 * whole.measured, rel=0.1)
        start = whole.measured - part.measured
        # the queue before the warm-up's end, from the samples; these are 1 / rate apart
        early = whole.series[whole.series[:, 0] < start, 1].mean()
        total = early * start + part.mean_queue * part.measured
        assert total == pytest.approx(whole.mean_queue * whole.measured, rel=0.1)
        assert part.wait_bins.sum() < whole.wait_bins.sum()


def test_auto_warmup_is_where_mser5_cuts_the_series(scenario: Make) -> None:
    """200 slots that start empty, so that there is something to cut."""

    def run(warmup: float | str) -> Any:
        made = scenario({"many": (1, 200)}, [(1, 198)], run={"until": 40.0, "replications": 1, "warmup": warmup})
        return slotwise.simulate(made, "fifo").runs[0]

    series = run(0.0).queue_series
    share = mser5(series) / len(series)
    assert 0.02 < share <= 0.5
    assert run("auto").same_as(run(share))
    assert run("auto").measured == pytest.approx(40 * (1 - share))


@pytest.mark.parametrize("events", [1, 2, 30, 100])
def test_very_short_runs_have_results(scenario: Make, events: int) -> None:
    made = scenario({"five": (1, 5)}, [(1, 3)], run={"events": events, "replications": 2})
    result = slotwise.simulate(made, "fifo")
    assert result.verdict is Stability.TOO_SHORT
    assert not result.stable
    assert not result.grows
    assert [run.events for run in result.runs] == [events, events]
    assert "too short" in str(result)
    result.frame()
    result.as_dict()


def test_series_is_sampled_at_equal_steps_from_the_start_and_never_grows(scenario: Make) -> None:
    for events in (500, 5000, 200_000):
        run = one(scenario, events=events)
        assert len(run.series) <= SAMPLES
        assert len(run.series) > min(SAMPLES // 2, events // 4)
        steps = np.diff(run.series[:, 0])
        assert run.series[0, 0] == 0.0
        assert steps == pytest.approx(np.full(len(steps), steps[0]))
        assert (run.series[:, 1] == run.series[:, 4:].sum(axis=1)).all()
    assert run.series[len(run.series) // 4 :, 1].mean() == pytest.approx(run.mean_queue, rel=0.25)
    assert run.series[len(run.series) // 4 :, 2].mean() == pytest.approx(run.in_service, rel=0.1)


def test_result_as_frames_and_words(scenario: Make) -> None:
    made = scenario({"five": (1, 5)}, [(1, 3), (2, 0.5)], run={"events": 4000, "replications": 3})
    comparison = slotwise.compare(made, ["fifo", "best-fit"])
    frame = comparison.frame()
    assert frame.height == 6
    assert frame["policy"].unique().sort().to_list() == ["best-fit", "fifo"]
    result = comparison.results[0]
    assert frame["mean_queue"][:3].to_list() == [run.mean_queue for run in result.runs]
    assert {"wait_p95", "queue.type0", "utilisation.units"} <= set(frame.columns)
    series = result.series()
    assert series["replication"].unique().sort().to_list() == [0, 1, 2]
    assert {"time", "queue", "running", "queue.type1"} <= set(series.columns)
    assert str(result).startswith("fifo on scenario: mean queue ")
    assert comparison.best.mean_queue.mean == min(r.mean_queue.mean for r in comparison.results)


def test_waits_of_two_replications_are_put_together(scenario: Make) -> None:
    made = scenario({"five": (1, 5)}, [(1, 3), (2, 0.7)], run={"events": 20_000, "replications": 2})
    result = slotwise.simulate(made, "fifo")
    sums = sum(run.wait_sums for run in result.runs)
    started = sums[:, 1].sum() / sums[:, 0].sum()
    assert sum(result.still_waiting.values()) > 0
    assert started < result.wait["mean"] < 1.05 * started  # jobs that still wait have waited longer
    assert result.wait["max"] == max(run.wait_sums[:, 3].max() for run in result.runs)
    assert result.wait["p50"] <= result.wait["p95"] <= result.wait["p99"] <= result.wait["max"]
    by_type = result.wait_by_type
    assert min(w["p95"] for w in by_type.values()) <= result.wait["p95"] <= max(w["p95"] for w in by_type.values())


def test_one_long_run_has_an_interval_from_batches(scenario: Make) -> None:
    made = scenario({"one": (1, 1)}, [(1, 0.6)], run={"events": 400_000, "replications": 1})
    found = slotwise.simulate(made, "fifo").mean_queue
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.9 < found.high  # rho^2 / (1 - rho)
    assert found.high - found.low < 0.5


def test_servers_that_are_drained_or_fail_for_good_never_come_back(scenario: Make) -> None:
    cluster = {
        "servers": [
            {
                "name": "frail",
                "count": 3,
                "capacity": [1],
                "failures": {"mean_time_between": 5, "mean_repair": 2},
            }
        ],
        "events": [
            {"at": 20, "action": "drain", "servers": "frail"},
            {"at": 30, "action": "fail", "servers": "frail"},
            {"at": 40, "action": "join", "servers": "frail"},
        ],
    }
    made = scenario({}, [(1, 0.5)], cluster=cluster)
    timeline = ServerEvents(made.cluster, np.random.SeedSequence(5))
    rows = []
    while timeline.next_time <= 300.0:
        (at,), (what,) = (column.tolist() for column in timeline.next(1))
        rows.append((at, *what))
    assert [at for at, *_ in rows] == sorted(at for at, *_ in rows)
    of = {number: [(at, kind) for at, kind, n, _ in rows if n == number] for number in range(4)}
    assert of[0][-1][0] == 20
    assert of[1][-1] == (30, FAIL)
    assert of[3][0] == (40, JOIN)
    assert len(of[3]) > 20  # and then it fails and is repaired as all others do
    for turns in (of[2], of[3][1:]):
        assert [kind for _, kind in turns] == [FAIL, JOIN] * (len(turns) // 2) + [FAIL] * (len(turns) % 2)


def test_utilisation_never_exceeds_what_is_there(scenario: Make) -> None:
    """A draining server counts while its jobs use it; the rest of the run has no server at all."""
    cluster = {"events": [{"at": 50, "action": "drain", "servers": "five"}]}
    made = scenario(
        {"five": (1, 5)}, [(1, 20)], cluster=cluster, run={"until": 100.0, "replications": 1, "warmup": 0}
    )
    run = slotwise.simulate(made, "fifo").runs[0]
    assert 0.8 < run.utilisation[0] <= 1.0
    assert run.final_running == 0
    assert run.arrivals == run.completions + run.final_queue.sum()


def test_an_engine_or_policy_that_is_not_there_is_refused(scenario: Make) -> None:
    made = scenario({"five": (1, 5)}, [(1, 3)], run={"events": 10})
    with pytest.raises(slotwise.InputError, match="no engine is called 'moon'"):
        slotwise.simulate(made, engine="moon")
    with pytest.raises(slotwise.InputError, match="did you mean best-fit"):
        slotwise.simulate(made, "best-fitt")
    with pytest.raises(slotwise.InputError, match="unknown option"):
        slotwise.simulate(made, "fifo", beta=3)


def test_an_interruption_keeps_what_is_finished(scenario: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from slotwise.simulation.run import engines as module

    made = scenario({"five": (1, 5)}, [(1, 3)], run={"events": 1000, "replications": 4})
    whole = slotwise.simulate(made, "fifo")
    real, finished, raised = module.wait, [], []

    def interrupted(pending: Any, **options: Any) -> Any:
        found = real(pending, **options)
        finished.extend(found.done)
        if len(finished) >= 2 and not raised:
            raised.append(True)
            raise KeyboardInterrupt  # before the second has been looked at
        return found

    monkeypatch.setattr(module, "wait", interrupted)
    with pytest.raises(InterruptedRunError) as caught:
        slotwise.simulate(made, "fifo", workers=1)
    (part,) = caught.value.results
    assert len(part.runs) >= 2  # what was under way may have been finished as well
    for run in part.runs:
        assert run.same_as(whole.runs[run.replication])


MEMORY = """
import resource, sys
import slotwise
from slotwise.model import parse_scenario
made = parse_scenario({
    "cluster": {"resources": ["units"], "servers": [{"name": "s", "count": 20, "capacity": [10]}]},
    "types": [{"name": "a", "demand": [5], "rate": 10}, {"name": "b", "demand": [2], "rate": 50}],
    "run": {"jobs": int(sys.argv[1]), "replications": 1},
})
assert slotwise.simulate(made, "best-fit").runs[0].arrivals == int(sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10))
"""


def test_memory_does_not_grow_with_finished_jobs() -> None:
    def peak(jobs: int) -> float:
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, str(jobs)],
            env={**os.environ, "NUMBA_DISABLE_JIT": "0"},
            capture_output=True,
            text=True,
            check=True,
        )
        return float(done.stdout)

    assert peak(2_000_000) < peak(200_000) + 10  # MB; a single float a job would be 14


def test_a_clock_stops_when_nothing_is_left_to_start() -> None:
    """Else a run until a late time would ring through the ages."""
    short = {"trace": "google-like", "typing": {"method": "power-of-two"}}
    tables = {
        "cluster": {"resources": ["cpu"], "servers": [{"name": "s", "count": 2, "capacity": [1]}]},
        "workload": short,
        "run": {"jobs": 300, "warmup": 0},
    }
    jobs = jobs_of(parse_scenario(tables))
    run = replicate(Task(parse_scenario({**tables, "run": {"until": 1e12, "warmup": 0}}), jobs, Choice("g16")))
    assert (run.completions, run.ended, run.final_queue.sum()) == (300, 1e12, 0)
    assert 0 < run.ticks < 1_000_000
