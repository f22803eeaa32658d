"""Plans for rates that rise and fall: decided on whole periods, at the peak rather than at the mean."""

from __future__ import annotations

import pytest

from slotwise.model import parse_scenario
from slotwise.planning.plan import plan
from slotwise.planning.trials import TargetAnswer


def scenario(**workload: object) -> object:
    return parse_scenario(
        {
            "time_unit": "h",
            "cluster": {"resources": ["cpu"], "servers": [{"name": "n", "count": 1, "capacity": [4]}]},
            "types": [{"name": "a", "demand": [1], "rate": 20, "mean_service": 1.0}],
            "workload": workload,
        }
    )


@pytest.mark.slow
def test_a_peak_takes_more_servers_than_the_mean() -> None:
    """20 jobs on average take 5 servers of 4 and a little more; 32 at the peak take 8."""
    steady = plan(scenario(), {"p95_wait": "6min"}, "first-fit")
    peaked = plan(scenario(profile={"period": "day", "rates": [0.4, 1.6]}), {"p95_wait": "6min"}, "first-fit")
    assert steady.facts.over_period is None
    assert 6 <= steady.best.servers[0] <= 7
    assert 9 <= peaked.best.servers[0] <= 11
    for run in peaked.best.runs:
        assert run.measured / 24 == pytest.approx(round(run.measured / 24), abs=1e-6)
    over = peaked.facts.over_period
    assert over is not None
    assert over.when[0] >= 12
    assert "The queue is longest from" in peaked.statement
    assert peaked.facts.intensity == pytest.approx(20 / (4 * peaked.best.servers[0]))
    assert peaked.facts.certified is False
    assert peaked.as_dict()["queue_over_period"]["period"] == 24
    assert all(trial.verdict is not TargetAnswer.IMPOSSIBLE for trial in peaked.tried if trial.servers[0] > 5)
