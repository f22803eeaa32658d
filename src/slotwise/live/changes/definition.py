"""What a type or a class is apart from its name: amounts of resources, requirements, labels; and what fits where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from slotwise.model import JobType, ServerClass
from slotwise.model.labels import matches

# Amounts by resource. A missing resource counts as 0.
Amounts = dict[str, Decimal]


def amounts(resources: Sequence[str], sizes: Sequence[Decimal]) -> Amounts:
    """Return the sizes by resource, without zeros."""
    return {name: size for name, size in zip(resources, sizes, strict=True) if size}


def in_order(found: Amounts, resources: Sequence[str]) -> tuple[Decimal, ...]:
    """Return the amounts in the order of the resources; an amount of a resource that is not among them is dropped."""
    return tuple(found.get(name, Decimal(0)) for name in resources)


def units(row: Sequence[int], resources: Sequence[str], digits: Sequence[int]) -> Amounts:
    """Return the amounts that whole units of 10^-digits stand for."""
    return {name: Decimal(n).scaleb(-d) for name, n, d in zip(resources, row, digits, strict=True) if n}


def covers(large: Amounts, small: Amounts) -> bool:
    """Return whether the large amounts are enough of every resource."""
    return all(amount <= large.get(name, 0) for name, amount in small.items())


def total(parts: Iterable[Amounts]) -> Amounts:
    """Return the sum of amounts."""
    found: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            found[name] = found.get(name, Decimal(0)) + amount
    return found


class Definitions:
    """Types and classes over the same resources."""

    def __init__(self, resources: Sequence[str], types: Iterable[JobType], classes: Iterable[ServerClass]) -> None:
        self.resources = list(resources)
        self.types = {one.name: one for one in types}
        self.classes = {one.name: one for one in classes}

    def demand(self, name: str) -> Amounts:
        """Return what a job of a type demands."""
        return amounts(self.resources, self.types[name].demand)

    def capacity(self, name: str) -> Amounts:
        """Return what a server of a class has."""
        return amounts(self.resources, self.classes[name].capacity)

    def of_type(self, name: str) -> tuple[Any, ...]:
        """Return all of a type that matters for where its jobs fit."""
        return self.demand(name), dict(self.types[name].requires)

    def of_class(self, name: str) -> tuple[Any, ...]:
        """Return all of a class that matters for what fits on its servers."""
        return self.capacity(name), dict(self.classes[name].labels)

    def holds(self, server_class: str, jobs: Sequence[tuple[Mapping[str, Sequence[str]], Amounts]]) -> bool:
        """Return whether one server of a class can hold jobs, each with its requirements and its demand."""
        labels = self.classes[server_class].labels
        return covers(self.capacity(server_class), total(demand for _, demand in jobs)) and all(
            matches(requires, labels) for requires, _ in jobs
        )
