"""How long users expect their jobs to run: which policies are told, and what stands in for a missing estimate."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console

import slotwise
from slotwise.cli.tables import results_table
from slotwise.errors import InputError
from slotwise.model import JobType, Scenario, parse_scenario
from slotwise.scheduling import Scheduler, Submit
from slotwise.workloads.hpc import hpc_like
from slotwise.workloads.traces import Trace, write_trace

PROCESSORS, JOBS = 64, 1_500


def scenario(place: Path, change: Any = None, policy: dict[str, Any] | None = None) -> Scenario:
    """A made-up log on its machine; `change` does something to its rows."""
    log = hpc_like(JOBS, seed=3, processors=PROCESSORS, load=0.9)
    write_trace(log if change is None else log.with_frame(change(log.frame), "changed"), place / "log.parquet")
    return parse_scenario(
        {
            "name": "log",
            "cluster": {
                "resources": ["cpu"],
                "servers": [{"name": "machine", "count": 1, "capacity": [PROCESSORS]}],
            },
            "workload": {"trace": str(place / "log.parquet")},
            **({"policy": policy} if policy else {}),
        }
    )


def starts(made: Scenario, policy: str = "guarded", **options: Any) -> np.ndarray:
    result = slotwise.simulate(made, policy, record_jobs=True, workers=1, **options)
    return result.jobs().sort("arrival", "type", "end")["start"].fill_null(np.inf).fill_nan(np.inf).to_numpy()


def test_guarded_uses_estimates_where_a_trace_has_them(tmp_path: Path) -> None:
    made = scenario(tmp_path)
    found = starts(made)
    assert np.array_equal(found, starts(made, durations="estimate"))
    assert not np.array_equal(found, starts(made, durations="none"))
    assert not np.array_equal(found, starts(made, durations="exact"))


def without_column(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.drop("estimate")


def nobody_has_said(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(estimate=pl.lit(None, pl.Float64))


@pytest.mark.parametrize("change", [without_column, nobody_has_said])
def test_without_estimates_nobody_is_told_how_long_jobs_run(change: Any, tmp_path: Path) -> None:
    made = scenario(tmp_path, change)
    assert np.array_equal(starts(made), starts(made, durations="none"))
    with pytest.raises(InputError, match="does not say how long users expect"):
        starts(made, "easy-backfill", durations="estimate")


def test_who_has_not_said_is_held_to_expect_the_longest() -> None:
    """Else the scheduler would be told how long the job will run."""
    log = hpc_like(50, seed=1)
    silent = np.arange(50) % 3 == 0
    frame = log.frame.with_columns(estimate=pl.when(pl.Series(silent)).then(None).otherwise(pl.col("estimate")))
    found, told = Trace(frame, log.meta).estimate, log.frame["estimate"].to_numpy()
    assert found is not None
    assert (found[silent] == told[~silent].max()).all()
    assert np.array_equal(found[~silent], told[~silent])


def test_a_live_scheduler_asks_for_durations_only_if_told_to(tmp_path: Path) -> None:
    made = scenario(tmp_path)
    small = [JobType(name="small", demand=(1,))]
    scheduler = Scheduler(made.cluster, small, "guarded")
    assert len(scheduler.apply(Submit("a", "small", 0.0)).placements) == 1
    asking = Scheduler(made.cluster, small, "guarded", durations="exact")
    with pytest.raises(InputError, match="duration"):
        asking.apply(Submit("a", "small", 0.0))


def test_the_result_says_who_was_told(tmp_path: Path) -> None:
    made = scenario(tmp_path, policy={"name": "guarded", "durations": "estimate"})
    result = slotwise.compare(made, ["guarded", "first-fit"], workers=1)
    assert [one.estimated for one in result.results] == [True, False]
    page = StringIO()
    Console(width=200, file=page).print(results_table(result.results, 200))
    told = [line for line in page.getvalue().splitlines() if "use users' estimates of durations" in line]
    assert [line.rsplit(": ", 1)[1].strip() for line in told] == ["guarded"]
