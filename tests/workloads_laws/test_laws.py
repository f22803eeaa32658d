"""Every law against its closed form.

Draws have fixed seeds; each comparison allows 4 standard errors of the estimate (two-sided 6e-5 under the law), so
that a wrong formula fails and another seed would pass just as well.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.random import SeedSequence
from scipy import stats

from slotwise.errors import InputError
from slotwise.model.laws import (
    BatchArrivals,
    Deterministic,
    Empirical,
    Exponential,
    Hyperexponential,
    Law,
    Lognormal,
    MarkovModulated,
    Pareto,
    Poisson,
    Weibull,
)
from slotwise.workloads.laws import (
    child,
    is_exponential,
    is_hyperexponential,
    is_poisson,
    sampler,
    scv,
    second_moment,
)

N = 200_000
PHASES = Hyperexponential(law="hyperexponential", probabilities=(0.2, 0.3, 0.5), means=(5.0, 1.0, 0.5))
BALANCED = Hyperexponential(law="hyperexponential", scv=4.0)
EMPIRICAL = Empirical(law="empirical", values=(1.0, 2.0, 2.0, 7.0))


def _weibull(shape: float) -> stats.rv_continuous:
    return stats.weibull_min(shape, scale=1 / math.gamma(1 + 1 / shape))


CONTINUOUS: list[tuple[Law, object]] = [
    (Poisson(), stats.expon()),
    (Exponential(), stats.expon()),
    (Lognormal(law="lognormal", sigma=0.7), stats.lognorm(0.7, scale=math.exp(-(0.7**2) / 2))),
    (Weibull(law="weibull", shape=2.0), _weibull(2.0)),
    (Weibull(law="weibull", shape=0.7), _weibull(0.7)),
    (Pareto(law="pareto", shape=2.5), stats.pareto(2.5, scale=1.5 / 2.5)),
    (Pareto(law="pareto", shape=5.5), stats.pareto(5.5, scale=4.5 / 5.5)),
]


@pytest.mark.parametrize(("law", "exact"), CONTINUOUS, ids=lambda x: getattr(x, "law", None) and repr(x))
def test_distribution(law: Law, exact: stats.rv_continuous) -> None:
    draws = sampler(law, SeedSequence(5))(N)
    assert exact.mean() == pytest.approx(1)
    assert scv(law) == pytest.approx(exact.var())
    # The Kolmogorov-Smirnov distance; 2.3 / sqrt(n) is exceeded with probability 5e-5.
    assert stats.kstest(draws, exact.cdf).statistic < 2.3 / math.sqrt(N)
    assert abs(draws.mean() - 1) < 4 * math.sqrt(exact.var() / N)
    for p in (0.1, 0.5, 0.9, 0.99):
        x = exact.ppf(p)
        assert abs(np.quantile(draws, p) - x) < 4 * math.sqrt(p * (1 - p) / N) / exact.pdf(x)


@pytest.mark.parametrize("law", [PHASES, BALANCED, Hyperexponential(law="hyperexponential", scv=1.0)], ids=repr)
def test_hyperexponential(law: Hyperexponential) -> None:
    phases = law.phases()

    def cdf(x: np.ndarray) -> np.ndarray:
        return 1 - sum(p * np.exp(-x / m) for p, m in phases)

    draws = sampler(law, SeedSequence(6))(N)
    assert stats.kstest(draws, cdf).statistic < 2.3 / math.sqrt(N)
    moment = [sum(p * math.factorial(k) * m**k for p, m in phases) for k in range(5)]
    assert moment[1] == pytest.approx(1)
    assert scv(law) == pytest.approx(moment[2] - 1)
    assert abs(draws.mean() - 1) < 4 * math.sqrt((moment[2] - 1) / N)
    assert abs((draws**2).mean() - moment[2]) < 4 * math.sqrt((moment[4] - moment[2] ** 2) / N)


def test_scv_that_was_asked_for() -> None:
    assert scv(BALANCED) == pytest.approx(4)


def test_deterministic_and_empirical() -> None:
    constant = Deterministic(law="deterministic")
    assert (sampler(constant, SeedSequence(1))(10) == 1).all()
    assert scv(constant) == 0
    draws = sampler(EMPIRICAL, SeedSequence(1))(N)
    values, counts = np.unique(draws, return_counts=True)
    assert values == pytest.approx([1 / 3, 2 / 3, 7 / 3])
    for count, p in zip(counts, (0.25, 0.5, 0.25), strict=True):
        assert abs(count - N * p) < 4 * math.sqrt(N * p * (1 - p))
    assert scv(EMPIRICAL) == pytest.approx(np.var([1, 2, 2, 7]) / 9)


def test_second_moments() -> None:
    assert second_moment(Exponential(), 3.0) == pytest.approx(18)
    assert second_moment(Deterministic(law="deterministic"), 3.0) == 9
    assert second_moment(Pareto(law="pareto", shape=2.0), 1.0) == math.inf
    assert second_moment(Pareto(law="pareto", shape=3.0), 2.0) == pytest.approx(4 * (1 + 1 / 3))
    assert second_moment(Lognormal(law="lognormal", sigma=10.0), 1.0) == pytest.approx(
        math.exp(100.0)
    )  # and no more is taken
    assert second_moment(EMPIRICAL, 6.0) == pytest.approx(4 * np.mean([1, 4, 4, 49]))


def test_names_do_not_matter_for_what_is_exponential() -> None:
    one = Hyperexponential(law="hyperexponential", probabilities=(0.4, 0.6), means=(2.0, 2.0))
    assert is_exponential(Exponential())
    assert is_exponential(one)
    assert is_exponential(Hyperexponential(law="hyperexponential", scv=1.0))
    assert is_exponential(Weibull(law="weibull", shape=1.0))
    assert not is_exponential(BALANCED)
    assert not is_exponential(Deterministic(law="deterministic"))
    assert is_hyperexponential(BALANCED)
    assert not is_hyperexponential(EMPIRICAL)
    assert is_poisson(Poisson())
    assert is_poisson(MarkovModulated(law="mmpp", rates=(2, 2), sojourns=(1, 5)))
    assert not is_poisson(MarkovModulated(law="mmpp", rates=(2, 1), sojourns=(1, 5)))
    batch = {"law": "batch", "rate": 1, "batches": [{"probability": 1, "jobs": {"a": 1}}]}
    assert not is_poisson(BatchArrivals.model_validate(batch))


def test_laws_without_independent_gaps_are_refused() -> None:
    law = MarkovModulated(law="mmpp", rates=(2, 1), sojourns=(1, 5))
    with pytest.raises(TypeError, match="MarkovModulated"):
        sampler(law, SeedSequence(1))
    with pytest.raises(TypeError, match="MarkovModulated"):
        scv(law)
    with pytest.raises(InputError, match=r"shape 0\.001"):
        sampler(Weibull(law="weibull", shape=0.001), SeedSequence(1))


def test_draws_are_one_sequence() -> None:
    """Asking in pieces changes nothing, to the last bit."""
    laws = [law for law, _ in CONTINUOUS] + [PHASES, BALANCED, EMPIRICAL, Deterministic(law="deterministic")]
    for law in laws:
        whole = sampler(law, SeedSequence(3))(1000)
        draw = sampler(law, SeedSequence(3))
        pieces = np.concatenate([draw(n) for n in (1, 7, 0, 500, 3, 489)])
        assert np.array_equal(whole, pieces), law


def test_children_depend_on_the_key_only() -> None:
    seed = SeedSequence(7)
    first = child(seed, 1, 4).generate_state(4)
    seed.spawn(3)
    assert np.array_equal(first, child(seed, 1, 4).generate_state(4))
    assert not np.array_equal(first, child(seed, 4, 1).generate_state(4))
    below = child(SeedSequence(7, spawn_key=(1,)), 4)
    assert np.array_equal(first, below.generate_state(4))
