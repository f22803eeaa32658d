"""Fair shares: tenants and groups, and how fast their use is forgotten.

A tenant has a share of its group, a group has a share of the cluster. A tenant without a group stands beside the groups. Shares are relative: 5, 3 and 2
mean the same as 50, 30 and 20. Only tenants that have waiting jobs count, so the share of an idle tenant goes to the tenants of its group, then to all.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from slotwise.errors import InputError
from slotwise.model.part import Name, Part, Positive

if TYPE_CHECKING:
    from slotwise.model.scenario import JobType

OTHERS = "others"  # the tenant of all jobs whose tenant is not listed
MOST_TENANTS = 1_000
MOST_PRIORITY = 16.0  # the theorem needs a bound; 16 overtakes all but a tenth of a queue at equal sizes
Share = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
Priority = Annotated[float, Field(ge=1 / MOST_PRIORITY, le=MOST_PRIORITY, allow_inf_nan=False)]


class Group(Part):
    """Tenants that have a share of the cluster together."""

    name: Name = Field(description="what the group is called")
    share: Share = Field(
        1.0, description="its share of the cluster, relative to other groups and to tenants without a group"
    )


class Tenant(Part):
    """A tenant whose share is stated."""

    name: Name = Field(description="the tenant, as job types and tokens name it")
    share: Share = Field(1.0, description="its share of its group, relative to other tenants of the group")
    group: Name | None = Field(None, description="its group; without one the tenant stands beside the groups")


class Shares(Part):
    """Fair shares among tenants."""

    half_life: Positive = Field(description="the time after which past use counts half")
    strength: Annotated[float, Field(ge=1, le=64, allow_inf_nan=False)] = Field(
        16.0,
        description="a tenant that has used x times its share is weighted by x to the power of minus this",
    )
    bound: Annotated[float, Field(ge=1, le=1e12, allow_inf_nan=False)] = Field(
        1e6, description="B: such a factor is at least 1/B and at most B"
    )
    others: Share = Field(1.0, description="the share of all tenants that are not listed, together")
    groups: tuple[Group, ...] = Field((), description="groups of tenants")
    tenants: tuple[Tenant, ...] = Field((), max_length=MOST_TENANTS, description="the tenants")

    @property
    def names(self) -> list[str]:
        """The tenants in the order of their numbers: those that are listed, then all others as one."""
        return [*(one.name for one in self.tenants if one.name != OTHERS), OTHERS]

    def tenant_of(self, job_type: JobType) -> str:
        """Return the tenant to which the use of a type is charged."""
        listed = {one.name for one in self.tenants}
        return job_type.tenant if job_type.tenant in listed and job_type.tenant is not None else OTHERS


def check_shares(shares: Shares) -> None:
    """Raise InputError for names that do not exist or occur twice."""
    groups = [one.name for one in shares.groups]
    for what, names in (("groups", groups), ("tenants", [one.name for one in shares.tenants])):
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise InputError(f"{twice[0]!r} is listed twice", where=f"shares.{what}", remedy="list each once")
    for one in shares.tenants:
        where = f"shares.tenants ({one.name})"
        if one.name == OTHERS:
            raise InputError(
                f"{OTHERS!r} are all tenants that are not listed", where=where, remedy="write shares.others"
            )
        if one.group is not None and one.group not in groups:
            raise InputError(f"no group is called {one.group!r}", where=where, remedy=_near(one.group, groups))
    empty = [name for name in groups if all(one.group != name for one in shares.tenants)]
    if empty:
        raise InputError(
            f"group {empty[0]!r} has no tenant", where="shares.groups", remedy=f'give a tenant group = "{empty[0]}"'
        )


def _near(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    if near:
        return f"did you mean {near[0]}?"
    return f"use one of: {', '.join(known)}" if known else "add [[shares.groups]] with this name"
