"""Quotas: how much work of a tenant `slotwise serve` admits to its queues, and how much of it may wait.

Amounts are of resources of the cluster, and of `jobs`, which counts jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from slotwise.errors import InputError
from slotwise.model.part import Name, Part, Size

JOBS = "jobs"  # the amount that counts jobs
EACH_OTHER = "*"  # each tenant without a quota of its own
MOST_QUOTAS = 1_000
Amounts = Annotated[dict[Name, Size], Field(max_length=100)]


class Quota(Part):
    """What one tenant may have at the same time."""

    tenant: Name = Field(description='the tenant, as tokens name it; `"*"`: each tenant without a quota of its own')
    active: Amounts = Field(
        {},
        description="at most so much in jobs that run or may start, by resource or `jobs`; jobs beyond it are held",
    )
    waiting: Amounts = Field(
        {},
        description="at most so much in jobs that wait or are held, by resource or `jobs`; submissions beyond it are refused",
    )


def check_quotas(quotas: Sequence[Quota], resources: Sequence[str]) -> None:
    """Raise InputError for tenants that occur twice, for unknown resources and for quotas that limit nothing."""
    twice = [name for name, count in Counter(one.tenant for one in quotas).items() if count > 1]
    if twice:
        raise InputError(f"{twice[0]!r} is listed twice", where="quotas", remedy="list each tenant once")
    if len(quotas) > MOST_QUOTAS:
        raise InputError(f"has {len(quotas):,} tenants", where="quotas", remedy=f"list at most {MOST_QUOTAS:,}")
    for one in quotas:
        where = f"quotas ({one.tenant})"
        for what, amounts in (("active", one.active), ("waiting", one.waiting)):
            for name in amounts:
                if name not in (*resources, JOBS):
                    raise InputError(
                        f"no resource is called {name!r}",
                        where=f"{where}.{what}",
                        remedy=f"use some of: {', '.join((*resources, JOBS))}",
                    )
        if not one.active and not one.waiting:
            raise InputError(
                "limits nothing", where=where, remedy="give active = { cpu = 100 }, say, or waiting, or both"
            )
