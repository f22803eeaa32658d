"""Algorithm 1 of the paper as a policy: its options, what its servers do and why its jobs wait. The kernels are in `slots`."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from slotwise.core import state as st
from slotwise.core.contract.claims import Assumption, MaxWeight, Need, PolicyClaim
from slotwise.core.contract.policy import Policy, SolverOptions
from slotwise.core.contract.reasons import Because, Reason
from slotwise.core.contract.view import View
from slotwise.core.indexes.weights import best_weight, weight_of
from slotwise.core.store import Store
from slotwise.policies.paper import slots

DEFAULT_CAP = 0.1  # of the servers may stall at a time, with h(Q)


class BetaOptions(SolverOptions):
    """When a server is worth too little; the defaults are those of section 7 of the paper."""

    model_config = ConfigDict(allow_inf_nan=False)
    beta: float | None = Field(
        None, description="a constant beta instead of h(Q); also turns q(s) off unless stall_cap is given"
    )
    b: float = Field(0.9, gt=0, lt=1, description="h(Q) = b (p + (1 - p) tanh(z sum Q)): the limit of beta")
    p: float = Field(-0.05, le=1, description="h(Q): weight of the constant part")
    z: float = Field(0.005, gt=0, description="h(Q): how fast beta grows with the queues")
    hysteresis: Literal["share", "sublinear"] = Field(
        "share",
        description="beta(Q): the paper's h(Q), which tends to b; or one that tends to 1, and reaches the whole region",
    )
    slack: float = Field(1.0, gt=0, description="sublinear: beta = 1 - slack / (1 + sum Q / scale)^power")
    scale: float = Field(50.0, gt=0, description="sublinear: how many waiting jobs count as many")
    power: float = Field(0.5, gt=0, lt=1, description="sublinear: how fast beta tends to 1")
    stall_cap: float | None = Field(
        None,
        ge=0,
        le=1,
        description=f"at most this share of the servers stalls at a time (default {DEFAULT_CAP} with h(Q))",
    )
    spread: Literal["linear-cap", "cap", "off"] = Field(
        "linear-cap", description="q(s): (1 - s) 1(s < cap), 1(s < cap), or 1"
    )

    @model_validator(mode="after")
    def _beta(self) -> BetaOptions:
        if self.beta is not None and not 0 < self.beta < 1:
            raise ValueError("beta must be between 0 and 1")
        if self.sublinear and self.beta is not None:
            raise ValueError("beta is constant, so it cannot be sublinear: give one of the two")
        return self

    @property
    def sublinear(self) -> bool:
        """Whether beta tends to 1. Who gives b, p, z or beta, and does not say which, means the one that these are about."""
        given = self.model_fields_set
        return self.hysteresis == "sublinear" and ("hysteresis" in given or not given & {"beta", "b", "p", "z"})

    @property
    def cap(self) -> float | None:
        """The share of the servers that may stall at a time; None where q(s) = 1."""
        if self.spread == "off" or (self.beta is not None and self.stall_cap is None):
            return None
        return DEFAULT_CAP if self.stall_cap is None else self.stall_cap

    def h(self, waiting: int) -> float:
        """Return h(Q), the sublinear or the constant beta."""
        if self.beta is not None:
            return self.beta
        if self.sublinear:
            return 1.0 - self.slack * math.pow(1.0 + waiting / self.scale, -self.power)
        return self.b * (self.p + (1.0 - self.p) * math.tanh(self.z * waiting))

    def claim(self, *needs: Need, assumptions: tuple[Assumption, ...], note: str = "") -> MaxWeight:
        """Return Theorem 1 with these options. As p <= 1 and z > 0, h(Q) rises to b; a sublinear beta rises to 1."""
        if self.sublinear:
            text = f"beta = 1 - {self.slack:g} / (1 + sum Q / {self.scale:g})^{self.power:g}"
            limit = Assumption(
                "beta tends to 1, and (1 - beta) sum Q to infinity, as the queues grow",
                True,
                f"{text}, power below 1",
            )
        elif self.beta is not None:
            limit = Assumption("0 < beta < 1", True, f"beta = {self.beta:g}, constant")
        else:
            limit = Assumption(
                "beta increases with the queues to a limit between 0 and 1",
                True,
                f"h(Q) with b = {self.b:g}, p = {self.p:g}, z = {self.z:g} tends to {self.b:g}",
            )
        return MaxWeight(
            beta=1.0 if self.sublinear else self.b if self.beta is None else self.beta,
            limit=limit,
            solver=self.solver,
            epsilon=self.epsilon,
            sublinear=self.sublinear,
            stall_share=self.cap,
            beta_option="b" if self.beta is None else "beta",
            needs=needs,
            assumptions=assumptions,
            note=note,
        )

    def few_at_once(self, verb: str, holds: bool | None, detail: str) -> tuple[Assumption, ...]:
        """Return what the proof needs if q(s) is not 1: servers stall, or turn, only while few do."""
        if self.cap is None:
            return ()
        if self.cap == 0:
            return (Assumption(f"a server may {verb}", False, "stall_cap = 0: none ever does"),)
        text = f"servers {verb} only while fewer than {100 * self.cap:g} % of them do, by a factor q(s) on beta"
        return (Assumption(text, holds, detail),)


def write_beta(o: BetaOptions, store: Store) -> None:
    """Write the numbers of beta(Q, s), as `slots.beta` reads it."""
    whole, real = store.arrays["policy_ints"], store.arrays["policy_floats"]
    whole[slots.STALLS] = 1
    whole[slots.ADAPTS] = slots.CONSTANT if o.beta is not None else slots.SUBLINEAR if o.sublinear else slots.TO_B
    if o.cap is not None:
        cap = Fraction(str(o.cap))
        whole[slots.SPREADS] = {"cap": 1, "linear-cap": 2}[o.spread]
        whole[slots.CAP_TOP], whole[slots.CAP_BOTTOM] = cap.numerator, cap.denominator
    real[slots.B] = o.beta if o.beta is not None else o.b
    real[slots.P], real[slots.Z] = o.p, o.z
    real[slots.SLACK], real[slots.SCALE], real[slots.POWER] = o.slack, o.scale, o.power
    real[slots.H : slots.H + slots.KNOWN] = [o.h(q) for q in range(slots.KNOWN)]


class SlotPolicy(Policy):
    """A policy whose servers have configurations of slots: what is common to Algorithm 1 and M14."""

    memory = slots.OWN_MEMORY
    keeps = frozenset()  # slots say what fits
    compiled = True
    arrive, complete = staticmethod(slots.arrive), staticmethod(slots.complete)
    join, leave = staticmethod(slots.join), staticmethod(slots.leave)
    resume, file = staticmethod(slots.resume), staticmethod(slots.file)

    def why_waits(self, view: View, i: int) -> Because:
        store, j = view.store, view.type_of(i)
        state: Any = store.state
        active = view.present & (
            store.arrays["servers"][:, st.MODE] == st.ACTIVE
        )  # what a stalled one holds is not on offer
        figures = {
            "taken": int(store.running[active, j].sum()),
            "stalled": int(state.n_stalled),
            "servers": int(state.n_servers),
        }
        return Because(Reason.NO_SLOT, figures)

    def describe(self, view: View, server: int) -> tuple[Because, ...]:
        store, mode = view.store, view.store.arrays["servers"][server, st.MODE]
        figures: dict[str, Any] = {"holding": view.holding(server)}
        if mode == st.STALLED:
            return (Because(Reason.STALLED, figures | stalled_because(view, server)),)
        if mode == st.ACTIVE:
            figures |= {
                "configuration": view.counts(store.configuration[server]),
                "beta": float(slots.share_of(store.state, server)),
                "weight": float(weight_of(store.state, server)),
                "best": float(best_weight(store.state, server)),
            }
            return (Because(Reason.ACTIVE, figures),)
        return (Because(Reason.EMPTY),)


def stalled_because(view: View, server: int) -> dict[str, float]:
    """Return the figures of the moment at which the server stalled."""
    weight, share, best = (float(x) for x in view.store.values_of(slots.BECAUSE)[server])
    return {"weight": weight, "beta": share, "best": best}


class Algorithm1Options(BetaOptions):
    """Options of Algorithm 1."""

    reduce_stalls: bool = Field(
        True, description="reset a stalled server as soon as its jobs are a subset of the best configuration"
    )
    faithful: bool = Field(
        False, description="the paper's words: configurations change at resets only, also on empty servers"
    )


class Algorithm1(SlotPolicy):
    """Section 3 of the paper, with the customisations of section 6."""

    name = "algorithm1"
    summary = (
        "fixed configurations; a server worth less than beta of the best stalls, drains and resets (the paper)"
    )
    Options = Algorithm1Options

    def prepare(self, store: Store) -> None:
        o: Algorithm1Options = self.options
        write_beta(o, store)
        whole = store.arrays["policy_ints"]
        whole[slots.FAITHFUL], whole[slots.REDUCES] = o.faithful, o.reduce_stalls

    def claim(self) -> PolicyClaim:
        o: Algorithm1Options = self.options
        departures = []
        if not o.faithful:
            departures.append(
                Assumption(
                    "an empty server takes its configuration when it can next start a job",
                    None,
                    "departs from the paper's words; with nothing to preempt it is a reset without a stall",
                )
            )
        if o.reduce_stalls:
            departures.append(
                Assumption(
                    "stalls may end before the server is empty", None, "section 6.3 shortens stalled periods"
                )
            )
        departures += o.few_at_once("stall", None, "section 6.4 says that the proof extends, and leaves it out")
        needs = (Need.EVERY_TYPE_ARRIVES,) if o.faithful else ()
        return o.claim(*needs, assumptions=tuple(departures))
