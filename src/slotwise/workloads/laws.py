"""What the laws of a scenario mean: mean-one draws, and the moments that theory needs.

A law is a shape. X = m U, where U >= 0 has mean one and the law's shape, and m is the type's own mean (1 / rate for
a gap, mean_service for a service time). With c^2 = Var U, the squared coefficient of variation (scv), E[X^2] =
m^2 (1 + c^2):

    law               U                                               c^2
    exponential       E, the unit exponential                         1
    deterministic     1                                               0
    hyperexponential  m_i E with probability p_i, sum p_i m_i = 1     2 sum p_i m_i^2 - 1
    lognormal         exp(sigma Z - sigma^2 / 2), Z standard normal   exp(sigma^2) - 1
    weibull           E^(1/k) / Gamma(1 + 1/k)                        Gamma(1 + 2/k) / Gamma(1 + 1/k)^2 - 1
    pareto            (1 - 1/a) exp(E / a)                            1 / (a (a - 2)), infinite for a <= 2
    empirical         v / mean(v), v any of the values                mean(v^2) / mean(v)^2 - 1

The draws of a sampler are one sequence: n and then m of them are the same numbers as n + m at once. This is why
only distributions are used that NumPy draws value by value, and each value that needs two variates takes them from
two generators.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.random import Generator, SeedSequence
from numpy.typing import NDArray

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
from slotwise.model.scenario import Scenario

# The next n values of a sequence of independent draws, as an array that the caller may change.
Sampler = Callable[[int], NDArray[np.float64]]


def child(seed: SeedSequence, *key: int) -> SeedSequence:
    """Return the seed of the stream `key` below `seed`; unlike `seed.spawn`, this depends on no earlier call."""
    return SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, *key), pool_size=seed.pool_size)


def generator(seed: SeedSequence, *key: int) -> Generator:
    """Return the generator of the stream `key` below `seed`."""
    return np.random.default_rng(child(seed, *key))


def arrival_law(scenario: Scenario, j: int) -> Law:
    """Return the law by which type j arrives: its own, or else the workload's."""
    return scenario.types[j].arrivals or scenario.workload.arrivals


def service_law(scenario: Scenario, j: int) -> Law:
    """Return the law of the service times of type j: its own, or else the workload's."""
    return scenario.types[j].service or scenario.workload.service


def effective_rates(scenario: Scenario) -> NDArray[np.float64]:
    """Return lambda_j as the scenario gives them, before scaling to an intensity; with batches, rate * sum_b p_b v_bj."""
    arrivals = scenario.workload.arrivals
    if isinstance(arrivals, BatchArrivals):
        probability = np.array([batch.probability for batch in arrivals.batches])
        return np.asarray(arrivals.rate * (probability @ batch_vectors(scenario, arrivals)), dtype=np.float64)
    return np.array([job_type.rate or 0.0 for job_type in scenario.types], dtype=np.float64)


def batch_vectors(scenario: Scenario, arrivals: BatchArrivals) -> NDArray[np.int64]:
    """Return v_bj, the jobs of type j in a request with batch b, shape (batches, J)."""
    return np.array(
        [[batch.jobs.get(job_type.name, 0) for job_type in scenario.types] for batch in arrivals.batches],
        dtype=np.int64,
    )


def sampler(law: Law, seed: SeedSequence) -> Sampler:
    """Return draws of U, the law scaled to mean one. The sequence depends on the law and the seed only."""
    rng = generator(seed, 0)
    match law:
        case Poisson() | Exponential():
            return rng.standard_exponential
        case Deterministic():
            return np.ones
        case Lognormal(sigma=sigma):
            return lambda n: rng.lognormal(-0.5 * sigma * sigma, sigma, n)
        case Hyperexponential():
            return _hyperexponential(law, rng, generator(seed, 1))
        case Weibull(shape=shape):
            mean = _mean_of_weibull(shape)
            return lambda n: rng.weibull(shape, n) / mean
        case Pareto(shape=shape):
            return lambda n: (rng.pareto(shape, n) + 1) * (1 - 1 / shape)
        case Empirical(values=values):
            unit = np.array(values) / math.fsum(values) * len(values)
            return lambda n: unit[(rng.random(n) * len(unit)).astype(np.int64)]
    raise TypeError(f"{type(law).__name__} is not a law of independent draws")


def _hyperexponential(law: Hyperexponential, rng: Generator, phase: Generator) -> Sampler:
    probabilities, means = np.array(law.phases()).T
    upto = np.cumsum(probabilities)[:-1]  # the last phase takes what rounding leaves

    def draw(n: int) -> NDArray[np.float64]:
        values = rng.standard_exponential(n)
        values *= means[np.searchsorted(upto, phase.random(n), side="right")]
        return values

    return draw


def _mean_of_weibull(shape: float) -> float:
    mean = _exp(math.lgamma(1 + 1 / shape))
    if math.isinf(mean):
        raise InputError(
            f"a Weibull law of shape {shape:g} has draws beyond any float",
            where="law.shape",
            remedy="use 0.01 or more",
        )
    return mean


def scv(law: Law) -> float:
    """Return c^2 = Var X / E[X]^2 of a gap or a service time; infinite if the second moment does not exist."""
    match law:
        case Poisson() | Exponential():
            return 1.0
        case Deterministic():
            return 0.0
        case Lognormal(sigma=sigma):
            return _exp(sigma * sigma) - 1
        case Hyperexponential():
            return 2 * math.fsum(p * m * m for p, m in law.phases()) - 1
        case Weibull(shape=shape):
            return _exp(math.lgamma(1 + 2 / shape) - 2 * math.lgamma(1 + 1 / shape)) - 1
        case Pareto(shape=shape):
            return 1 / (shape * (shape - 2)) if shape > 2 else math.inf
        case Empirical(values=values):
            mean = math.fsum(values) / len(values)
            return math.fsum((value / mean - 1) ** 2 for value in values) / len(values)
    raise TypeError(f"the gaps of {type(law).__name__} are not independent draws")


def second_moment(law: Law, mean: float) -> float:
    """Return E[X^2] = mean^2 (1 + c^2), infinite where it does not exist."""
    return mean * mean * (1 + scv(law))


def is_exponential(law: Law) -> bool:
    """Return whether gaps or service times are exponential, under whatever name."""
    match law:
        case Poisson() | Exponential():
            return True
        case Hyperexponential():
            return all(abs(m - 1) < 1e-12 for _, m in law.phases())
        case Weibull(shape=shape):
            return shape == 1
    return False


def is_poisson(law: Law) -> bool:
    """Return whether single jobs of a type arrive as a Poisson process, under whatever name."""
    if isinstance(law, MarkovModulated):
        return len(set(law.rates)) == 1
    return is_exponential(law)


def is_hyperexponential(law: Law) -> bool:
    """Return whether the service times are those of section 5.1 of the paper: a mixture of exponentials (or just one)."""
    return isinstance(law, Hyperexponential) or is_exponential(law)


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else math.inf
