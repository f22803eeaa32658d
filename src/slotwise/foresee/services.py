"""How long jobs run: drawn from what was observed of similar jobs, given how long each has run already.

Similar jobs form pools, from special to general: the same batch; the same submitter, type and limit; the same type and limit; the same limit; the same type;
all jobs. A batch has one submitter, type and time limit, and no gap above BATCH_GAP between two submissions. A pool with weight n of observations
longer than the age is used with probability n / (n + PRIOR). Otherwise the next, more general pool is tried.
So a submitter with a few jobs is described by them and by all other jobs, in proportion to the evidence.

Jobs that still run, or were stopped, are censored: their duration is only known to be longer. A draw that hits a censored observation goes on
with its value as the age. That is the Kaplan-Meier estimate (Efron's redistribution to the right), without any table. It is right only if jobs enter a pool
by their start, never by their end: the jobs that ended last are the short ones, and the jobs that run are the long ones.

Jobs of one batch run about equally long, even if no job of the batch has completed. So they are drawn as from an urn (Blackwell and MacQueen 1973): each
draw counts as one more observation of the batch for the draws after it.
A time limit is an upper bound of every draw.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from slotwise.foresee.history import F8, I8, History

PRIOR = 2.0  # observations of the more general pool; a first guess
KEPT = (30, 30, 100, 200, 400, 2000)  # completed jobs of a pool, by level, the newest; old behaviour is forgotten
HALF = 0.25  # share of KEPT after which the weight of an observation has halved
BATCH_GAP = (
    3600.0  # seconds between two submissions of a batch; 4 hours were no better (docs/research/forecasts.md)
)
STEPS_PER_OCTAVE = 2.0  # limits within a factor of 2 ** (1 / 2) count as equal
NO_LIMIT = -(2**20)
SMALLEST = 1e-9  # seconds: keeps logarithms and quotients finite
TAIL_SHARE, TAIL_PRIOR = (
    0.05,
    2.0,
)  # share of the longest jobs from which the tail is learnt; jobs of the prior exponent
LEAST_TAIL, FIRST_TAIL = (
    1.2,
    2.0,
)  # exponents of the tail; 1 and less has no mean, so that one job would block a server for ever


def limit_steps(limit: F8) -> I8:
    """Return the time limits on a logarithmic grid; NO_LIMIT where there is none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.round(STEPS_PER_OCTAVE * np.log2(limit))
    return np.where(np.isfinite(steps), steps, NO_LIMIT).astype(np.int64)


class Batches:
    """Batches of jobs: the same submitter, type and limit, one soon after the other."""

    def __init__(self, own: I8, submitted: F8) -> None:
        """`own`: a number for submitter, type and limit of each job."""
        order = np.lexsort((submitted, own))
        own, submitted = own[order], submitted[order]
        new = np.ones(len(own), np.bool_)
        new[1:] = (own[1:] != own[:-1]) | (submitted[1:] - submitted[:-1] > BATCH_GAP)
        self._names = np.unique(own)
        self._origin = float(submitted.min(initial=0.0))
        self._span = float(np.ptp(submitted)) + 4.0 * BATCH_GAP if len(own) else 1.0
        self._code = self._coded(own, submitted)
        self._batch = np.cumsum(new) - 1

    def _coded(self, own: I8, submitted: F8) -> F8:
        at = np.clip(submitted - self._origin, 0.0, self._span - 2.0 * BATCH_GAP)
        return np.asarray(np.searchsorted(self._names, own) * self._span + at)

    def of(self, own: I8, submitted: F8) -> I8:
        """Return the batch of each job, -1 for a job of none."""
        if not len(self._names):
            return np.full(len(own), -1, np.int64)
        code = self._coded(own, submitted)
        before = np.searchsorted(self._code, code, side="right") - 1
        known = self._names[np.minimum(np.searchsorted(self._names, own), len(self._names) - 1)] == own
        near = known & (before >= 0) & (code - self._code[before] <= BATCH_GAP)
        return np.where(near, self._batch[before], -1)


class ServiceTimes:
    """Durations of jobs as observed in a history."""

    def __init__(self, history: History, now: float) -> None:
        step = limit_steps(history.limit)
        self._batches = Batches(_own(history.owner, history.type, step), history.submitted)
        begun = np.flatnonzero(~np.isnan(history.started))
        begun = begun[np.argsort(-history.started[begun], kind="stable")]  # newest first
        running = np.isnan(history.ended[begun])
        values = np.where(running, now, history.ended[begun]) - history.started[begun]
        values = np.maximum(values, SMALLEST)
        exact = history.completed[begun]
        self.n_exact = int(exact.sum())
        self.mean = float(values.mean()) if len(values) else math.nan
        self.tail = _tail(values, exact)
        keys = self._keys(history.owner[begun], history.type[begun], step[begun], history.submitted[begun])
        pool: list[I8] = []
        rows: list[I8] = []
        weights: list[F8] = []
        self._pools: list[tuple[I8, int]] = []
        first = 0
        for level, kept in enumerate(KEPT):
            names, number = np.unique(keys[:, level], return_inverse=True)
            by_pool = np.argsort(number, kind="stable")
            sorted_number = number[by_pool]
            starts = np.searchsorted(sorted_number, np.arange(len(names)))
            completed: I8 = np.cumsum(exact[by_pool]) - exact[by_pool]
            newer: I8 = completed - completed[starts][sorted_number] if len(names) else completed
            recent = newer < kept
            pool.append(first + sorted_number[recent])
            rows.append(by_pool[recent])
            weights.append(0.5 ** (newer[recent] / (HALF * kept)))
            self._pools.append((names, first))
            first += len(names)
        pools, members = np.concatenate(pool), np.concatenate(rows)
        self._distinct = np.unique(values)
        rank = np.searchsorted(self._distinct, values)[members]
        self._width = len(self._distinct) + 1
        code = pools * self._width + rank
        by_code = np.argsort(code, kind="stable")
        self._code = code[by_code]
        self._value, self._exact = values[members][by_code], exact[members][by_code]
        self._weight = np.concatenate([[0.0], np.cumsum(np.concatenate(weights)[by_code])])
        self._end = np.append(np.searchsorted(self._code, np.arange(1, first + 1) * self._width), 0)

    def known(self) -> bool:
        """Return whether any job has completed."""
        return self.n_exact > 0

    def _keys(self, owner: I8, job_type: I8, step: I8, submitted: F8) -> I8:
        """Return a whole number for each pool of each job, from special to general."""
        own = _own(owner, job_type, step)
        batch = self._batches.of(own, submitted)
        kind = job_type * 2**22 + (step + 2**21)
        return np.stack([batch, own, kind, step, job_type, np.zeros_like(kind)], axis=1)

    def pools_of(self, owner: I8, job_type: I8, limit: F8, submitted: F8) -> I8:
        """Return the pools of jobs, (n, levels); -1 for a pool without observations."""
        keys = self._keys(owner, job_type, limit_steps(limit), submitted)
        found = np.full(keys.shape, -1, np.int64)
        for level, (names, first) in enumerate(self._pools):
            if len(names):
                at = np.minimum(np.searchsorted(names, keys[:, level]), len(names) - 1)
                found[:, level] = np.where(names[at] == keys[:, level], first + at, -1)
        found[keys[:, 0] < 0, 0] = -1
        return found

    def batches_of(self, owner: I8, job_type: I8, limit: F8, submitted: F8) -> I8:
        """Return the batch of each job, -1 for a job of none."""
        return self._batches.of(_own(owner, job_type, limit_steps(limit)), submitted)

    def draw(self, pools: I8, age: F8, limit: F8, rng: Generator, batch: I8 | None = None) -> F8:
        """Draw the whole duration of each job, longer than its age and at most its limit. With `batch`, jobs of one batch are drawn from one urn."""
        n, levels = pools.shape
        out = np.empty(n)
        source = np.arange(n) if batch is None else self._sources(pools[:, 0], age, batch, rng)
        level, past = np.zeros(n, np.int64), np.array(age, np.float64)
        active = np.flatnonzero(source == np.arange(n))
        while len(active):
            pool, least = pools[active, level[active]], past[active]
            begin, end = self._longer(pool, least)
            weight = self._weight[end] - self._weight[begin]
            last = level[active] == levels - 1
            here = rng.random(len(active)) < weight / (weight + np.where(last, 0.0, PRIOR) + SMALLEST)
            pick = np.searchsorted(
                self._weight, self._weight[begin] + rng.random(len(active)) * weight, side="right"
            )
            pick = np.clip(np.minimum(pick - 1, end - 1), 0, max(0, len(self._code) - 1))
            here &= end > begin
            value, exact = self._value[pick], self._exact[pick] & here
            out[active[exact]] = value[exact]
            censored = here & ~exact
            past[active[censored]] = value[censored]
            beyond = ~here & last  # everything that was observed: the tail of a Pareto law
            out[active[beyond]] = np.maximum(least[beyond], SMALLEST) * (1.0 - rng.random(int(beyond.sum()))) ** (
                -1.0 / self.tail
            )
            level[active] += ~here
            active = active[~exact & ~beyond]
        out = out[source]
        bounded = np.where(np.isnan(limit), out, np.minimum(out, limit))
        return np.maximum(bounded, age + SMALLEST)

    def _longer(self, pool: I8, least: F8) -> tuple[I8, I8]:
        """Return where the observations of a pool begin and end that are longer than `least`."""
        rank = np.searchsorted(self._distinct, least, side="right")
        begin = np.searchsorted(self._code, pool * self._width + rank)
        none = pool < 0
        return np.where(none, 0, begin), np.where(none, 0, self._end[pool])

    def _sources(self, pool: I8, age: F8, batch: I8, rng: Generator) -> I8:
        """Return of each job the job whose draw it shares: an earlier one of its batch, or itself.

        The oldest come first, so that every shared draw is longer than the age of the job."""
        n = len(age)
        group = np.where(batch < 0, -1 - np.arange(n), batch)
        order = np.lexsort((-age, group))
        first = np.searchsorted(group[order], group[order])
        earlier = np.arange(n) - first
        begin, end = self._longer(pool[order], age[order])
        weight = self._weight[end] - self._weight[begin]
        shares = rng.random(n) * (earlier + weight + PRIOR) < earlier
        source = np.where(shares, first + (rng.random(n) * earlier).astype(np.int64), np.arange(n))
        while (source[source] != source).any():
            source = source[source]
        found = np.empty(n, np.int64)
        found[order] = order[source]
        return found


def _own(owner: I8, job_type: I8, step: I8) -> NDArray[np.int64]:
    """Return a whole number for submitter, type and limit."""
    return owner * 2**40 + job_type * 2**22 + (step + 2**21)


def _tail(values: F8, exact: NDArray[np.bool_]) -> float:
    """Return the exponent of a Pareto law beyond the longest jobs: the estimate of Hill (1975) for censored values, held by a prior."""
    if not len(values):
        return FIRST_TAIL
    edge = np.quantile(values, 1.0 - TAIL_SHARE)
    top = values > edge
    spread = float(np.log(values[top] / edge).sum())
    return max(LEAST_TAIL, (float(exact[top].sum()) + TAIL_PRIOR) / (spread + TAIL_PRIOR / FIRST_TAIL))
