"""What an import says of users' estimates."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from slotwise.workloads.traces import import_to_file, read_trace
from slotwise.workloads.traces.estimates import Estimates

ROW = "{n} {time} 0 60 2 -1 -1 2 {estimate} -1 1 1 1 1 1 1 -1 -1\n"


def log(path: Path, estimates: list[int]) -> Path:
    """Write a log in SWF with these estimates; every job runs for 60 s."""
    path.write_text("".join(ROW.format(n=n, time=10 * n, estimate=e) for n, e in enumerate(estimates, 1)))
    return path


@pytest.mark.parametrize(
    ("estimates", "notes"),
    [
        ([60, 600, 100], ()),
        ([-1, -1], ("no job has an estimate of its duration",)),
        (
            [-1, 0, 100],
            (
                "2 of 3 jobs have no estimate; policies that use estimates take the longest estimate of the trace for them",
            ),
        ),
        ([601, 60], ("1 estimate is more than 10 times as long as the longest job (60 s), up to 601 s",)),
        (
            [738_738_720, 700, 30],
            (
                "2 estimates are more than 10 times as long as the longest job (60 s), up to 738,738,720 s",
                "1 of 3 jobs ran longer than their estimate",
            ),
        ),
    ],
)
def test_an_import_names_missing_absurd_and_short_estimates(
    tmp_path: Path, estimates: list[int], notes: tuple[str, ...]
) -> None:
    report = import_to_file("swf", [log(tmp_path / "log.swf", estimates)], tmp_path / "log.parquet")
    assert report.notes == notes
    assert set(notes) <= set(read_trace(tmp_path / "log.parquet").meta.notes)  # `trace summary` shows them


def test_a_long_job_that_comes_later_makes_an_estimate_plausible() -> None:
    seen = Estimates()
    seen.add(pl.DataFrame({"duration": [60.0, 60.0], "estimate": [900.0, 5000.0]}))
    seen.add(pl.DataFrame({"duration": [100.0], "estimate": [100.0]}))
    assert seen.notes() == ["1 estimate is more than 10 times as long as the longest job (100 s), up to 5,000 s"]


def test_a_trace_without_the_column_has_no_notes() -> None:
    seen = Estimates()
    seen.add(pl.DataFrame({"duration": [60.0]}))
    assert seen.notes() == []
