"""`slotwise trace profile`: the rhythm of a trace that was drawn from a known one comes back."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from slotwise.cli.trace import app
from slotwise.errors import InputError
from slotwise.model import RateProfile
from slotwise.workloads.timechange import RateRhythm
from slotwise.workloads.traces import Trace, TraceMeta, write_trace
from slotwise.workloads.traces.rhythm import UNIX, measured_profile

GIVEN = (0.5, 0.2, 1.8, 1.5)
HALF_PAST_SIX = 6.5 * 3600


def drawn(days: float, clock: str = "", origin: float = 0.0) -> Trace:
    """Poisson arrivals of this profile, 40 an hour."""
    rhythm = RateRhythm.of(RateProfile(period=86_400.0, rates=GIVEN), "s")
    rng = np.random.default_rng(11)
    times = rhythm.when(np.cumsum(rng.exponential(90.0, int(40 * 24 * days * 1.1))))
    times = times[(times >= origin % 86_400) & (times < origin % 86_400 + days * 86_400)] - origin % 86_400
    meta = TraceMeta("test", ("cpu",), clock=clock, origin=origin)
    return Trace(pl.DataFrame({"arrival": times, "duration": 60.0, "demand.cpu": 1.0}).sort("arrival"), meta, "t")


def test_the_profile_comes_back() -> None:
    found = measured_profile(drawn(60), "day", 4)
    assert found.jobs.sum() == len(drawn(60))
    error = found.rates / np.sqrt(found.jobs)
    assert np.abs(found.rates - GIVEN).max() < 4 * error.max()
    assert found.begins == "the first arrival"


def test_part_of_a_period_counts_as_what_it_is() -> None:
    """Ten days and a half: the first half of the day is seen once more than the second."""
    found = measured_profile(drawn(10.5), "day", 4)
    assert found.seconds[:2] / 86_400 == pytest.approx([11 / 4, 11 / 4], rel=0.01)
    assert found.seconds[2:] / 86_400 == pytest.approx([10 / 4, 10 / 4], rel=0.01)
    assert found.rates == pytest.approx(GIVEN, abs=0.08)


def test_on_unix_time_a_day_begins_at_midnight() -> None:
    found = measured_profile(drawn(60, UNIX, 1_700_000_000 // 86_400 * 86_400 + HALF_PAST_SIX), "day", 4)
    assert found.begins == "midnight UTC"
    assert found.rates == pytest.approx(GIVEN, abs=0.05)
    week = measured_profile(drawn(60, UNIX, 4 * 86_400.0), "week", 7)
    assert week.begins == "Monday, midnight UTC"
    assert week.rates == pytest.approx(np.ones(7), abs=0.1)


def test_the_command(tmp_path: Path) -> None:
    write_trace(drawn(8), tmp_path / "t.parquet")
    told = CliRunner().invoke(app, ["profile", str(tmp_path / "t.parquet"), "--steps", "4"]).stdout
    assert "rate / mean" in told
    written = tomllib.loads(told.splitlines()[-1])["profile"]
    assert RateProfile(**written).rates == pytest.approx(GIVEN, abs=0.1)
    facts = json.loads(CliRunner().invoke(app, ["profile", str(tmp_path / "t.parquet"), "--json"]).stdout)
    assert len(facts["rates"]) == 24
    assert facts["periods_seen"] == pytest.approx(8, abs=0.1)


@pytest.mark.parametrize(
    ("period", "steps", "message"),
    [
        ("week", None, "t: spans 48 h, less than a week; a profile needs a trace of one week or more"),
        ("month", None, "--period: 'month' is no period; use one of: day, week"),
        ("day", 0, "--steps: is 0; use 1 to 10,000"),
    ],
)
def test_mistakes(period: str, steps: int | None, message: str) -> None:
    with pytest.raises(InputError) as refused:
        measured_profile(drawn(2), period, steps)
    assert message == str(refused.value)
