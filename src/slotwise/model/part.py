"""The base of all parts of a scenario, and the kinds of numbers and texts that they are made of."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from slotwise.model.laws import LARGEST

Size = Annotated[Decimal, Field(ge=0, allow_inf_nan=False, max_digits=24)]
Name = Annotated[str, Field(min_length=1)]
Positive = Annotated[float, Field(gt=0, le=LARGEST, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]


class Part(BaseModel):
    """A part of a scenario: immutable, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)
