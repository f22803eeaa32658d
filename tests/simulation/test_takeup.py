"""Runs that begin with a live situation: what is there goes on as it would, and what is not known is drawn given what is."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import pytest

import slotwise
from slotwise.errors import InputError
from slotwise.model import parse_scenario
from slotwise.model.laws import Deterministic, Empirical, Exponential, Hyperexponential, Lognormal, Pareto, Weibull
from slotwise.model.scenario import ServerEvent
from slotwise.scheduling import Complete, Drain, Scheduler, Submit
from slotwise.workloads.laws import sampler
from slotwise.workloads.residuals import residuals


def scenario(count: int = 4, **run: Any) -> Any:
    """Servers for two jobs each; hardly anything arrives."""
    return parse_scenario(
        {
            "name": "x",
            "cluster": {"resources": ["r"], "servers": [{"name": "s", "count": count, "capacity": [2]}]},
            "types": [
                {"name": "one", "demand": [1], "rate": 1e-9, "mean_service": 2.0},
                {"name": "two", "demand": [2], "rate": 1e-9, "service": {"law": "deterministic"}},
            ],
            "run": {"until": 50.0, "replications": 1, "seed": 5, **run},
        }
    )


def live(made: Any, policy: str = "first-fit") -> Scheduler:
    return Scheduler(made.cluster, made.types, policy)


LAWS = [
    Exponential(law="exponential"),
    Deterministic(law="deterministic"),
    Lognormal(law="lognormal", sigma=1.2),
    Weibull(law="weibull", shape=0.6),
    Weibull(law="weibull", shape=2.0),
    Pareto(law="pareto", shape=2.5),
    Hyperexponential(law="hyperexponential", scv=4.0),
    Empirical(law="empirical", values=(1.0, 2.0, 3.0, 10.0)),
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.law} {getattr(law, 'shape', '')}")
@pytest.mark.parametrize("age", [0.0, 0.4, 1.7])
def test_what_is_left_is_what_the_law_says_given_the_age(law: Any, age: float) -> None:
    """Against plain rejection: draws that are longer than the age, less the age."""
    mean, n = 3.0, 40_000
    draws = mean * sampler(law, np.random.SeedSequence(1))(10 * n)
    longer = draws[draws > mean * age] - mean * age
    left = residuals(law, mean, np.full(n, mean * age), np.random.default_rng(2))
    assert (left >= 0).all()
    if len(longer) == 0:
        assert (left == 0).all()
        return
    for share in (0.1, 0.5, 0.9):
        edge = np.quantile(longer, share, method="inverted_cdf") + 1e-9
        found, right = (left <= edge).mean(), (longer <= edge).mean()
        assert found == pytest.approx(right, abs=5 * np.sqrt(0.25 / min(n, len(longer))))


def test_running_jobs_go_on_with_their_age_and_waiting_ones_in_order() -> None:
    made = scenario(1)
    scheduler = live(made)
    scheduler.submit("a", "two", now=10.0)
    for n in range(3):
        scheduler.submit(n, "two", now=10.1 + n / 10)
    scheduler.complete("a", now=10.6)  # 0 starts
    scheduler.submit("late", "one", now=10.8)
    result = slotwise.simulate(made, from_=scheduler.situation(), record_jobs=True)
    rows = result.jobs().sort("arrival").to_dicts()
    assert [row["type"] for row in rows] == ["two", "two", "two", "one"]
    # of the first, 0.2 have passed: it ends at 0.8, then 1 and 2 run for 1 each
    assert [row["arrival"] for row in rows] == pytest.approx([-0.7, -0.6, -0.5, 0.0])
    assert [row["start"] for row in rows] == pytest.approx([-0.2, 0.8, 1.8, 2.8])
    assert [row["end"] for row in rows][:3] == pytest.approx([0.8, 1.8, 2.8])
    assert [row["server"] for row in rows] == [0, 0, 0, 0]


def test_the_first_of_a_line_waits_as_long_as_theory_says() -> None:
    """With 8 exponential jobs of mean 2 running, the first start is at Exp(8 / 2), whatever their ages; the k-th at a sum of k."""
    made = scenario(4, replications=400)
    scheduler = live(made)
    for n in range(11):
        scheduler.submit(n, "one", now=n / 100)
    result = slotwise.simulate(made, from_=scheduler.situation(), record_jobs=True)
    starts = np.array([result.jobs(k)["start"].to_numpy()[8:11] for k in range(400)])
    for k in range(3):
        assert starts[:, k].mean() == pytest.approx((k + 1) / 4, abs=4 * np.sqrt(k + 1) / 4 / 20)


@pytest.mark.parametrize(
    "policy", ["guarded", "algorithm1", "best-fit", "random-fit", "fifo", "easy-backfill", "m14"]
)
def test_what_is_foreseen_is_what_the_scheduler_then_does(policy: str) -> None:
    """With durations known and nothing to come, the simulator and the live scheduler go on alike, job for job and server for server."""
    made = scenario(4)
    scheduler = live(made, policy)
    rng = np.random.default_rng(3)
    ends: list[tuple[float, Any]] = []

    def note(outcome: Any, now: float) -> None:
        for job, *_ in outcome.placements:
            heapq.heappush(ends, (now + lasting[job], job))

    lasting: dict[Any, float] = {}
    now = 0.0
    for n in range(60):
        now += float(rng.exponential(0.1))
        while ends and ends[0][0] <= now:
            end, job = heapq.heappop(ends)
            note(scheduler.apply(Complete(job, end)), end)
        lasting[n] = float(rng.exponential(1.0)) + 0.1
        note(scheduler.apply(Submit(n, ("one", "two")[n % 3 == 0], now, None, lasting[n])), now)
    note(scheduler.apply(Drain("s-2", now)), now)
    situation = scheduler.situation()
    assert len(situation.waiting.job) > 10
    names = dict(zip(situation.servers.number, situation.servers.name, strict=True))
    both = [*zip(situation.waiting.submitted, situation.waiting.job, strict=True)]
    both += [*zip(situation.running.submitted, situation.running.job, strict=True)]
    frame = slotwise.simulate(made, from_=situation, record_jobs=True).jobs()
    foreseen = {
        job: (row["start"] + situation.now, names[row["server"]])
        for (_, job), row in zip(sorted(both), frame.to_dicts(), strict=True)
    }
    if policy == "random-fit":
        assert len(foreseen) == len(both)
        return  # a run draws its own chances
    actual = dict(scheduler.running)
    when = dict(zip(situation.running.job, situation.running.started, strict=True))
    while ends:
        end, job = heapq.heappop(ends)
        outcome = scheduler.apply(Complete(job, end))
        note(outcome, end)
        when |= dict.fromkeys((p.job for p in outcome.placements), end)
        actual |= {p.job: p.server for p in outcome.placements}
    for job, (start, server) in foreseen.items():
        assert when[job] == pytest.approx(start, abs=1e-9), job
        if policy != "algorithm1":  # ties by chance, and a run draws its own
            assert actual[job] == server, job


def test_another_policy_and_more_servers_as_a_what_if() -> None:
    made = scenario(2)
    scheduler = live(made, "fifo")
    for n in range(6):
        scheduler.submit(n, "two", now=0.0)
    situation = scheduler.situation()
    joins = (ServerEvent(at=0.5, action="join", servers="s", count=2),)
    larger = made.model_copy(update={"cluster": made.cluster.model_copy(update={"events": joins})})
    last = {}
    for name, where, policy in (("stay", made, None), ("other", made, "best-fit"), ("more", larger, None)):
        last[name] = slotwise.simulate(where, policy, from_=situation, record_jobs=True).jobs()["start"].max()
    assert last == pytest.approx({"stay": 2.0, "other": 2.0, "more": 1.0})


def test_what_cannot_be_looked_ahead_from_is_refused() -> None:
    made = scenario()
    scheduler = live(made)
    scheduler.submit("a", "one", now=1.0)
    situation = scheduler.situation()
    with pytest.raises(InputError, match="does not say how far to look ahead; set run.until"):
        slotwise.simulate(
            made.model_copy(update={"run": made.run.model_copy(update={"until": None})}), from_=situation
        )
    cluster = made.cluster.model_copy(update={"resources": ("cpu",)})
    with pytest.raises(InputError, match="are cpu, but those of the situation r"):
        slotwise.simulate(made.model_copy(update={"cluster": cluster}), from_=situation)
    renamed = made.cluster.servers[0].model_copy(update={"name": "t"})
    cluster = made.cluster.model_copy(update={"servers": (renamed,)})
    with pytest.raises(InputError, match="no server class is called 's', of which the situation has servers"):
        slotwise.simulate(made.model_copy(update={"cluster": cluster}), from_=situation)
