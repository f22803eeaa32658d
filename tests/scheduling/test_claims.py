"""What a policy says of its beta and its cap is what its kernels do, whatever its options."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from slotwise.core import chance
from slotwise.core.contract.claims import MaxWeight
from slotwise.core.contract.policy import Policy
from slotwise.core.store import Store
from slotwise.errors import InputError
from slotwise.model import Cluster, JobType, ServerClass, integers
from slotwise.packing import spaces_of
from slotwise.policies.paper import slots
from slotwise.scheduling import POLICIES, make_policy

pytestmark = pytest.mark.core

CLUSTER = Cluster(resources=("units",), servers=(ServerClass(name="s", count=3, capacity=(10,)),))
TYPES = (JobType(name="a", demand=(5,)), JobType(name="b", demand=(2,)))
MAX_WEIGHT = [name for name, policy in POLICIES.items() if isinstance(policy().claim(), MaxWeight)]
STALLING = ["algorithm1"]  # policies with a beta; guarded has a margin instead
SERVERS, ENDLESS = 200, 10**9
BETAS: list[dict[str, Any]] = [
    {},
    {"beta": 0.6},
    {"z": 0.1, "b": 0.7},
    {"p": 1.0, "b": 0.98},
    {"p": 0.5},
    {"p": -3.0},
]
CAPS: list[dict[str, Any]] = [
    {} if cap is None else {"stall_cap": cap} for cap in (None, 0.0, 0.004, 0.015, 0.5, 1.0)
]
SPREADS: list[dict[str, Any]] = [{}, {"spread": "cap"}, {"spread": "off"}]
GRID = [beta | cap | spread for beta, cap, spread in itertools.product(BETAS, CAPS, SPREADS)]


def test_the_catalogue_has_each_policy_by_its_name() -> None:
    assert len(POLICIES) == len({*POLICIES.values()}) == 19
    assert all(policy.name == name for name, policy in POLICIES.items())
    assert "no such" not in POLICIES


def store_of(policy: Policy) -> Store:
    """What the policy's functions see, before any server joins."""
    sizes = integers(CLUSTER, TYPES)
    means = np.ones(len(TYPES))
    return Store(
        sizes,
        policy,
        max_servers=3,
        spaces=spaces_of(CLUSTER.servers, sizes),
        random=chance.words_of(1),
        mean_service=means,
    )


def busy_store_of(policy: Policy) -> Any:
    """The same as if there were many servers and the queues very long. The store owns the state: who looks at that keeps it."""
    store: Any = store_of(policy)
    store.state.n_servers, store.state.n_waiting = SERVERS, ENDLESS
    return store


def test_who_stalls_says_how() -> None:
    stalling = []
    for name, policy in POLICIES.items():
        names = [scalar.name for scalar in policy.memory.whole]
        store = store_of(policy())
        if "stalls" in names and store.arrays["policy_ints"][names.index("stalls")]:
            stalling.append(name)
    assert stalling == STALLING
    assert sorted(MAX_WEIGHT) == ["algorithm1", "guarded"]


@pytest.mark.parametrize("name", STALLING)
def test_claims_are_what_the_kernels_do(name: str) -> None:
    for options in GRID:
        policy = make_policy(name, solver="greedy", **options)
        claim = policy.claim()
        assert isinstance(claim, MaxWeight)
        store, share = busy_store_of(policy), claim.stall_share
        state = store.state
        free = 0.0 if share == 0 else claim.beta
        assert slots.beta(state) == pytest.approx(free, rel=0.02 if claim.sublinear else 1e-6), options
        for stalled in (0, 1, 2, 3, 19, 20, 21, 99, 100, 101, 199, 200):
            state.n_stalled = stalled
            may = share is None or stalled < Fraction(str(share)) * SERVERS
            assert (slots.beta(state) > 0) == may, (options, stalled)
        told = [one for one in claim.assumptions if "q(s)" in one.text or one.holds is False]
        assert len(told) == (share is not None), options
        assert all((one.holds is False) == (share == 0) for one in told)
        assert share in (None, 0) or f"fewer than {100 * (share or 0):g} %" in told[0].text


@pytest.mark.parametrize("name", STALLING)
def test_the_figures_told_are_those_in_the_kernels(name: str) -> None:
    for options in BETAS:
        claim = make_policy(name, **options).claim()
        assert isinstance(claim, MaxWeight)
        real = store_of(make_policy(name, **options)).arrays["policy_floats"]
        b, p, z = (float(real[place]) for place in (slots.B, slots.P, slots.Z))
        adapts = f"h(Q) with b = {b:g}, p = {p:g}, z = {z:g} tends to {b:g}"
        if claim.sublinear:
            slack, scale, power = (float(real[place]) for place in (slots.SLACK, slots.SCALE, slots.POWER))
            adapts = f"beta = 1 - {slack:g} / (1 + sum Q / {scale:g})^{power:g}, power below 1"
        assert claim.limit.detail == (f"beta = {b:g}, constant" if "beta" in options else adapts)
        assert make_policy(name, **{claim.beta_option: 0.77}).claim().beta == 0.77  # type: ignore[union-attr]


@pytest.mark.parametrize("name", MAX_WEIGHT)
def test_solvers_are_those_that_are_made(name: str) -> None:
    for solver in ("auto", "greedy", "approximate"):
        policy = make_policy(name, solver=solver, epsilon=0.2)
        claim = policy.claim()
        assert isinstance(claim, MaxWeight)
        (made,) = store_of(policy).solvers
        assert claim.solver == made.asked == policy.solver
        assert claim.epsilon == 0.2
        assert made.r == pytest.approx(0.8) or solver != "approximate"


@pytest.mark.parametrize("name", STALLING)
def test_a_sublinear_beta_tends_to_one_but_ever_more_slowly(name: str) -> None:
    policy = make_policy(name, hysteresis="sublinear", slack=1.5, scale=10.0, power=0.5, spread="off")
    store = store_of(policy)
    for waiting in (0, 1, 7, 4095, 4096, 10**6, 10**9):  # from the table, and past it
        store.state.n_waiting = waiting
        assert slots.beta(store.state) == pytest.approx(1.0 - 1.5 / math.sqrt(1.0 + waiting / 10.0))
    limits = [(1.0 - policy.options.h(n)) * n for n in (10**3, 10**6, 10**9)]
    assert limits == sorted(limits)
    assert limits[-1] > 10**4
    with pytest.raises(InputError, match="constant"):
        make_policy(name, hysteresis="sublinear", beta=0.9)
    assert not make_policy(name, b=0.8).options.sublinear  # b is about the other kind


def test_no_limit_no_option() -> None:
    for option in ({"p": float("-inf")}, {"z": float("inf")}, {"beta": float("nan")}):
        for name in STALLING:
            with pytest.raises(InputError, match="finite number"):
                make_policy(name, **option)
