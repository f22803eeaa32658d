"""How much longer a job runs that has run for so long already: S - a given S > a.

    exponential         as a new one
    hyperexponential    the phase i with probability in proportion to p_i exp(-a / m_i), then as a new one of that phase
    weibull             S^k = a^k + Exp in the law's own unit
    pareto              S = a times a new one of scale 1, once a is above the least value
    lognormal           by its inverse, above the share of jobs that are done by then
    empirical           any of the values that are longer
    deterministic       what is left

Where a law says that no job runs so long, the job ends at once.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from slotwise.model.laws import (
    Deterministic,
    Empirical,
    Exponential,
    Hyperexponential,
    Law,
    Lognormal,
    Pareto,
    Poisson,
    Weibull,
)

F8 = NDArray[np.float64]


def residuals(law: Law, mean: float, ages: F8, rng: Generator) -> F8:
    """Draw one residual for each age, from a service law with this mean."""
    age, n = np.maximum(ages, 0.0) / mean, len(ages)
    match law:
        case Poisson() | Exponential():
            left = rng.standard_exponential(n)
        case Deterministic():
            left = 1.0 - age
        case Hyperexponential():
            left = _hyperexponential(law, age, rng)
        case Weibull(shape=shape):
            own = math.exp(math.lgamma(1 + 1 / shape))
            left = ((age * own) ** shape + rng.standard_exponential(n)) ** (1 / shape) / own - age
        case Pareto(shape=shape):
            least = 1 - 1 / shape
            left = np.maximum(age, least) * (rng.pareto(shape, n) + 1) - age
        case Lognormal(sigma=sigma):
            left = _lognormal(sigma, age, rng)
        case Empirical(values=values):
            unit = np.sort(np.array(values) / math.fsum(values) * len(values))
            first = np.searchsorted(unit, age, side="right")
            pick = first + (rng.random(n) * (len(unit) - first)).astype(np.int64)
            left = np.where(first < len(unit), unit[np.minimum(pick, len(unit) - 1)] - age, 0.0)
        case _:
            raise TypeError(f"{type(law).__name__} is not a law of service times")
    return mean * np.maximum(left, 0.0)


def _hyperexponential(law: Hyperexponential, age: F8, rng: Generator) -> F8:
    probability, mean = np.array(law.phases()).T
    log = np.log(probability)[None, :] - age[:, None] / mean[None, :]
    weight = np.exp(log - log.max(axis=1, keepdims=True))
    upto = np.cumsum(weight / weight.sum(axis=1, keepdims=True), axis=1)
    phase = np.minimum((rng.random(len(age))[:, None] > upto).sum(axis=1), len(mean) - 1)
    return np.asarray(rng.standard_exponential(len(age)) * mean[phase])


def _lognormal(sigma: float, age: F8, rng: Generator) -> F8:
    # log S is normal; its upper tail at log a, times a uniform number, is the tail at the log of a draw that is longer
    shift = -0.5 * sigma * sigma
    with np.errstate(divide="ignore"):
        z = (np.log(age) - shift) / sigma
    tail = ndtr(-z) * (1.0 - rng.random(len(age)))
    longer = np.exp(shift - sigma * ndtri(np.maximum(tail, 1e-300)))
    return np.asarray(longer - age)
