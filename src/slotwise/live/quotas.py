"""Quotas: jobs of a tenant beyond its quota of active work are held, and submissions beyond its quota of waiting work are refused.

A job is active from when the core learns of it until it ends: it runs, or any decision may start it. So the running work of a tenant never exceeds
its quota, whatever the policy decides. The policy knows nothing of quotas and of held jobs, and all that is proven of it holds for what it knows.

Jobs over the quota are parked in the order of their numbers. A parked job goes to the core when it is the first of its tenant and fits the quota.
Smaller jobs do not overtake it, so no job is parked for ever.

The books follow from the rows of the store alone: `slotwise.live.kept` makes them anew.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from slotwise.errors import InputError
from slotwise.model.quotas import EACH_OTHER, JOBS, Quota

PARTS = 1000  # of 1: amounts have three digits behind the point, and whole numbers add up exactly

# What a job counts, in 1/1000 by resource and `jobs`.
Charge = Mapping[str, int]


class QuotaFullError(InputError):
    """A submission that goes beyond the quota of waiting work: it may be tried again later."""


class QuotaJob(NamedTuple):
    """A job that has not ended, as the store knows it."""

    number: int
    tenant: str
    state: str
    charge: Charge


class QuotaLimits(NamedTuple):
    """A quota, in 1/1000."""

    active: Charge
    waiting: Charge


class QuotaCharge(NamedTuple):
    """What counts against one amount of a quota."""

    kind: str
    """active or waiting"""
    name: str
    """the resource, or `jobs`"""
    used: float
    quota: float


class Counted:
    """A job of a tenant with a quota. `is_active`: the core knows it. `waits`: it is on no server."""

    __slots__ = ("charge", "is_active", "tenant", "waits")

    def __init__(self, tenant: str, charge: Charge, *, is_active: bool, waits: bool) -> None:
        self.tenant, self.charge, self.is_active, self.waits = tenant, charge, is_active, waits


class Quotas:
    """All quotas, and what counts against them."""

    def __init__(self, limits: Sequence[Quota] = (), known: Iterable[QuotaJob] = ()) -> None:
        self.limits = tuple(limits)
        self._of = {one.tenant: QuotaLimits(in_parts(one.active), in_parts(one.waiting)) for one in limits}
        self._each_other = self._of.pop(EACH_OTHER, None)
        self._jobs: dict[int, Counted] = {}
        self._active: dict[str, Counter[str]] = {}
        self._waiting: dict[str, Counter[str]] = {}
        self._parked: dict[str, list[int]] = {}
        """a heap of held jobs of each tenant; also some that have ended"""
        self._freed: dict[str, None] = {}
        """tenants whose first parked job may fit now; a dictionary, because sets have no certain order"""
        self._beyond: deque[int] = deque()
        """active jobs that wait and are to be held: their tenants have more active work than a new quota allows"""
        for number, tenant, state, charge in known:
            if self.of(tenant) is not None:
                self._count(number, tenant, charge, is_active=state != "held", waits=state in ("held", "waiting"))
        self._find_beyond()

    def __bool__(self) -> bool:
        return bool(self.limits)

    def of(self, tenant: str) -> QuotaLimits | None:
        """Return the quota of a tenant."""
        return self._of.get(tenant, self._each_other)

    def limits_active(self, tenant: str) -> bool:
        """Return whether new jobs of a tenant are held until they fit its quota."""
        quota = self.of(tenant)
        return quota is not None and bool(quota.active)

    def check(self, wanted: Mapping[str, Sequence[tuple[Charge, int]]]) -> None:
        """Refuse new jobs of a tenant, given by charge and number, that would never fit its quota or go beyond its quota of waiting work."""
        for tenant, jobs in wanted.items():
            quota = self.of(tenant)
            if quota is None:
                continue
            for charge, _ in jobs:
                for name, most in quota.active.items():
                    if charge.get(name, 0) > most:
                        raise InputError(
                            f"asks for {amount(charge[name])} {name}",
                            where="needs",
                            remedy=f"the quota of tenant {tenant!r} is {amount(most)} {name}; ask for at most that",
                        )
            for name, most in quota.waiting.items():
                waits = self._waiting.get(tenant, Counter())[name]
                new = sum(count * charge.get(name, 0) for charge, count in jobs)
                if new and waits + new > most:
                    raise QuotaFullError(
                        f"{amount(waits + new)} {name} of tenant {tenant!r} would wait, and its quota is {amount(most)}"
                    )

    # -- what happens ---------------------------------------------------------------------------------------------

    def submitted(self, number: int, tenant: str, charge: Charge) -> None:
        """Count a new job. It is held, or the core is told of it."""
        quota = self.of(tenant)
        if quota is not None:
            self._count(number, tenant, charge, is_active=not quota.active, waits=True)

    def placed(self, number: int) -> None:
        """Count a job that has got a server."""
        self._waits(number, waits=False)

    def requeued(self, number: int) -> None:
        """Count a job that was taken back from its server, and is in its queue again."""
        self._waits(number, waits=True)

    def held(self, number: int) -> None:
        """Count a job that the core knows no more, and that has not ended."""
        self._waits(number, waits=True)
        self._is_active(number, is_active=False)

    def ended(self, number: int) -> None:
        """Leave out a job that has ended, whatever it was before."""
        self._waits(number, waits=False)
        self._is_active(number, is_active=False)
        job = self._jobs.pop(number, None)
        if job is not None and job.tenant in self._parked:
            self._freed[job.tenant] = None  # the next parked job may be smaller

    # -- who may go -----------------------------------------------------------------------------------------------

    def admit(self, number: int) -> bool:
        """Return whether the core may be told of a held job now; count it as active, or park it."""
        job = self._jobs.get(number)
        if job is None or not self.limits_active(job.tenant):
            if job is not None:
                self._is_active(number, is_active=True)
            return True
        heapq.heappush(self._parked.setdefault(job.tenant, []), number)
        if self.first_that_fits(job.tenant) != number:
            return False
        heapq.heappop(self._parked[job.tenant])
        self._is_active(number, is_active=True)
        return True

    def next_parked(self) -> int | None:
        """Return a parked job that fits the quota now, and count it as active; None: there is none."""
        while self._freed:
            tenant = next(iter(self._freed))
            number = self.first_that_fits(tenant)
            if number is not None:
                heapq.heappop(self._parked[tenant])
                self._is_active(number, is_active=True)
                return number
            del self._freed[tenant]
        return None

    def next_beyond(self) -> int | None:
        """Return an active job that waits and is beyond a new quota; None: there is none."""
        while self._beyond:
            number = self._beyond.popleft()
            job = self._jobs.get(number)
            if job is not None and job.is_active and job.waits and self._over(job.tenant) is not None:
                return number
        return None

    def not_yet(self, number: int) -> None:
        """A job that `next_beyond` returned cannot be held before the next transaction."""
        self._beyond.append(number)

    @property
    def is_due(self) -> bool:
        """Return whether a job may be admitted or held now."""
        return bool(self._freed or self._beyond)

    def first_that_fits(self, tenant: str) -> int | None:
        """Return the first parked job of a tenant if it fits the quota."""
        parked = self._parked.get(tenant, [])
        while parked and (parked[0] not in self._jobs or self._jobs[parked[0]].is_active):
            heapq.heappop(parked)
        return parked[0] if parked and self._over(tenant, self._jobs[parked[0]].charge) is None else None

    # -- words ----------------------------------------------------------------------------------------------------

    def is_parked(self, number: int) -> bool:
        """Return whether only the quota of its tenant holds a job."""
        job = self._jobs.get(number)
        return job is not None and not job.is_active and number in self._parked.get(job.tenant, ())

    def why(self, number: int) -> str | None:
        """Return why a job is parked; None: it is not."""
        if not self.is_parked(number):
            return None
        job = self._jobs[number]
        parked = self._parked[job.tenant]
        first = min(one for one in parked if one in self._jobs and not self._jobs[one].is_active)
        name = self._over(job.tenant, self._jobs[first].charge)
        if name is None:
            return None
        quota = self.of(job.tenant)
        assert quota is not None
        used, most = self._active.get(job.tenant, Counter())[name], quota.active[name]
        told = f"tenant {job.tenant!r} has {amount(used)} of its quota of {amount(most)} {name} in active jobs"
        asked = f"asks for {amount(self._jobs[first].charge[name])}"
        if first == number:
            return f"{told}, and the job {asked}"
        before = sum(1 for one in parked if one < number and one in self._jobs and not self._jobs[one].is_active)
        return f"{told}; {before:,} of its jobs go before this one, and the first of them, job {first}, {asked}"

    def uses(self) -> dict[str, list[QuotaCharge]]:
        """Return what counts against each quota, by tenant."""
        found = {}
        for tenant in sorted({*self._active, *self._waiting, *self._of}):
            quota = self.of(tenant)
            assert quota is not None
            found[tenant] = [
                QuotaCharge(kind, name, counts.get(tenant, Counter())[name] / PARTS, most / PARTS)
                for kind, limits, counts in (
                    ("active", quota.active, self._active),
                    ("waiting", quota.waiting, self._waiting),
                )
                for name, most in limits.items()
            ]
        return found

    # -- inside ---------------------------------------------------------------------------------------------------

    def _count(self, number: int, tenant: str, charge: Charge, *, is_active: bool, waits: bool) -> None:
        self._jobs[number] = Counted(tenant, charge, is_active=False, waits=False)
        self._waits(number, waits=waits)
        self._is_active(number, is_active=is_active)

    def _waits(self, number: int, *, waits: bool) -> None:
        job = self._jobs.get(number)
        if job is not None and job.waits != waits:
            job.waits = waits
            add(self._waiting.setdefault(job.tenant, Counter()), job.charge, 1 if waits else -1)

    def _is_active(self, number: int, *, is_active: bool) -> None:
        job = self._jobs.get(number)
        if job is not None and job.is_active != is_active:
            job.is_active = is_active
            add(self._active.setdefault(job.tenant, Counter()), job.charge, 1 if is_active else -1)
            if not is_active:
                self._freed[job.tenant] = None

    def _over(self, tenant: str, more: Charge | None = None) -> str | None:
        """Return the first name of which a tenant has more active work than its quota, with the charge of one job more."""
        quota = self.of(tenant)
        used = self._active.get(tenant, Counter())
        if quota is not None:
            for name, most in quota.active.items():
                extra = 0 if more is None else more.get(name, 0)
                if used[name] + extra > most and (more is None or extra):
                    return name
        return None

    def _find_beyond(self) -> None:
        """Note the youngest active jobs that wait, of tenants with more active work than their quota."""
        left = {tenant: Counter(used) for tenant, used in self._active.items()}
        for number in sorted(self._jobs, reverse=True):
            job = self._jobs[number]
            quota = self.of(job.tenant)
            if job.is_active and job.waits and quota is not None:
                used = left[job.tenant]
                if any(used[name] > most for name, most in quota.active.items()):
                    add(used, job.charge, -1)
                    self._beyond.append(number)


def quotas_of(rows: Iterable[Any]) -> list[Quota]:
    """Return quotas as the journal and checkpoints keep them."""
    return [Quota.model_validate(one) for one in rows]


def rows_of(limits: Iterable[Quota]) -> list[dict[str, Any]]:
    """Return quotas as the journal and checkpoints keep them."""
    return [one.model_dump(mode="json", exclude_defaults=True) for one in limits]


def add(to: Counter[str], charge: Charge, times: int) -> None:
    """Add a charge."""
    for name, parts in charge.items():
        to[name] += times * parts


def in_parts(amounts: Mapping[str, object]) -> dict[str, int]:
    """Return the amounts of a quota in 1/1000.

    >>> in_parts({"cpu": 1.5})
    {'cpu': 1500}
    """
    return {name: round(float(str(most)) * PARTS) for name, most in amounts.items()}


def charge_of(demand: Mapping[str, object]) -> Charge:
    """Return what a job of a demand counts.

    >>> charge_of({"cpu": 2.0, "memory": 0.0})
    {'jobs': 1000, 'cpu': 2000}
    """
    return {JOBS: PARTS} | {name: parts for name, parts in in_parts(demand).items() if parts}


def amount(parts: int) -> str:
    """Return an amount in words.

    >>> amount(1500), amount(96000000)
    ('1.5', '96,000')
    """
    return f"{parts / PARTS:,.10g}"
