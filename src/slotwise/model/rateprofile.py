"""Rates that change over a day, a week or another period: what a scenario says of them."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from slotwise.model.units import SECONDS

PERIODS: dict[str, float] = {"day": SECONDS["d"], "week": 7 * SECONDS["d"]}  # in seconds
MOST_STEPS = 10_000


class RateProfile(BaseModel):
    """Rates that rise and fall in steps, period after period. A type's `rate` stays its mean over the period."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    period: Annotated[float, Field(gt=0, le=1e30, allow_inf_nan=False)] | Literal["day", "week"] = Field(
        description='the time after which all begins anew; "day" and "week" where there is a time_unit'
    )
    rates: tuple[Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False)], ...] = Field(
        min_length=1,
        max_length=MOST_STEPS,
        description="step by step, what the rate is multiplied by (scaled so that the mean over the period is 1)",
    )
    lengths: tuple[Annotated[float, Field(gt=0, le=1e30, allow_inf_nan=False)], ...] | None = Field(
        None, description="how long the steps are, relative to each other; equal by default"
    )

    @model_validator(mode="after")
    def _shapes(self) -> RateProfile:
        if self.lengths is not None and len(self.lengths) != len(self.rates):
            raise ValueError(f"has {len(self.lengths)} lengths for {len(self.rates)} rates; give one for each")
        if not any(self.rates):
            raise ValueError("all rates are 0, so nothing arrives; give at least one above 0")
        return self

    def span(self, time_unit: str | None) -> float:
        """Return the period in the scenario's unit of time."""
        if isinstance(self.period, float):
            return self.period
        return PERIODS[self.period] / SECONDS[time_unit or "s"]


def is_whole(ratio: float) -> bool:
    """Return whether one period holds another a whole number of times."""
    return math.isclose(ratio, round(ratio), rel_tol=1e-9) and round(ratio) >= 1
