"""Arrival and service laws as a scenario names them; `slotwise.workloads` draws from them.

Every law is a shape: the mean comes from the type (1 / rate, mean_service), so that changing the law keeps the
load.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

# numbers beyond these overflow, or vanish, when they are multiplied: another unit would be better
LARGEST, SMALLEST = 1e30, 1e-30
MOST_SIGMA = 10.0  # beyond it the mean of a log-normal law comes from values that are never drawn
MOST_SCV = 1e9
MOST_BATCH = 1_000_000  # jobs of a type in one batch
Positive = Annotated[float, Field(gt=0, le=LARGEST, allow_inf_nan=False)]
Probability = Annotated[float, Field(gt=0, le=1)]


class Law(BaseModel):
    """What all laws share: immutable, and no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Poisson(Law):
    """Independent exponential gaps."""

    law: Literal["poisson"] = "poisson"


class Exponential(Law):
    """Exponential service times."""

    law: Literal["exponential"] = "exponential"


class Deterministic(Law):
    """Every gap, or every service time, equals its mean."""

    law: Literal["deterministic"]


class Lognormal(Law):
    """Log-normal with the standard deviation `sigma` of the logarithm; the mean is kept."""

    law: Literal["lognormal"]
    sigma: Annotated[float, Field(gt=0, le=MOST_SIGMA, allow_inf_nan=False)] = Field(
        1.0, description="standard deviation of the logarithm"
    )


class Hyperexponential(Law):
    """A mixture of exponentials: with probability p_i the mean is m_i times the type's mean (sum p_i m_i = 1).

    Give `probabilities` and `means` (relative; scaled so that the mean is kept), or `scv`, the squared coefficient
    of variation, for the two-phase law with balanced means.
    """

    law: Literal["hyperexponential"]
    scv: Annotated[float, Field(ge=1, le=MOST_SCV, allow_inf_nan=False)] | None = Field(
        None, description="squared coefficient of variation, 1 or more"
    )
    probabilities: tuple[Probability, ...] | None = None
    means: tuple[Positive, ...] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Hyperexponential:
        phases = self.probabilities is not None or self.means is not None
        if phases == (self.scv is not None):
            raise ValueError("needs one way to say its shape; give either scv, or probabilities and means")
        if phases:
            if self.probabilities is None or self.means is None:
                raise ValueError("has only one of probabilities and means; give both")
            if len(self.probabilities) != len(self.means):
                raise ValueError(
                    f"has {len(self.means)} means for {len(self.probabilities)} probabilities; give one for each"
                )
            if abs(sum(self.probabilities) - 1) > 1e-9:
                raise ValueError(f"the probabilities add up to {sum(self.probabilities):g}; make them add up to 1")
        return self

    def phases(self) -> list[tuple[float, float]]:
        """(p_i, m_i) with sum p_i m_i = 1."""
        if self.probabilities is not None and self.means is not None:
            mean = sum(p * m for p, m in zip(self.probabilities, self.means, strict=True))
            return [(p, m / mean) for p, m in zip(self.probabilities, self.means, strict=True)]
        scv = self.scv or 1.0
        p = 0.5 * (1 + ((scv - 1) / (scv + 1)) ** 0.5)
        return [(p, 1 / (2 * p)), (1 - p, 1 / (2 * (1 - p)))] if p < 1 else [(1.0, 1.0)]


class Weibull(Law):
    """Weibull with the given shape (below 1: heavier than exponential)."""

    law: Literal["weibull"]
    shape: Positive


class Pareto(Law):
    """Pareto, P(S > x) = (x_m / x)^shape; the shape must be above 1 for the mean to exist."""

    law: Literal["pareto"]
    shape: Annotated[float, Field(gt=1, le=LARGEST, allow_inf_nan=False)]


class Empirical(Law):
    """Values drawn with replacement, scaled to the type's mean."""

    law: Literal["empirical"]
    values: tuple[Positive, ...] = Field(min_length=1)


class MarkovModulated(Law):
    """A Poisson process whose rate follows a Markov chain. In state i the rate is rates[i] times the type's rate,
    scaled so that the long-run mean is kept. The sojourn in state i is exponential with mean sojourns[i]; each other
    state is the next with equal probability. One chain drives all types that share the law."""

    law: Literal["mmpp"]
    rates: tuple[Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)], ...] = Field(min_length=2)
    sojourns: tuple[Positive, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _shapes(self) -> MarkovModulated:
        if len(self.rates) != len(self.sojourns):
            raise ValueError(f"has {len(self.sojourns)} sojourns for {len(self.rates)} rates; give one for each")
        if not any(self.rates):
            raise ValueError("all rates are 0, so nothing arrives; give at least one above 0")
        return self


class BatchKind(Law):
    """One thing that a request may bring: `jobs` of each type, with a probability."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    probability: Probability
    jobs: dict[str, Annotated[int, Field(ge=0, le=MOST_BATCH)]] = Field(min_length=1)


class BatchArrivals(Law):
    """Requests arrive as a Poisson process of the given rate, each with one of the batches (section 5.2)."""

    law: Literal["batch"]
    rate: Positive = Field(description="requests per unit time")
    batches: tuple[BatchKind, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _adds_up(self) -> BatchArrivals:
        total = sum(batch.probability for batch in self.batches)
        if abs(total - 1) > 1e-9:
            raise ValueError(f"the probabilities of the batches add up to {total:g}; make them add up to 1")
        return self


ArrivalLaw = Annotated[
    Poisson | Lognormal | Deterministic | Hyperexponential | MarkovModulated | BatchArrivals,
    Field(discriminator="law"),
]
ServiceLaw = Annotated[
    Exponential | Hyperexponential | Lognormal | Weibull | Pareto | Deterministic | Empirical,
    Field(discriminator="law"),
]
