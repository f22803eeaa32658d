"""Quantities of Kubernetes ("100m", "1.5Gi", 2) as exact numbers, and as the amounts the scheduler counts in.

The scheduler counts CPUs in thousandths, memory and storage in MiB, everything else in whole pieces. A demand is rounded up and a capacity
down, so a rounded demand that fits a rounded capacity fits the node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache
from typing import Any

from slotwise.errors import InputError

MIB = Decimal(1 << 20)
UNITS = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12), "P": Decimal(10**15), "E": Decimal(10**18),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40), "Pi": Decimal(2**50), "Ei": Decimal(2**60),
}  # fmt: skip
FORM = re.compile(r"([+-]?\d+\.?\d*|[+-]?\.\d+)(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)")


@lru_cache(maxsize=4096)
def quantity(text: Any) -> Decimal:
    """Return the exact value of a quantity.

    >>> quantity("100m"), quantity("1.5Gi"), quantity("2e3"), quantity(4)
    (Decimal('0.100'), Decimal('1610612736.0'), Decimal('2E+3'), Decimal('4'))
    """
    match = FORM.fullmatch(str(text))
    if match is None:
        raise InputError(f"{text!r} is no quantity", where="resources", remedy='write it like "100m" or "1.5Gi"')
    number, exponent, unit = match.groups()
    return Decimal(number + (exponent or "")) * UNITS[unit or ""]


def amount(resource: str, value: Decimal, *, up: bool) -> Decimal:
    """Return a value in the units of the scheduler, rounded up for a demand and down for a capacity."""
    rounding = ROUND_CEILING if up else ROUND_FLOOR
    if resource == "cpu":
        return value.quantize(Decimal("0.001"), rounding)
    if is_bytes(resource):
        value /= MIB
    return value.to_integral_value(rounding)


def is_bytes(resource: str) -> bool:
    """Return whether a resource is counted in bytes."""
    return resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")


def amounts(values: Mapping[str, Decimal], *, up: bool) -> dict[str, Decimal]:
    """Return values in the units of the scheduler."""
    return {name: amount(name, value, up=up) for name, value in values.items()}


def quantities(values: Mapping[str, Any] | None) -> dict[str, Decimal]:
    """Return the exact values of a resource list."""
    return {name: quantity(value) for name, value in (values or {}).items()}
