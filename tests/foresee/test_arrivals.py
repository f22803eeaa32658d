"""What will arrive: stretches of the past, at the rate of the past."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.random import Generator, default_rng

from slotwise.foresee.arrivals import DAY, SHORT, Past
from slotwise.foresee.history import History
from slotwise.foresee.services import ServiceTimes


def past(span: float, jobs: int) -> Past:
    """Return a past in which jobs of one second came evenly."""
    at = np.linspace(0.0, span, jobs, endpoint=False)
    same = np.zeros(jobs, np.int64)
    history = History(("a",), at, at, at + 1.0, np.ones(jobs, np.bool_), same, same, np.full(jobs, np.nan))
    return Past(history, span, ServiceTimes(history, span))


@pytest.mark.parametrize("span", [0.5, 60.0, SHORT * DAY * 0.99, SHORT * DAY * 1.01, 0.4 * DAY, 9.5 * DAY])
def test_jobs_arrive_at_the_rate_of_the_past(span: float) -> None:
    """Whether many stretches are drawn at once or one by one."""
    horizon = 50.0 * span
    drawn = past(span, 600).draw(horizon, default_rng(1))
    assert len(drawn.time) == pytest.approx(600 * 50, rel=0.05)
    assert drawn.until == pytest.approx(horizon)
    assert (np.diff(drawn.time) >= 0).all()
    assert drawn.time[0] >= 0.0
    assert drawn.time[-1] <= horizon
    assert drawn.duration == pytest.approx(np.ones(len(drawn.time)))
    assert 0 <= drawn.row.min() <= drawn.row.max() < 600


def test_no_more_jobs_are_drawn_than_asked_for() -> None:
    drawn = past(60.0, 600).draw(DAY, default_rng(1), most=5_000)
    assert 5_000 < len(drawn.time) < 6_000
    assert drawn.until == pytest.approx(500.0, rel=0.1)


def test_a_young_history_is_drawn_in_few_steps() -> None:
    """A service that has seen one second drew 50,000 stretches one by one for each of its runs, which took minutes of CPU."""

    class Counting(Generator):
        calls = 0

        def uniform(self, *arguments: object, **options: object) -> object:
            Counting.calls += 1
            return super().uniform(*arguments, **options)  # type: ignore[call-overload]

    drawn = past(1.0, 20).draw(DAY / 4, Counting(np.random.PCG64(1)))
    assert len(drawn.time) == pytest.approx(20 * DAY / 4, rel=0.05)
    assert Counting.calls < 100
