"""Fair shares a second time, straight from docs/theory/shares.md: dictionaries by name, one tenant at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from slotwise.model import JobType, Shares

PATIENT, PRESENT, PACE, MOST_CORRECTION = 1e6, 0.5, 0.25, 1000.0


class NaiveShares:
    """Uses, activities, corrections and factors of tenants."""

    def __init__(self, shares: Shares, types: Sequence[JobType]) -> None:
        self.shares, self.now = shares, 0.0
        listed = {one.name for one in shares.tenants}
        self.tenant = [one.tenant if one.tenant in listed and one.tenant else "others" for one in types]
        self.priority = [one.priority for one in types]
        self.names = [*(one.name for one in shares.tenants), "others"]
        self.share = {one.name: one.share for one in shares.tenants} | {"others": 1.0}
        self.group = {one.name: one.group or f"alone {one.name}" for one in shares.tenants} | {
            "others": "alone others"
        }
        self.group_share = {one.name: one.share for one in shares.groups}
        for one in shares.tenants:
            if one.group is None:
                self.group_share[f"alone {one.name}"], self.share[one.name] = one.share, 1.0
        self.group_share["alone others"] = shares.others
        self.use, self.counted, self.active, self.correction = (dict.fromkeys(self.names, 0.0) for _ in range(4))
        self.factor = dict.fromkeys(self.names, 1.0)

    def advance(
        self,
        now: float,
        running: Mapping[str, Sequence[int]],
        waiting: Sequence[int],
        capacity: Sequence[int],
    ) -> None:
        """The time of the next event, what each tenant runs, how many jobs of each type wait, and the capacity of the cluster."""
        slower = max(1.0, (sum(waiting) / PATIENT) ** 2)
        keep = 0.5 ** ((now - self.now) / (slower * self.shares.half_life))
        self.now = now
        for name in self.names:
            shares = [a / c for a, c in zip(running.get(name, ()), capacity, strict=False) if c > 0]
            present = max(shares, default=0.0)
            waits = any(n > 0 for n, tenant in zip(waiting, self.tenant, strict=True) if tenant == name)
            self.use[name] = keep * self.use[name] + (1 - keep) * present
            self.counted[name] = self.use[name] + PRESENT / slower * (present - self.use[name])
            self.active[name] = keep * self.active[name] + (1 - keep) * waits
        for name in self.names:
            below = self.below(name)
            most, limit = math.log(MOST_CORRECTION), math.log(self.shares.bound)
            old, active = self.correction[name], self.active[name]
            added = old + (1 - keep) * (PACE * active * below - (1 - active) * old)
            self.correction[name] = max(-most, min(most, added))
            self.factor[name] = math.exp(max(-limit, min(limit, below + self.correction[name])))

    def fair_share(self, name: str) -> tuple[float, float]:
        """(of its group, of the cluster) while it waits with the tenants that usually wait."""
        active = {**self.active, name: 1.0}
        claims = dict.fromkeys(self.group_share, 0.0)
        for other in self.names:
            claims[self.group[other]] = max(claims[self.group[other]], active[other])
        beside = sum(self.share[o] * active[o] for o in self.names if self.group[o] == self.group[name])
        part = self.share[name] / beside
        total = sum(self.group_share[group] * claim for group, claim in claims.items())
        return part, part * self.group_share[self.group[name]] / total

    def below(self, name: str) -> float:
        """How far a tenant is below its share."""
        part, fair = self.fair_share(name)
        idle = sum(
            (1 - self.active[o]) * self.counted[o]
            for o in self.names
            if o != name and self.group[o] == self.group[name]
        )
        total = sum(self.counted.values())
        ratio = fair * total / max(self.counted[name] + part * idle, 1e-12) if total > 1e-12 else 1.0
        limit = math.log(self.shares.bound)
        return max(-limit, min(limit, self.shares.strength * math.log(max(ratio, 1e-12))))

    def scaled(self, weights: Sequence[float], lengths: Sequence[int], service: Sequence[float]) -> list[float]:
        """The weights of waiting jobs, without what types weigh without waiting jobs, as tenants weigh them."""
        own = [p * w for p, w in zip(self.priority, weights, strict=True)]
        squares = dict.fromkeys(self.names, 0.0)
        for j, tenant in enumerate(self.tenant):
            squares[tenant] += own[j] * lengths[j] * service[j]
        scale = {name: self.factor[name] * math.sqrt(n) ** -0.875 for name, n in squares.items() if n > 0}
        return [
            w * scale[tenant] / max(scale.values()) if n > 0 else 0.0
            for w, tenant, n in zip(own, self.tenant, lengths, strict=True)
        ]
