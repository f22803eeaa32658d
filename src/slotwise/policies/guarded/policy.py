"""`guarded` as a policy: its options, what is proven of it, what its servers do and why its jobs wait."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import Field

from slotwise.core.contract.claims import Assumption, MaxWeight, Need, PolicyClaim, Unknown
from slotwise.core.contract.learnt import Names
from slotwise.core.contract.policy import FitOptions, Policy, SolverOptions
from slotwise.core.contract.reasons import Because, Reason
from slotwise.core.contract.view import View
from slotwise.core.sharing import PATIENT
from slotwise.core.state import MODE
from slotwise.core.store import Store
from slotwise.policies.backfill import reservation
from slotwise.policies.guarded import memory, rules
from slotwise.policies.guarded.sizes import effective_sizes

# What situations of version 0.1 have: options, then learnt values.
RETIRED = frozenset(
    [
        "beta",
        "b",
        "p",
        "z",
        "hysteresis",
        "slack",
        "scale",
        "power",
        "spread",
        "stall_cap",
        "size_exponent",
        "scarcity",
        "floor",
        "standing",
        "persistence",
        "patience",
        "overdue",
        "drain_share",
        "drain_limit",
        "flood",
        "spoils",
        "since_turn",
        "clock",
        "next_look",
        "completions",
        "next_estimate",
        "arrivals",
        "flooded",
        "next_drain",
        "next_overdue",
        "seen",
        "long_mean_queue",
        "mean_queue",
        "drain_credit",
        "drain_stretch",
        "because",
        "turn",
        "turn_ran",
        "paces",
        "ended",
        "counted",
        "common",
        "drains",
        "drain_began",
        "drain_expected",
        "standing_slots",
        "use",
        "prices",
        "reserved",
        "size_seen",
        "samples",
        # learnt values in which time was counted in arrivals
        "arrivals_since_count",
        "completions_since_count",
        "seen_running",
        "completed",
        "all_completed",
        "size_completed",
        "all_seen",
        "counts",
        "drains_expected",
        "drains_took",
    ]
)


class GuardedOptions(SolverOptions, FitOptions):
    """Options of the guarded policy; the defaults are meant for every cluster."""

    margin: float = Field(
        4.0,
        ge=0.1,
        le=100,
        description="c: a server turns if its content is lighter than the best by F = c sqrt(G m)",
    )
    tightness: float = Field(
        40.0, ge=0, le=10_000, description="b: how many waiting jobs the use of capacity is worth in a weight"
    )
    durations: Literal["auto", "none", "exact", "estimate"] = Field(
        "auto",
        description="how long jobs run. none: not used; exact: as each job says (in simulations: the truth); estimate: users' estimates (in simulations: column `estimate` of a trace); auto: estimate for a trace that has estimates, else none",
    )


class Guarded(Policy):
    """Tight placement, heaviest refills, and turns to the best configuration with a margin that knows what a drain costs."""

    name = "guarded"
    summary = "packs tightly while queues are short; turns servers to max-weight configurations when they grow"
    Options = GuardedOptions
    memory = memory.MEMORY
    keeps = frozenset({"free", "fit", "ranks", "unlike"})
    gained = True
    honours_shares = True
    asks_at_departures = True
    keeps_clock = True
    retired = RETIRED
    compiled = True
    reserves = False
    arrive, complete, stop = staticmethod(rules.arrive), staticmethod(rules.complete), staticmethod(rules.stop)
    join, resume, leave = staticmethod(rules.join), staticmethod(rules.resume), staticmethod(rules.leave)
    file = staticmethod(rules.file)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.needs_durations = self.options.durations in ("exact", "estimate")
        if self.needs_durations:
            self.keeps = self.keeps - {"unlike"} | {"line", "lists"}

    @property
    def uses_estimates(self) -> bool:
        return bool(self.options.durations == "estimate")

    def with_estimates(self) -> Policy:
        if self.options.durations != "auto":
            return self
        return type(self)(**{**self.options.model_dump(), "durations": "estimate"})

    def prepare(self, store: Store) -> None:
        o: GuardedOptions = self.options
        real = store.arrays["policy_floats"]
        real[memory.MARGIN], real[memory.TIGHTNESS] = o.margin, o.tightness
        largest = np.maximum(store.sizes.capacity.max(axis=0), 1)
        sizes = effective_sizes(store.sizes.capacity, store.sizes.demand, store.allowed)
        units = 1.0 / (largest * len(largest))
        store.values_of(memory.SIZES)[:] = sizes
        store.values_of(memory.UNITS)[:] = units
        store.values_of(memory.SHARES)[:] = store.sizes.demand @ units
        # the core sets a weight to its offset when a queue changes; `weigh` adds the rest
        store.arrays["gain"][:] = 0.0
        store.arrays["offset"][:] = store.arrays["weight"][:] = o.tightness * sizes
        store.put_score(1.0 / largest)

    def claim(self) -> PolicyClaim:
        """docs/theory/guarded.md has the proof."""
        o: GuardedOptions = self.options
        if self.needs_durations:
            return Unknown(
                "with durations short jobs go first, and the proof needs an order that is blind to durations"
            )
        return MaxWeight(
            beta=1.0,
            limit=Assumption(
                "the margin F_l grows without bound, but more slowly than the weights",
                True,
                f"F_l = {o.margin:g} sqrt(G_l (f(k') + F_l))",
            ),
            solver=o.solver,
            epsilon=o.epsilon,
            sublinear=True,
            needs=(Need.ADDITIVE,),
            note=", a margin for each server",
        )

    def claim_with_shares(self) -> tuple[Assumption, ...]:
        """docs/theory/shares.md has the proof."""
        return (
            Assumption(
                "the factors of tenants and priorities lie between positive constants, and rest while long queues are worked off",
                True,
                f"use is forgotten more slowly from {PATIENT:,.0f} waiting jobs on",
            ),
        )

    def learnt(self, store: Store, names: Names) -> dict[str, Any]:
        found = super().learnt(store, names)
        return found | {"reservation": reservation.learnt(store, memory.RESERVATION, names)}

    def recall(self, store: Store, values: dict[str, Any], names: Names) -> None:
        reservation.recall(store, memory.RESERVATION, values.get("reservation", {}), names)
        super().recall(store, {name: value for name, value in values.items() if name != "reservation"}, names)

    def shifted(self, values: dict[str, Any], by: float) -> dict[str, Any]:
        moved = {name: values[name] + by for name in ("last_event", "last_count") if name in values}
        held = values.get("reservation", {})
        return values | moved | {"reservation": reservation.shifted(held, by)}

    def why_waits(self, view: View, i: int) -> Because:
        if because := reservation.why_waits(view, memory.RESERVATION, i):
            return because
        if because := view.no_room(i):
            return because
        room = view.with_room(i)
        turning = room & (view.store.arrays["servers"][:, MODE] == rules.TURNING)
        if (turning == room).all():
            return Because(Reason.TURNED_AWAY, {"turning": int(turning.sum())})
        return super().why_waits(view, i)

    def describe(self, view: View, server: int) -> tuple[Because, ...]:
        store = view.store
        if store.arrays["servers"][server, MODE] != rules.TURNING:
            return (*super().describe(view, server), *reservation.describe(view, memory.RESERVATION, server))
        held, best, margin = store.values_of(memory.REASON)[server].tolist()
        figures = {"holding": view.holding(server), "configuration": view.counts(store.configuration[server])}
        return (Because(Reason.TURNS, figures | {"weight": held, "best": best, "margin": margin}),)
