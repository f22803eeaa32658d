"""`guarded` as a policy: its options, its claim, what its servers do and why its jobs wait."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from slotwise.core.contract.claims import PolicyClaim, Unknown
from slotwise.core.contract.policy import FitOptions, Policy, SolverOptions
from slotwise.core.contract.reasons import Because
from slotwise.core.contract.view import View
from slotwise.core.store import Store
from slotwise.policies.guarded import memory, rules


class GuardedOptions(SolverOptions, FitOptions):
    """Options of the guarded policy; the defaults are meant for every cluster."""

    margin: float = Field(2.0, gt=0, le=100, description="c: factor of the margin F_l that a server turns at")
    tightness: float = Field(40.0, ge=0, le=1e6, description="b: jobs that used capacity is worth in a refill")


class Guarded(Policy):
    """Best fit, heaviest refills, and turns to max-weight configurations with a margin that knows what a drain costs."""

    name = "guarded"
    summary = "packs tightly while queues are short; turns servers to max-weight configurations when they grow"
    Options = GuardedOptions
    memory = memory.MEMORY
    keeps = frozenset({"free", "fit", "ranks", "unlike"})
    gained = True
    compiled = True
    arrive, complete, stop = staticmethod(rules.arrive), staticmethod(rules.complete), staticmethod(rules.stop)
    join, resume, leave = staticmethod(rules.join), staticmethod(rules.resume), staticmethod(rules.leave)
    file = staticmethod(rules.file)

    def prepare(self, store: Store) -> None:
        o: GuardedOptions = self.options
        real = store.arrays["policy_floats"]
        real[memory.MARGIN], real[memory.TIGHTNESS] = o.margin, o.tightness
        largest = np.maximum(store.sizes.capacity.max(axis=0), 1)
        sizes = np.maximum((store.sizes.demand / largest).max(axis=1), 1e-12)
        store.values_of(memory.SIZES)[:] = sizes
        units = 1.0 / (largest * len(largest))
        store.values_of(memory.UNITS)[:] = units
        store.values_of(memory.SHARES)[:] = store.sizes.demand @ units
        # only these two make the weight of a type when its queue changes; `weigh` adds what waits
        store.arrays["gain"][:] = 0.0
        store.arrays["offset"][:] = o.tightness * sizes
        store.arrays["weight"][:] = o.tightness * sizes
        store.put_score(1.0 / largest)

    def claim(self) -> PolicyClaim:
        return Unknown()

    def why_waits(self, view: View, i: int) -> Because:
        return super().why_waits(view, i)
