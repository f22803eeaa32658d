"""Policies that pack by what is free: best-fit and its relatives, FIFO, Kubernetes' scores, Tetris, myopic MaxWeight.

Each is a rule for the server of a job (least linear score, lowest number, any) and a rule for the job of a server
(largest, longest waiting, largest dot product). All are work-conserving but FIFO: after each event no waiting job fits
anywhere. So an arrival is tried alone, and only a server that has got room looks for jobs: at all that wait (`line`), whatever their
types. Where the jobs of each of a few types are alike the first of each type say it all, and are looked through instead.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from slotwise.compiler.kernel import kernel
from slotwise.core import chance
from slotwise.core import state as st
from slotwise.core.contract.claims import Assumption, FixedShare, Need, PolicyClaim, Unknown
from slotwise.core.contract.memory import Memory
from slotwise.core.contract.policy import FitOptions, Options, Policy, SolverOptions
from slotwise.core.contract.reasons import Because, Reason
from slotwise.core.contract.view import View
from slotwise.core.indexes import firsttree, fitindex, line
from slotwise.core.indexes.weights import best_filling
from slotwise.core.steps import oldest_head, start, start_job
from slotwise.core.store import Store

MEMORY = Memory()
SERVER_RULE = MEMORY.count("server_rule", kept=False)
JOB_RULE = MEMORY.count("job_rule", kept=False)
BLOCKS = MEMORY.count("blocks", kept=False)
LEAST_SCORE, LEAST_DOT, LOWEST_NUMBER, ANY = 0, 1, 2, 3  # SERVER_RULE
LARGEST, OLDEST, DOT, FILLING = 0, 1, 2, 3  # JOB_RULE

TRIES = 32  # random servers before all that fit are listed
AS_LARGE = 3  # row of `order`


def arrive(s: st.State, j: int, i: int) -> None:
    """Start the new job if some server fits it. The jobs before it fit on no server."""
    if st.policy_ints(s)[BLOCKS]:
        if st.head(s, j) == i:
            serve_in_order(s)
    elif s.keeps_line or st.head(s, j) == i:
        st.set_job_need(s, i)
        server = find_server(s, st.need(s))
        if server >= 0:
            start_job(s, i, server)


def complete(s: st.State, j: int, server: int) -> None:
    """Fill the server."""
    if s.n_waiting > 0:
        refill(s, server)


def join(s: st.State, server: int, _: int) -> None:
    """Fill the new server."""
    if s.n_waiting > 0:
        refill(s, server)


def cancel(s: st.State, j: int, i: int) -> None:
    """Serve in order again: the cancelled job may have blocked younger jobs."""
    if s.n_waiting > 0 and st.policy_ints(s)[BLOCKS]:
        serve_in_order(s)


@kernel
def refill(s: st.State, server: int) -> None:
    """Start waiting jobs on the server by the job rule until none fits."""
    rule = st.policy_ints(s)[JOB_RULE]
    if st.policy_ints(s)[BLOCKS]:
        serve_in_order(s)
        return
    if rule == FILLING:
        fill_by_weight(s, server)
    fill(s, server, rule)


@kernel
def fill(s: st.State, server: int, rule: int) -> None:
    """Start waiting jobs on the server, one after the other, until none fits."""
    while s.n_waiting > 0:
        if s.keeps_line:
            i = next_of_line(s, server, rule)
            if i < 0:
                break
            start_job(s, i, server)
        else:
            j = next_job(s, server, rule)
            if j < 0:
                break
            start(s, j, server)


@kernel
def next_of_line(s: st.State, server: int, rule: int) -> int:
    """Return the waiting job that the server takes next, or -1."""
    room, c = st.free(s)[server], st.servers(s)[server, st.CLASS]
    if rule == OLDEST:
        return line.oldest(s, room, c)
    return line.largest(s, room, c, line.BY_DOT if rule == DOT else line.BY_SHARE)


@kernel
def serve_in_order(s: st.State) -> None:
    """Serve strictly first come, first served: the oldest job blocks all younger ones."""
    while s.n_waiting > 0:
        j = oldest_head(s, 0)
        st.set_need(s, j)
        server = find_server(s, st.need(s))
        if server < 0:
            return
        start(s, j, server)


@kernel
def find_server(s: st.State, size: NDArray[np.int64]) -> int:
    """Return a server with free capacity for the size, by the server rule, or -1."""
    rule = st.policy_ints(s)[SERVER_RULE]
    if rule == LOWEST_NUMBER:
        return firsttree.first_fit(s, size, 0)
    if rule == ANY:
        return any_server(s, size)
    if rule == LEAST_DOT:
        _set_dot_score(s, size)
    return fitindex.best(s, size)


@kernel
def any_server(s: st.State, size: NDArray[np.int64]) -> int:
    """Return a uniformly random server with free capacity, or -1: by trial, and if trials keep failing by counting
    such servers. If there is none, the random numbers are given back, so that the number of failed searches
    changes nothing."""
    x, y, z, w = s.random_x, s.random_y, s.random_z, s.random_w
    for _ in range(TRIES):
        server = chance.below(s, s.n_places)
        if st.servers(s)[server, st.STATUS] == st.PRESENT and st.fits(s, server, size):
            return server
    room = fitindex.count(s, size, -1)
    if room == 0:
        s.random_x, s.random_y, s.random_z, s.random_w = x, y, z, w
        return -1
    return fitindex.count(s, size, chance.below(s, room))


@kernel
def _set_dot_score(s: st.State, size: NDArray[np.int64]) -> None:
    """Set the score - sum_r (demand_r / capacity_r) (free_r / capacity_r): the least score is the largest dot
    product."""
    for c in range(s.n_classes):
        for r in range(s.n_resources):
            whole = float(st.capacity(s)[c, r])
            fitindex.score(s)[c, r] = -(size[r] / whole) / whole if whole > 0.0 else 0.0


@kernel
def next_job(s: st.State, server: int, rule: int) -> int:
    """Return the type whose head of queue the server takes next, or -1. Of equal heads take the older."""
    best, value, age, by_size = -1, 0.0, np.int64(0), rule in (LARGEST, FILLING)
    for n in range(s.n_types):
        if by_size and best >= 0 and not st.order(s)[AS_LARGE, n]:
            break
        j = st.order(s)[0, n]
        if st.queue_length(s)[j] == 0:
            continue
        st.set_need(s, j)
        if not st.fits(s, server, st.need(s)):
            continue
        this, born = _dot(s, server) if rule == DOT else 0.0, st.sequence(s)[st.head(s, j)]
        if best < 0 or this > value or (this == value and born < age):
            best, value, age = int(j), this, born
    return best


@kernel
def _dot(s: st.State, server: int) -> float:
    whole, total = st.capacity(s)[st.servers(s)[server, st.CLASS]], 0.0
    for r in range(s.n_resources):
        if whole[r] > 0:
            total += (st.need(s)[r] / whole[r]) * (st.free(s)[server, r] / whole[r])
    return total


@kernel
def fill_by_weight(s: st.State, server: int) -> None:
    """Start the max-weight filling of what is free, as far as jobs wait for it."""
    best_filling(s, server, st.free(s)[server])
    for j in range(s.n_types):
        for _ in range(min(st.choice(s)[0, j], st.queue_length(s)[j])):
            start(s, j, server)


class Fitting(Policy):
    """What the fit-based policies share."""

    Options: ClassVar[type[Options]] = FitOptions
    memory = MEMORY
    keeps = frozenset({"free", "fit", "line"})
    compiled = True
    server_rule: ClassVar[int] = LEAST_SCORE
    job_rule: ClassVar[int] = OLDEST
    blocks: ClassVar[bool] = False
    arrive, complete = staticmethod(arrive), staticmethod(complete)
    join, cancel = staticmethod(join), staticmethod(cancel)

    def prepare(self, store: Store) -> None:
        whole = store.arrays["policy_ints"]
        whole[SERVER_RULE], whole[JOB_RULE], whole[BLOCKS] = self.server_rule, self.job_rule, self.blocks
        store.put_score(self.coefficients(store.sizes.capacity.astype(np.float64)))
        # `complete` reads the waiting jobs, not the index of servers. Most often a job starts, and the server is filed once instead of twice.
        store.state.files_late = self.complete is complete and self.stop is None and not self.blocks

    def coefficients(self, capacity: Any) -> Any:
        """Return the coefficient of each class's free resources in the score that a job's server minimises."""
        return 1.0 / np.maximum(capacity.max(axis=0), 1.0)

    def why_waits(self, view: View, i: int) -> Because:
        if self.blocks and (first := view.first_in_line()) != i:
            return Because(Reason.BLOCKED, {"first": view.job_of[first]})
        return super().why_waits(view, i)


def share_of_one_resource(share: float) -> FixedShare:
    """Return the guarantee of Psychas and Ghaderi 2019: alike servers, one resource, one service rate, no types
    needed."""
    return FixedShare(
        share,
        "Psychas and Ghaderi 2019",
        needs=(
            Need.SERVERS_STAY,
            Need.POISSON,
            Need.ONE_RESOURCE,
            Need.ALIKE_SERVERS,
            Need.EQUAL_EXPONENTIAL,
        ),
        assumptions=(
            Assumption(
                "time in slots, geometric services", None, "continuous time here, as the limit of short slots"
            ),
        ),
    )


class BestFit(Fitting):
    """BF-J/S of Psychas & Ghaderi (2019), by the sum of the free shares."""

    name = "best-fit"
    summary = "a job goes where least is left free; a server takes the largest waiting job that fits"
    job_rule = LARGEST

    def claim(self) -> PolicyClaim:
        return share_of_one_resource(1 / 2)


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
    keeps = frozenset({"free", "tree", "line"})
    server_rule = LOWEST_NUMBER


class RandomFit(Fitting):
    """Any server that fits."""

    name = "random-fit"
    summary = "a job goes to a random server that fits; a server takes the longest waiting job that fits"
    server_rule = ANY


class Fifo(Fitting):
    """Strict order."""

    name = "fifo"
    summary = "strict order of arrival, first-fit; the head of the line blocks all others"
    keeps = frozenset({"free", "tree"})
    server_rule = LOWEST_NUMBER
    blocks = True

    def claim(self) -> PolicyClaim:
        return Unknown("the oldest job blocks all younger ones, so capacity stays free; no share known")


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
    server_rule = LEAST_DOT
    job_rule = DOT


class MyopicOptions(FitOptions, SolverOptions):
    """Options of myopic MaxWeight."""

    solver: Literal["dp", "greedy-fill", "approximate"] = Field(
        "greedy-fill", description="how the filling of the free room is found"
    )


class MyopicMaxWeight(Fitting):
    """The max-weight filling of what is free, without ever waiting for more room."""

    name = "myopic-maxweight"
    summary = "on a completion, the max-weight filling of the free room; no stalls"
    Options = MyopicOptions
    job_rule = FILLING
