"""`guarded` as a policy: its options, what its servers do and why its jobs wait."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import Field

from slotwise.core.contract.claims import Assumption, Need, PolicyClaim
from slotwise.core.contract.hooks import late
from slotwise.core.contract.learnt import Names
from slotwise.core.contract.policy import FitOptions, Policy
from slotwise.core.contract.reasons import Because, Reason
from slotwise.core.contract.view import View
from slotwise.core.state import MODE, PREVIOUS, STALLED
from slotwise.core.store import Store
from slotwise.policies.backfill import reservation
from slotwise.policies.guarded import drains, expected, fillings, floors, memory, turning, usable
from slotwise.policies.paper.algorithm1 import BetaOptions, stalled_because, write_beta

RESERVED = "reserved"
"""what a situation calls the reservation"""


class GuardedOptions(BetaOptions, FitOptions):
    """Options of the guarded policy; no scenario should need others than the defaults."""

    z: float = Field(0.0005, gt=0, description="h(Q): how fast beta grows with the queues")
    hysteresis: Literal["share", "sublinear"] = Field(
        "sublinear",
        description="beta(Q): one that tends to 1, and reaches the whole region; or the paper's h(Q), which tends to b (also where b, p, z or beta are given)",
    )
    slack: float = Field(2.0, gt=0, description="sublinear: beta = 1 - slack / (1 + sum Q / scale)^power")
    scale: float = Field(20.0, gt=0, description="sublinear: how many waiting jobs count as many")
    power: float = Field(0.4, gt=0, lt=1, description="sublinear: how fast beta tends to 1")
    tightness: float = Field(
        40.0, ge=0, description="c: how many waiting jobs of each type the tightness of a packing is worth"
    )
    size_exponent: float = Field(
        1.0, ge=0, description="a waiting job counts (share of a server that it takes)^this"
    )
    scarcity: float = Field(4.0, ge=0, description="the price of a resource is its use to this power")
    floor: float = Field(
        0.1, ge=0, description="types that run less than an even part of this share of the cluster go first"
    )
    standing: float = Field(
        0.01,
        ge=0,
        description="such a type has a slot kept open while others wait, if it takes no more than an even part of this share",
    )
    persistence: float = Field(
        4.0,
        gt=0,
        description="a turn is given up, the first time, when it has lost so many events for each running job",
    )
    patience: float = Field(
        10.0,
        gt=0,
        description="a server drains for a type of which nobody runs once its first job has waited this many times what the drain costs",
    )
    overdue: float = Field(
        10.0,
        gt=0,
        description="a job that has waited so many times the mean time in the system goes first; after twice that a server drains for it",
    )
    drain_share: float = Field(
        0.02,
        ge=0,
        le=1,
        description="a server drains for an overdue job only while all drains have taken less than this share of the servers' time",
    )
    drain_limit: float = Field(
        4.0, gt=0, description="a drain is given up when it has taken so many times what drains take"
    )
    flood: float = Field(
        10.0,
        gt=0,
        description="from so many waiting jobs for each running one on, and more than usual, size no longer counts in weights",
    )
    durations: Literal["auto", "none", "exact", "estimate"] = Field(
        "auto",
        description="how long jobs are expected to run. none: not known; exact: as each job says, to be relied on (in simulations: the truth); estimate: users' estimates, mostly too long (in simulations: column `estimate` of a trace); auto: estimate where a trace has them, else none",
    )


class Guarded(Policy):
    """The delay of tight packing with the guarantee of Algorithm 1."""

    name = "guarded"
    summary = "packs tightly while queues are short; turns servers to max-weight configurations when they grow"
    Options = GuardedOptions
    memory = memory.MEMORY
    keeps = frozenset({"free", "fit", "use", "ranks", "unlike"})
    gained = True
    compiled = True
    arrive, complete = staticmethod(turning.arrive), staticmethod(turning.complete)
    join, leave, cancel = staticmethod(turning.join), staticmethod(turning.leave), staticmethod(turning.cancel)
    stop, file = staticmethod(turning.stop), staticmethod(turning.file)
    late: tuple[Any, ...] = (turning.make_use, fillings.find_filling, turning.go_on, turning.place)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.needs_durations = self.options.durations in ("exact", "estimate")
        if self.needs_durations:  # other functions decide, and they look at more
            self.keeps = self.keeps - {"unlike"} | {"line", "lists"}
            self.late = (*self.late, expected.make_plan, expected.place)
            self.arrive, self.complete, self.stop = expected.arrive, expected.complete, expected.stop
            self.join, self.leave, self.cancel = expected.join, expected.leave, expected.cancel

    @property
    def uses_estimates(self) -> bool:
        return bool(self.options.durations == "estimate")

    def with_estimates(self) -> Policy:
        if self.options.durations != "auto":
            return self
        made = type(self)(**self.options.model_dump(exclude_unset=True) | {"durations": "estimate"})
        made.origin = self.origin
        return made

    def prepare(self, store: Store) -> None:
        o: GuardedOptions = self.options
        write_beta(o, store)
        whole, real = store.arrays["policy_ints"], store.arrays["policy_floats"]
        whole[memory.PLACE], whole[memory.FILL] = late(turning.place), late(fillings.find_filling)
        whole[memory.MAKE_USE], whole[memory.GO_ON] = late(turning.make_use), late(turning.go_on)
        if self.needs_durations:
            whole[memory.PLACE], whole[memory.PLAN] = late(expected.place), late(expected.make_plan)
            whole[memory.GUESSED] = self.uses_estimates
        real[memory.BASE], real[memory.EXPONENT], real[memory.POWER] = o.tightness, o.size_exponent, o.scarcity
        real[memory.FLOOR], real[memory.STANDING], real[memory.PERSISTENCE] = o.floor, o.standing, o.persistence
        real[memory.PATIENCE], real[memory.OVERDUE] = o.patience, o.overdue
        real[memory.DRAIN_SHARE], real[memory.DRAIN_LIMIT], real[memory.FLOOD] = (
            o.drain_share,
            o.drain_limit,
            o.flood,
        )
        store.put_score(1.0 / np.maximum(store.sizes.capacity.max(axis=0), 1))

    def learnt(self, store: Store, names: Names) -> dict[str, Any]:
        values = super().learnt(store, names)
        if reserved := reservation.learnt(store, memory.RESERVATION, names):
            values[RESERVED] = reserved
        return values

    def shifted(self, values: dict[str, Any], by: float) -> dict[str, Any]:
        reserved = values.get(RESERVED)
        return values | {RESERVED: reservation.shifted(reserved, by)} if reserved else values

    def recall(self, store: Store, values: dict[str, Any], names: Names) -> None:
        reservation.recall(store, memory.RESERVATION, values.pop(RESERVED, {}), names)
        super().recall(store, values, names)
        for j, holder in enumerate(floors.holders(store.state)):
            if holder:
                store.arrays["free"][holder - 1] -= store.sizes.demand[j]

    def recalled(self, store: Store) -> None:
        usable.count_servers(store.state)

    def claim(self) -> PolicyClaim:
        """docs/theory/guarded.md has the proof."""
        o: GuardedOptions = self.options
        by_type = Assumption(
            "jobs that ask for less than their type count with their type's demand when queues are very long",
            True,
            "the region is that of the types' demands; packing by actual demands can only be seen to do better",
        )
        few = o.few_at_once("turn", True, "a server that may not turn yet is counted as one that turns")
        note = ", for servers that turn without stalling"
        return o.claim(Need.ADDITIVE, assumptions=(by_type, *few), note=note)

    def why_waits(self, view: View, i: int) -> Because:
        if because := reservation.why_waits(view, memory.RESERVATION, i):
            return because
        if server := drains.drains(view.store.state)[view.type_of(i)]:
            figures = {"server": view.server_of[server - 1], "holding": view.holding(server - 1)}
            return Because(Reason.DRAINED_FOR, figures)
        if because := view.no_room(i):
            return because
        store = view.store
        if store.arrays["jobs"][i, PREVIOUS] < 0:
            room = view.with_room(i)
            turning_ = room & (store.arrays["servers"][:, MODE] == STALLED)
            if (turning_ == room).all():
                return Because(Reason.TURNED_AWAY, {"turning": int(turning_.sum())})
            if store.state.actual and fillings.by_type(store.state):
                return Because(Reason.COUNTS_AS_TYPE, {"demand": view.sizes(store.sizes.demand[view.type_of(i)])})
        return super().why_waits(view, i)

    def describe(self, view: View, server: int) -> tuple[Because, ...]:
        store = view.store
        if store.arrays["servers"][server, MODE] == STALLED:
            figures = {"holding": view.holding(server), "configuration": view.counts(store.configuration[server])}
            if (j := drains.drained_for(store.state, server)) >= 0:
                return (Because(Reason.DRAINS_FOR, figures | {"type": view.types[j].name}),)
            return (Because(Reason.TURNS, figures | stalled_because(view, server)),)
        because = super().describe(view, server)
        if kept := view.counts(floors.holders(store.state) == server + 1):
            because = (*because, Because(Reason.KEEPS_SLOTS, {"slots": kept}))
        return (*because, *reservation.describe(view, memory.RESERVATION, server))

    def keeps_back(self, view: View) -> list[tuple[int, int]]:
        holders = floors.holders(view.store.state).tolist()
        return [(server - 1, j) for j, server in enumerate(holders) if server > 0]
