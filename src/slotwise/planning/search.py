"""The fewest servers, or the cheapest mix of several classes. More servers are taken never to do worse.

Of each class there are at least `least` (those that one owns, say) and at most `most`. What the search ends with is confirmed with other
random numbers; where that fails the search goes on.

One class: from the least number that theory allows, steps of doubling length until the targets are met, then
bisection between the last that failed and the first that did not.

Several classes: the same along the mix of the linear program, scaled up and rounded up. Then every mix that costs less
than the best one so far and is not ruled out is a candidate. Theory rules out some mixes; a mix that failed rules out
every mix with no more servers of any class. The candidate with the most capacity to spare is tried next. If it meets
the targets, it is the best so far, and the next candidate must save twice what was saved last. If it fails, the next
may save anything. When no candidate is left, the best mix is the cheapest. When the budget of trials is used up first,
or several trials in a row have failed, it is the best found. Only the best mix is confirmed, since a confirmation takes
longest. If it does not hold, the search goes on from the mix before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slotwise.errors import InputError, SlotwiseError
from slotwise.model import MOST_SERVERS
from slotwise.planning.limit import CheapestMix, serves
from slotwise.planning.trials import Counts, Trial, Trials

MOST_CANDIDATES = 200_000  # mixes that are listed at once
CONFIRMATIONS = 12  # after which the search ends without a plan that holds
# mixes that fail one after the other, each with less room to spare, before the search for a cheaper one ends
PATIENCE = 8
MOST_TIMES = 64  # how often the least number of servers is multiplied before the targets count as out of reach


def along(trials: Trials, mix: Callable[[int], Counts], start: int) -> Trial:
    """Return the least i >= 1 for which mix(i), which grows with i, meets the targets. The search begins at
    `start`."""
    _refuse_too_many(trials, mix(start))
    if trials.question.firm:
        start = _first_possible(trials, mix, start)
    step = max(1, math.isqrt(sum(mix(start))) // 2)
    at = start
    if trials.of(mix(start)).meets:
        high, low = start, 0
        while high > 1:  # of a trace `start` is a guess, and less may do
            at = max(1, high - step)
            if trials.question.firm and at < start:
                low = start - 1
                break
            if not trials.of(mix(at)).meets:
                low = at
                break
            high, step = at, 2 * step
    else:
        low = start
        while True:
            at, step = at + step, 2 * step
            if at > MOST_TIMES * (sum(mix(start)) + 1) or sum(mix(at)) > MOST_SERVERS:
                raise SlotwiseError(_out_of_reach(trials, mix(low)))
            if trials.of(mix(at)).meets:
                break
            low = at
        high = at
    while high - low > 1:
        middle = (low + high) // 2
        if trials.of(mix(middle)).meets:
            high = middle
        else:
            low = middle
    return trials.of(mix(high))


def _refuse_too_many(trials: Trials, counts: Counts) -> None:
    if sum(counts) > MOST_SERVERS:
        raise InputError(
            f"to carry the load at all takes {sum(counts):,.4g} servers, more than {MOST_SERVERS:,}",
            where=trials.question.scenario.name,
            remedy="lower the rates, or give larger servers",
        )


def _first_possible(trials: Trials, mix: Callable[[int], Counts], start: int) -> int:
    """Return the least i from `start` on that theory does not exclude. All below are excluded."""
    low, at, step = start - 1, start, 1
    while trials.impossible(mix(at)):
        if at > MOST_TIMES * (sum(mix(start)) + 1):
            raise SlotwiseError(_out_of_reach(trials, mix(at)))
        low, at, step = at, at + step, 2 * step
    while at - low > 1:
        middle = (low + at) // 2
        if trials.impossible(mix(middle)):
            low = middle
        else:
            at = middle
    return at


def _out_of_reach(trials: Trials, counts: Counts) -> str:
    last = trials.of(counts)
    return (
        f"the target is out of reach: with {sum(counts):,} servers, {last.why or last.verdict}"
        f" under {trials.question.choice.name}; try another policy or a milder target"
    )


def scaled_mix(limit: CheapestMix, bounds: Bounds) -> tuple[Callable[[int], Counts], int]:
    """Return a function of i, and the first i to try. The function scales the mix of the linear program so that its
    largest class has i servers, within the bounds; if a class is full, all other classes go on growing. The first i is
    that of the program, or 1 if some servers are there already."""
    largest = float(limit.servers.max())
    share = limit.servers / largest

    def mix(i: int) -> Counts:
        wanted = [math.ceil(round(float(part) * i, 9)) for part in share]
        if bounds.most is not None:
            over = max(0, *(n - most for n, most in zip(wanted, bounds.most, strict=True)))
            wanted = [n + over for n in wanted]
        return bounds.within(wanted)

    return mix, 1 if any(bounds.least) else max(1, math.ceil(largest - 1e-9))


@dataclass(frozen=True)
class Bounds:
    """How many servers of each class there must and may be."""

    least: Counts
    most: Counts | None = None
    """None: as many as it takes"""

    def within(self, counts: Sequence[int]) -> Counts:
        """Return the nearest counts within the bounds."""
        raised = [max(a, b) for a, b in zip(counts, self.least, strict=True)]
        return tuple(raised if self.most is None else [min(a, b) for a, b in zip(raised, self.most, strict=True)])


def confirmed(trials: Trials, mix: Callable[[int], Counts], start: int) -> Trial:
    """Return the first along the mix that also holds with other random numbers."""
    for _ in range(CONFIRMATIONS):
        best = along(trials, mix, start)
        if trials.confirm(best.servers).meets:
            return trials.of(best.servers)
    raise SlotwiseError(_out_of_reach(trials, best.servers))


def cheaper(
    trials: Trials, best: Trial, limit: CheapestMix, budget: int, bounds: Bounds, patience: int = PATIENCE
) -> tuple[Trial, bool]:
    """Return the cheapest confirmed mix that meets the targets, starting from one that does, and whether no cheaper
    one can have been missed."""
    costs = np.array(trials.question.costs)
    candidates, complete = _below(best, costs, serves(trials.rho, trials.pricings), bounds)
    worth = np.array([pricing.best(limit.prices).limit for pricing in trials.pricings])
    asked = float(limit.prices @ trials.rho)
    if trials.question.firm:
        possible = (candidates @ costs >= limit.cost * (1 - 1e-9)) & (candidates @ worth > asked * (1 - 1e-9))
        candidates = candidates[possible]
    met = [best]
    saving, tried, failed = 0.0, 0, 0
    while True:
        best = met[-1]
        for trial in trials.done.values():
            if not trial.meets:
                candidates = candidates[(candidates > np.array(trial.servers)).any(axis=1)]
        cost = candidates @ costs
        left = cost < best.cost * (1 - 1e-9)
        if tried == budget or failed == patience or not left.any():
            if trials.confirm(best.servers).meets:
                return trials.of(best.servers), complete and not left.any()
            met.pop()  # the first was confirmed before
            failed = 0
            continue
        bold = left & (cost <= best.cost - saving)
        among = np.flatnonzero(bold if bold.any() else left)
        counts = tuple(int(n) for n in candidates[among[np.argmax(candidates[among] @ worth)]])
        trial = trials.of(counts)
        simulated = trial.replications > 0  # what theory rules out costs nothing
        tried += simulated
        if trial.meets:
            saving, failed = 2 * (best.cost - trial.cost), 0
            met.append(trial)
        else:
            saving, failed = 0.0, failed + simulated


def _below(
    best: Trial, costs: NDArray[np.float64], serving: NDArray[np.bool_], bounds: Bounds
) -> tuple[NDArray[np.int64], bool]:
    """Return every cheaper mix and True, or, if these are too many, the mixes near the best one and False. Classes that
    can hold no arriving type have no more servers than they must."""
    least = np.array(bounds.least)
    most = np.maximum(least, np.where(serving, np.floor(best.cost / costs), 0).astype(np.int64))
    if bounds.most is not None:
        most = np.minimum(most, np.array(bounds.most))
    low, high = least, most
    complete = True
    reach = int(most.max())
    while math.prod((high - low + 1).tolist()) > MOST_CANDIDATES:
        complete = False
        reach //= 2
        low = np.maximum(least, np.array(best.servers) - reach)
        high = np.minimum(most, np.array(best.servers) + reach)
    axes = [np.arange(a, b + 1) for a, b in zip(low, high, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(costs))
    return grid, complete
