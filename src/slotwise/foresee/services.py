"""How long jobs run: drawn from what was observed of similar jobs, given how long each has run already.

Similar jobs form pools, from special to general: the same submitter, type and time limit; the same type and limit; the same limit; the same type; all jobs. A pool with n
observations longer than the age is used with probability n / (n + PRIOR); otherwise the next, more general pool is tried. So a submitter with a
few jobs is described by them and by what others do, in proportion to the evidence.

Jobs that still run, or were stopped, are censored: their duration is only known to be longer. A draw that hits a censored observation goes on
with its value as the age. That is the Kaplan-Meier estimate (Efron's redistribution to the right), without any table.
A time limit is an upper bound of every draw.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from slotwise.foresee.history import F8, I8, History

PRIOR = 2.0  # observations of the more general pool; a first guess
KEPT = (25, 100, 200, 400, 2000)  # newest observations of a pool, by level; old behaviour is forgotten
STEPS_PER_OCTAVE = 2.0  # limits within a factor of 2 ** (1 / 2) count as equal
NO_LIMIT = -(2**20)
SMALLEST = 1e-9


def limit_steps(limit: F8) -> I8:
    """Return the time limits on a logarithmic grid; NO_LIMIT where there is none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.round(STEPS_PER_OCTAVE * np.log2(limit))
    return np.where(np.isfinite(steps), steps, NO_LIMIT).astype(np.int64)


class ServiceTimes:
    """Durations of jobs as observed in a history."""

    def __init__(self, history: History, now: float) -> None:
        begun = np.flatnonzero(~np.isnan(history.started))
        running = np.isnan(history.ended[begun])
        values = np.where(running, now, history.ended[begun]) - history.started[begun]
        values = np.maximum(values, SMALLEST)
        exact = history.completed[begun]
        self.n_exact = int(exact.sum())
        self.mean = float(values.mean()) if len(values) else math.nan
        # newest first, so that the first KEPT rows of each pool are the newest
        when = np.where(running, now, history.ended[begun])
        order = np.argsort(-when, kind="stable")
        begun, values, exact = begun[order], values[order], exact[order]
        keys = _keys(history.owner[begun], history.type[begun], limit_steps(history.limit[begun]))
        pool: list[I8] = []
        rows: list[I8] = []
        self._pools: list[dict[int, int]] = []
        first = 0
        for level, kept in enumerate(KEPT):
            names, number = np.unique(keys[:, level], return_inverse=True)
            by_pool = np.argsort(number, kind="stable")
            sorted_number = number[by_pool]
            starts = np.searchsorted(sorted_number, np.arange(len(names)))
            recent = np.arange(len(by_pool)) - starts[sorted_number] < kept
            pool.append(first + sorted_number[recent])
            rows.append(by_pool[recent])
            self._pools.append({int(name): first + at for at, name in enumerate(names)})
            first += len(names)
        self._n_pools = first
        pools, members = np.concatenate(pool), np.concatenate(rows)
        self._distinct = np.unique(values)
        rank = np.searchsorted(self._distinct, values)[members]
        self._width = len(self._distinct) + 1
        code = pools * self._width + rank
        by_code = np.argsort(code, kind="stable")
        self._code = code[by_code]
        self._value, self._exact = values[members][by_code], exact[members][by_code]
        self._end = np.append(np.searchsorted(self._code, np.arange(1, first + 1) * self._width), 0)

    def known(self) -> bool:
        """Return whether any job has completed."""
        return self.n_exact > 0

    def pools_of(self, owner: I8, job_type: I8, limit: F8) -> I8:
        """Return the pools of jobs, (n, levels); -1 for a pool without observations."""
        keys = _keys(owner, job_type, limit_steps(limit))
        found = np.empty(keys.shape, np.int64)
        for level, pools in enumerate(self._pools):
            names, number = np.unique(keys[:, level], return_inverse=True)
            found[:, level] = np.array([pools.get(int(name), -1) for name in names], np.int64)[number]
        return found

    def draw(self, pools: I8, age: F8, limit: F8, rng: Generator) -> F8:
        """Draw the whole duration of each job, longer than its age and at most its limit."""
        n, levels = pools.shape
        out = np.empty(n)
        level, past = np.zeros(n, np.int64), np.array(age, np.float64)
        active = np.arange(n)
        while len(active):
            pool, least = pools[active, level[active]], past[active]
            rank = np.searchsorted(self._distinct, least, side="right")
            begin = np.searchsorted(self._code, pool * self._width + rank)
            longer = np.where(pool < 0, 0, self._end[pool] - begin)
            last = level[active] == levels - 1
            chance = longer / (longer + np.where(last, 0.0, PRIOR) + SMALLEST)
            here = rng.random(len(active)) < chance
            pick = np.minimum(begin + (rng.random(len(active)) * longer).astype(np.int64), len(self._code) - 1)
            value, exact = self._value[pick], self._exact[pick] & here
            out[active[exact]] = value[exact]
            censored = here & ~exact
            past[active[censored]] = value[censored]
            # beyond everything that was observed: the tail of a Pareto law, in which half of the jobs double their age
            beyond = ~here & last
            out[active[beyond]] = np.maximum(least[beyond], SMALLEST) / (1.0 - rng.random(int(beyond.sum())))
            level[active] += ~here
            active = active[~exact & ~beyond]
        bounded = np.where(np.isnan(limit), out, np.minimum(out, limit))
        return np.maximum(bounded, age + SMALLEST)


def _keys(owner: I8, job_type: I8, step: I8) -> NDArray[np.int64]:
    """Return a whole number for each pool of each job, from special to general."""
    kind = job_type * 2**22 + (step + 2**21)
    return np.stack([owner * 2**40 + kind, kind, step, job_type, np.zeros_like(kind)], axis=1)
