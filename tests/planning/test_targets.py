"""Targets: what is refused, and how figures are read from runs with jobs that still wait."""

from __future__ import annotations

import math

import pytest

from slotwise.errors import InputError
from slotwise.model import load_scenario
from slotwise.planning.targets import check_targets, estimate, measure, parse_targets
from slotwise.simulation.simulate import simulate


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p95_wit=1", "--target p95_wit: unknown target; did you mean p95_wait?"),
        ("throughput=1", "unknown target; use one of: mean_wait, p50_wait"),
        ("p95_wait", "is not a target; write it as p95_wait=60, say"),
        ("p95_wait=soon", "--target p95_wait: 'soon' is not a number"),
        ("p95_wait=-1", "is -1; no wait is below 0"),
        ("mean_wait=0", "is 0; no number of servers spares every job the wait"),
        ("mean_queue=nan", "is nan; give a finite limit"),
        ("utilisation=1.2", "is 1.2; give a share above 0, at most 1"),
    ],
)
def test_bad_targets_are_one_clear_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_targets([text])
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_targets_are_read() -> None:
    assert parse_targets(["p95_wait=60", " mean_queue = 1e2 "]) == {"p95_wait": 60.0, "mean_queue": 100.0}
    with pytest.raises(InputError, match="is given twice"):
        parse_targets(["p95_wait=60", "p95_wait=50"])
    with pytest.raises(InputError, match="there is no target"):
        check_targets({})


def test_figures_of_a_stable_run_are_those_of_the_result() -> None:
    result = simulate("table1", "best-fit", overrides=["run.events=60000", "run.replications=1"])
    (run,) = result.runs
    assert measure(run, "mean_queue") == pytest.approx(run.mean_queue, rel=1e-12)
    assert measure(run, "mean_wait") == pytest.approx(result.wait["mean"], rel=0.02)
    assert measure(run, "p99_wait") == pytest.approx(result.wait["p99"], rel=0.05)
    assert measure(run, "utilisation") == max(result.utilisation.values())


def test_jobs_that_still_wait_count() -> None:
    """At twice the capacity about half of the jobs never start: those that do tell too kind a story."""
    scenario = load_scenario("example1", ["types.large.rate=1", "types.small.rate=8", "run.events=20000"])
    run = simulate(scenario, "best-fit").runs[0]
    assert run.final_queue.sum() > 0.2 * run.arrivals
    assert measure(run, "p95_wait") == math.inf
    assert estimate([run, run], "p95_wait", 0.95).low == math.inf
    started = run.wait_sums[:, 1].sum() / run.wait_sums[:, 0].sum()
    assert measure(run, "mean_wait") == run.mean_wait > 1.2 * started
