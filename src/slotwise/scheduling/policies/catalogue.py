"""The policies: names, options with their defaults and meaning, and how options become numbers in the state."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import math
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from slotwise.errors import InputError
from slotwise.scheduling.hooks import late
from slotwise.scheduling.policies import (
    backfill,
    fillings,
    fitting,
    gains,
    guarded,
    layout,
    sampling,
    slots,
    usable,
    virtual,
)
from slotwise.scheduling.policy import FitOptions, Options, Policy
from slotwise.scheduling.store import Store

SolverName = Literal["auto", "hull", "enumerate", "dp", "greedy", "greedy-fill", "approximate"]
H_TABLE = 4096


class SolverOptions(Options):
    """Options of policies that look for max-weight configurations."""

    solver: SolverName = Field("auto", description="how the (r-)max-weight configuration is found")
    epsilon: float = Field(0.05, gt=0, lt=1, description="solver approximate: r = 1 - epsilon")


class GuardOptions(SolverOptions):
    """When a server is worth too little; the defaults are those of section 7 of the paper."""

    beta: float | None = Field(
        None, description="a constant beta instead of h(Q); also turns q(s) off unless stall_cap is given"
    )
    b: float = Field(0.9, gt=0, lt=1, description="h(Q) = b (p + (1 - p) tanh(z sum Q)): the limit of beta")
    p: float = Field(-0.05, le=1, description="h(Q): weight of the constant part")
    z: float = Field(0.005, gt=0, description="h(Q): how fast beta grows with the queues")
    stall_cap: float | None = Field(
        None, ge=0, le=1, description="at most this share of the servers stalls at a time (default 0.1 with h(Q))"
    )
    spread: Literal["linear-cap", "cap", "off"] = Field(
        "linear-cap", description="q(s): (1 - s) 1(s < cap), 1(s < cap), or 1"
    )

    @model_validator(mode="after")
    def _beta(self) -> GuardOptions:
        if self.beta is not None and not 0 < self.beta < 1:
            raise ValueError("beta must be between 0 and 1")
        return self


class Algorithm1Options(GuardOptions):
    """Options of Algorithm 1."""

    reduce_stalls: bool = Field(
        True, description="reset a stalled server as soon as its jobs are a subset of the best configuration"
    )
    faithful: bool = Field(
        False, description="the paper's words: configurations change at resets only, also on empty servers"
    )


def write_beta(o: GuardOptions, store: Store) -> None:
    """beta(Q, s), as `slots.beta` reads it."""
    constant = o.beta is not None
    cap = Fraction(str(o.stall_cap if o.stall_cap is not None else 0.1))
    spread = {"off": 0, "cap": 1, "linear-cap": 2}[o.spread]
    if constant and o.stall_cap is None:
        spread = 0
    whole, real = store.arrays["policy_ints"], store.arrays["policy_floats"]
    whole[slots.STALLS], whole[slots.ADAPTS], whole[slots.SPREADS] = 1, not constant, spread
    whole[slots.CAP_TOP], whole[slots.CAP_BOTTOM] = cap.numerator, cap.denominator
    real[slots.B] = o.beta if o.beta is not None else o.b
    real[slots.P], real[slots.Z] = o.p, o.z
    store.state.n_h = H_TABLE
    store.put("h", np.array([o.b * (o.p + (1.0 - o.p) * math.tanh(o.z * q)) for q in range(H_TABLE)]))


class Algorithm1(Policy):
    """Section 3 of the paper, with the customisations of section 6."""

    name = "algorithm1"
    summary = (
        "fixed configurations; a server worth less than beta of the best stalls, drains and resets (the paper)"
    )
    Options = Algorithm1Options
    keeps = frozenset()  # slots say what fits
    compiled = True
    arrive, complete = staticmethod(slots.arrive), staticmethod(slots.complete)
    join, leave = staticmethod(slots.join), staticmethod(slots.leave)

    def prepare(self, store: Store) -> None:
        o: Algorithm1Options = self.options
        write_beta(o, store)
        whole = store.arrays["policy_ints"]
        whole[slots.FAITHFUL], whole[slots.REDUCES] = o.faithful, o.reduce_stalls


class GuardedOptions(GuardOptions, FitOptions):
    """Options of the guarded policy; no scenario should need others than the defaults."""

    solver: SolverName = Field("auto", description="how the (r-)max-weight configuration is found")
    z: float = Field(0.0005, gt=0, description="h(Q): how fast beta grows with the queues")
    tightness: float = Field(
        20.0, ge=0, description="c: how many waiting jobs of each type the tightness of a packing is worth"
    )
    size_exponent: float = Field(
        1.25, ge=0, description="a waiting job counts (share of a server that it takes)^this"
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


class Guarded(Policy):
    """The delay of tight packing with the guarantee of Algorithm 1."""

    name = "guarded"
    summary = "packs tightly while queues are short; turns servers to max-weight configurations when they grow"
    Options = GuardedOptions
    keeps = frozenset({"free", "fit", "use"})
    keeps_slots = True
    compiled = True
    arrive, complete = staticmethod(guarded.arrive), staticmethod(guarded.complete)
    join, leave, cancel = staticmethod(guarded.join), staticmethod(guarded.leave), staticmethod(guarded.cancel)

    def prepare(self, store: Store) -> None:
        o: GuardedOptions = self.options
        state, sizes = store.state, store.sizes
        numbers = state.n_types, state.n_resources
        store.reserve_policy_numbers(layout.whole_numbers(*numbers), layout.real_numbers(*numbers))
        write_beta(o, store)
        state.hook_place, state.hook_fill = late(guarded.place), late(fillings.find_filling)
        whole, real = store.arrays["policy_ints"], store.arrays["policy_floats"]
        whole[layout.SPOILS] = 1
        real[layout.BASE], real[layout.EXPONENT], real[layout.POWER] = o.tightness, o.size_exponent, o.scarcity
        real[layout.FLOOR], real[layout.STANDING] = o.floor, o.standing
        real[layout.PERSISTENCE] = o.persistence
        whole[layout.NEXT_ESTIMATE] = gains.FIRST_ESTIMATE
        gains.paces(state)[:] = 1.0
        usable.resource_prices(state)[:] = 1.0
        score = np.zeros((state.n_classes, state.n_resources + 1))
        score[:, :-1] = 1.0 / np.maximum(sizes.capacity.max(axis=0), 1)
        store.put("score", score)


class M14Options(SolverOptions):
    """Options of M14."""

    weights: Literal["queue", "log"] = Field("queue", description="weigh a type by Q, or by log(1 + Q)")
    queues: Literal["central", "own"] = Field(
        "central", description="common queues, or one per server joined by the shortest-queue rule"
    )


class M14(Policy):
    """Maguluri & Srikant's MaxWeight with configurations renewed at local refresh times (a reconstruction)."""

    name = "m14"
    summary = "MaxWeight at local refresh times: a configuration is kept until the server is empty (reconstruction)"
    Options = M14Options
    keeps = frozenset()  # slots say what fits
    compiled = True
    arrive, complete = staticmethod(slots.arrive), staticmethod(slots.complete)
    join, leave = staticmethod(slots.join), staticmethod(slots.leave)


class G16Options(Options):
    """Options of G16."""

    alpha: float = Field(
        1.0, gt=0, description="sampling rate, per mean service time (not scaled with the servers)"
    )


class G16(Policy):
    """Ghaderi's randomized sampling, rate form (a reconstruction)."""

    name = "g16"
    summary = "randomized sampling: queues sample servers at rate alpha (1 + Q) and leave tokens (reconstruction)"
    Options: ClassVar[type[Options]] = G16Options
    keeps = frozenset({"free"})
    holds_tokens = True
    compiled = True
    arrive, complete, tick = (
        staticmethod(sampling.arrive),
        staticmethod(sampling.complete),
        staticmethod(sampling.tick),
    )
    join, leave, cancel = staticmethod(sampling.join), staticmethod(sampling.leave), staticmethod(sampling.cancel)

    def prepare(self, store: Store) -> None:
        store.arrays["policy_floats"][sampling.ALPHA] = self.options.alpha


class G16RetentionOptions(G16Options):
    """Options of G16 with retention."""

    b: float = Field(0.3, gt=0, lt=1, description="f(x) = log(1 + x)^(1 - b)")
    epsilon: float = Field(1e-4, gt=0, lt=1, description="w_j = max(f(Q_j), epsilon f(Q_max))")


class G16Retention(G16):
    """G16 where room stays with its type with a probability that grows with the queue (a reconstruction)."""

    name = "g16-retention"
    summary = "randomized sampling with retention of room by queue size (reconstruction)"
    Options = G16RetentionOptions

    def prepare(self, store: Store) -> None:
        super().prepare(store)
        store.arrays["policy_ints"][sampling.RETENTION] = 1
        store.arrays["policy_floats"][sampling.EXPONENT] = 1.0 - self.options.b
        store.arrays["policy_floats"][sampling.EPSILON] = self.options.epsilon


class Fitting(Policy):
    """What the fit-based policies share."""

    Options: ClassVar[type[Options]] = FitOptions
    keeps = frozenset({"free", "fit"})
    compiled = True
    server_rule: ClassVar[int] = fitting.LEAST_SCORE
    job_rule: ClassVar[int] = fitting.OLDEST
    blocks: ClassVar[bool] = False
    arrive, complete = staticmethod(fitting.arrive), staticmethod(fitting.complete)
    join, cancel = staticmethod(fitting.join), staticmethod(fitting.cancel)

    def prepare(self, store: Store) -> None:
        whole = store.arrays["policy_ints"]
        whole[fitting.SERVER_RULE], whole[fitting.JOB_RULE] = self.server_rule, self.job_rule
        whole[fitting.BLOCKS] = self.blocks
        score = np.zeros((store.state.n_classes, store.state.n_resources + 1))
        score[:, :-1] = self.coefficients(store.sizes.capacity.astype(np.float64))
        store.put("score", score)

    def coefficients(self, capacity: Any) -> Any:
        """The coefficient of each class's free resources in the score that a job's server minimises."""
        return 1.0 / np.maximum(capacity.max(axis=0), 1.0)


class BestFit(Fitting):
    """BF-J/S of Psychas & Ghaderi (2019), by the sum of the free shares."""

    name = "best-fit"
    summary = "a job goes where least is left free; a server takes the largest waiting type that fits"
    job_rule = fitting.LARGEST


class WorstFit(Fitting):
    """Where most is left free."""

    name = "worst-fit"
    summary = "a job goes where most is free; a server takes the longest waiting job that fits"

    def coefficients(self, capacity: Any) -> Any:
        return -super().coefficients(capacity)


class FirstFit(Fitting):
    """The lowest-numbered server that fits."""

    name = "first-fit"
    summary = "a job goes to the lowest-numbered server that fits; a server takes the longest waiting job that fits"
    keeps = frozenset({"free", "tree"})
    server_rule = fitting.LOWEST_NUMBER


class RandomFit(Fitting):
    """Any server that fits."""

    name = "random-fit"
    summary = "a job goes to a random server that fits; a server takes the longest waiting job that fits"
    server_rule = fitting.ANY


class Fifo(Fitting):
    """Strict order."""

    name = "fifo"
    summary = "strict order of arrival, first-fit; the head of the line blocks all others"
    keeps = frozenset({"free", "tree"})
    server_rule = fitting.LOWEST_NUMBER
    blocks = True


class KubernetesLeast(Fitting):
    """The LeastAllocated score of Kubernetes' NodeResourcesFit: mean over resources of free / capacity, the most wins."""

    name = "kubernetes-least-allocated"
    summary = "FIFO with retry of every waiting job; the server whose resources are least allocated"

    def coefficients(self, capacity: Any) -> Any:
        return -np.divide(1.0, capacity, out=np.zeros_like(capacity), where=capacity > 0)


class KubernetesMost(KubernetesLeast):
    """The MostAllocated score: the least free wins."""

    name = "kubernetes-most-allocated"
    summary = "FIFO with retry of every waiting job; the server whose resources are most allocated"

    def coefficients(self, capacity: Any) -> Any:
        return -super().coefficients(capacity)


class Tetris(Fitting):
    """Alignment score of Grandl et al. (2014): the largest dot product of demand and free resources."""

    name = "tetris"
    summary = "the largest dot product of a job's demand and a server's free resources, both ways"
    server_rule = fitting.LEAST_DOT
    job_rule = fitting.DOT


class MyopicOptions(FitOptions):
    """Options of myopic MaxWeight."""

    solver: Literal["dp", "greedy-fill", "approximate"] = Field(
        "greedy-fill", description="how the filling of the free room is found"
    )
    epsilon: float = Field(0.05, gt=0, lt=1, description="solver approximate: r = 1 - epsilon")


class MyopicMaxWeight(Fitting):
    """The max-weight filling of what is free, without ever waiting for more room."""

    name = "myopic-maxweight"
    summary = "on a completion, the max-weight filling of the free room; no stalls"
    Options = MyopicOptions
    job_rule = fitting.FILLING


class Vqs(Fitting):
    """Virtual queue scheduling of Psychas & Ghaderi (2019), a reconstruction."""

    name = "vqs"
    summary = "virtual queues by size with 4M - 4 configurations; one resource, alike servers (reconstruction)"
    arrive, complete = staticmethod(virtual.arrive), staticmethod(virtual.complete)
    join, leave, cancel = staticmethod(virtual.join), staticmethod(virtual.leave), staticmethod(virtual.cancel)
    job_rule = fitting.LARGEST
    fills: ClassVar[int] = 0

    def prepare(self, store: Store) -> None:
        sizes = store.sizes
        if store.state.n_resources > 1 or len(np.unique(sizes.capacity)) > 1:
            raise InputError(
                "is for one resource and servers of one size",
                where=f"policy {self.name}",
                remedy="use another policy here, such as algorithm1 or best-fit",
            )
        demand = [int(size) for size in sizes.demand[:, 0]]
        unit = int(sizes.capacity[0, 0])
        depth = max(2, 1 + max((unit // size).bit_length() - 1 for size in demand))
        rows = virtual.reduced_configurations(depth)
        numbers = [self.fills, len(rows), *virtual.virtual_queues(demand, unit, depth)]
        numbers += [number for row in rows for number in row]
        store.reserve_policy_numbers(len(numbers), 1)
        store.arrays["policy_ints"][:] = numbers
        score = np.zeros((store.state.n_classes, 2))
        score[:, :-1] = self.coefficients(sizes.capacity.astype(np.float64))
        store.put("score", score)


class VqsBf(Vqs):
    """VQS, then best-fit for what is left."""

    name = "vqs-bf"
    summary = "VQS, and best-fit into what its configurations leave free (reconstruction)"
    fills = 1


class EasyBackfill(Policy):
    """EASY backfilling, clairvoyant."""

    name = "easy-backfill"
    summary = "clairvoyant: first come, first served, with backfilling that does not delay the first in line"
    Options: ClassVar[type[Options]] = FitOptions
    keeps = frozenset({"free", "tree", "lists"})
    needs_durations = True
    compiled = True
    arrive, complete = staticmethod(backfill.arrive), staticmethod(backfill.complete)
    join, leave, cancel = staticmethod(backfill.join), staticmethod(backfill.leave), staticmethod(backfill.cancel)

    def prepare(self, store: Store) -> None:
        store.reserve_policy_numbers(backfill.SPARE + store.state.n_resources, 1)
        store.arrays["policy_ints"][backfill.FOR] = backfill.NOBODY


POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        Guarded,
        Algorithm1,
        M14,
        G16,
        G16Retention,
        BestFit,
        FirstFit,
        WorstFit,
        RandomFit,
        Fifo,
        KubernetesLeast,
        KubernetesMost,
        Tetris,
        MyopicMaxWeight,
        Vqs,
        VqsBf,
        EasyBackfill,
    )
}


def make_policy(name: str, **options: Any) -> Policy:
    """A policy by name, or a user's own as "file.py:ClassName"."""
    if ":" in name and name.partition(":")[0].endswith(".py"):
        return _from_file(name)(**options)
    if name not in POLICIES:
        near = difflib.get_close_matches(name, POLICIES, 1)
        raise InputError(
            f"no policy is called {name!r}",
            where="policy.name",
            remedy=f"did you mean {near[0]}?" if near else f"use one of: {', '.join(POLICIES)}",
        )
    return POLICIES[name](**options)


def _from_file(name: str) -> type[Policy]:
    path, _, attribute = name.partition(":")
    if not Path(path).is_file():
        raise InputError("no such file", where=f"policy {name}", remedy="give the path of a Python file")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(
            f"cannot be loaded: {type(error).__name__}: {error}",
            where=f"policy {name}",
            remedy=f"make it run with `python {path}` first",
        ) from error
    policy = getattr(module, attribute, None)
    if not (inspect.isclass(policy) and issubclass(policy, Policy)):
        raise InputError(
            f"{attribute!r} is not a policy in it",
            where=f"policy {name}",
            remedy="name a class that derives from slotwise.Policy",
        )
    return policy
