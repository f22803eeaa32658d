"""Shares of a scenario as the arrays that the kernels of `sharing` read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise.core.sharing import FACTOR, GROUP_COLUMNS, GROUP_SHARE, SHARE, TENANT_COLUMNS
from slotwise.model import JobType, Shares


@dataclass(frozen=True)
class Sharing:
    """Shares as arrays, for types in the order of their numbers. Nothing was used yet."""

    names: tuple[str, ...]
    """the tenants"""
    arrays: Mapping[str, NDArray[Any]]
    forgetting: float
    strength: float
    bound: float

    @classmethod
    def of(cls, shares: Shares | None, types: Sequence[JobType]) -> Sharing | None:
        """Return the shares of tenants that own these types; None where no tenant is listed."""
        if shares is None or not shares.tenants:
            return None
        names = shares.names
        listed = {one.name: one for one in shares.tenants}
        places = {one.name: at for at, one in enumerate(shares.groups)}
        above = [one.share for one in shares.groups]
        rows, of = np.zeros((len(names), TENANT_COLUMNS)), np.zeros(len(names), np.int64)
        for t, name in enumerate(names):
            tenant = listed.get(name)
            if tenant is not None and tenant.group is not None:
                rows[t, SHARE], of[t] = tenant.share, places[tenant.group]
            else:
                rows[t, SHARE], of[t] = 1.0, len(above)
                above.append(shares.others if tenant is None else tenant.share)
        rows[:, FACTOR] = 1.0
        tops = np.zeros((len(above), GROUP_COLUMNS))
        tops[:, GROUP_SHARE] = above
        arrays = {
            "tenants": rows,
            "tenant_groups": tops,
            "group_of": of,
            "tenant_of": np.array([names.index(shares.tenant_of(one)) for one in types], np.int64),
            "priority": np.array([one.priority for one in types], np.float64),
        }
        return cls(tuple(names), arrays, math.log(2.0) / shares.half_life, shares.strength, shares.bound)


NO_SHARES = Sharing(
    (),
    {
        "tenants": np.zeros((1, TENANT_COLUMNS)),
        "tenant_groups": np.zeros((1, GROUP_COLUMNS)),
        "group_of": np.zeros(1, np.int64),
        "tenant_of": np.zeros(1, np.int64),
        "priority": np.ones(1),
    },
    0.0,
    1.0,
    1.0,
)
