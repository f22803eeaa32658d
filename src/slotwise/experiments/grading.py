"""From points to verdicts: the few comparisons that the claims of section 7 are made of.

Every comparison has one threshold, stated here, so that it can fail. Ratios of mean queues are averaged
geometrically over the settings. "Clearly" means that the 95 % interval of the difference, paired by replication
(all policies meet the same jobs), lies on one side of 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from slotwise.display.numbers import brief
from slotwise.display.palette import style_of
from slotwise.experiments.points import Point, Points
from slotwise.report.claims import Standing
from slotwise.simulation.judge.statistics import paired_difference

HOLDS, IN_PART, FAILS = Standing.HOLDS, Standing.IN_PART, Standing.FAILS
Line = Sequence[Point]

MUCH = 2.0  # much better: the other's queue is this many times as long, on average
ALIKE = 1.5  # about as good: within this factor, on average
ROBUST = 2.0  # robust to the arrival law: within this factor in every setting
NOTABLE = 1.1  # falls behind: the ratio to the other's queue ends above this
TREND = 0.5  # rank correlation (Kendall) from which something rises or falls with x


@dataclass(frozen=True)
class Grade:
    """A verdict with what was measured and, where it is not `holds`, why."""

    verdict: Standing
    evidence: str
    because: str = ""


def short(policy: str) -> str:
    """A policy's name without remarks."""
    return style_of(policy).label.partition(" (")[0]


def clearly_below(one: Point, other: Point) -> bool:
    """Whether one mean queue is below the other beyond chance."""
    if len(one.runs) > 1 and len(one.runs) == len(other.runs):
        high = paired_difference(one.runs, other.runs).high
        return high is not None and high < 0
    if one.high is not None and other.low is not None:
        return one.high < other.low
    return one.mean < other.mean


def rank_trend(values: Sequence[float]) -> float:
    """Kendall's tau with the order of the values: 1 where each is above all before it, -1 where below."""
    pairs = [np.sign(b - a) for a, b in itertools.combinations(values, 2)]
    return float(np.mean(pairs)) if pairs else 0.0


def ratios(one: Line, other: Line) -> list[float]:
    """Mean queues of one over the other, setting by setting."""
    pairs = _pairs(one, other)
    tiny = 1e-9
    return [max(a.mean, tiny) / max(b.mean, tiny) for a, b in pairs]


def _pairs(one: Line, other: Line) -> list[tuple[Point, Point]]:
    at = {point.x: point for point in other}
    pairs = [(point, at[point.x]) for point in one if point.x in at]
    if not pairs:
        raise ValueError("the two lines have no setting in common")
    return pairs


def typical(values: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(math.log(value) for value in values) / len(values))


def over_laws(points: Points, test: Callable[[str], Grade]) -> Grade:
    """The test under every arrival law: it holds where it holds under all, in part where under some."""
    grades = [(law, test(law)) for law in points.laws]
    verdicts = {grade.verdict for _, grade in grades}
    verdict = verdicts.pop() if len(verdicts) == 1 else IN_PART
    named = len(grades) > 1
    evidence = "; ".join(f"{law}: {grade.evidence}" if named else grade.evidence for law, grade in grades)
    reasons = {grade.because: law for law, grade in reversed(grades) if grade.because}
    alike = len(reasons) == 1 and all(grade.because for _, grade in grades)
    because = "; ".join(
        why if alike or not named else f"under {law} arrivals {why}" for why, law in reversed(reasons.items())
    )
    return Grade(verdict, evidence, because)


def falls(line: Line, *, needs: float = TREND) -> Grade:
    """The queue falls with x: the last clearly below the first, and a falling rank trend."""
    first, last = line[0], line[-1]
    trend = rank_trend([point.mean for point in line])
    name = short(first.policy)
    evidence = f"{name} {brief(first.mean)} at {first.x:g}, {brief(last.mean)} at {last.x:g}"
    if clearly_below(last, first) and trend <= -needs:
        return Grade(HOLDS, evidence)
    if last.mean < first.mean:
        what = "the fall is within chance" if trend <= -needs else "the fall is not steady"
        return Grade(IN_PART, evidence, f"{what} (rank trend {trend:+.2f})")
    return Grade(FAILS, evidence, f"{name}'s queue does not fall (rank trend {trend:+.2f})")


def does_not_fall(line: Line) -> Grade:
    """The queue does not fall with x; in part where it falls by less than half."""
    first, last = line[0], line[-1]
    name = short(first.policy)
    evidence = f"{name} {brief(first.mean)} at {first.x:g}, {brief(last.mean)} at {last.x:g}"
    if not clearly_below(last, first):
        return Grade(HOLDS, evidence)
    if last.mean > first.mean / MUCH:
        return Grade(IN_PART, evidence, f"{name}'s queue falls a little, to {last.mean / first.mean:.0%}")
    return Grade(FAILS, evidence, f"{name}'s queue falls, too, to {last.mean / first.mean:.0%}")


def much_better(one: Line, other: Line) -> Grade:
    """The other's queue is `MUCH` times as long on average, and clearly longer in every setting."""
    found = ratios(other, one)
    whole = typical(found)
    a, b = short(one[0].policy), short(other[0].policy)
    evidence = f"{b}'s queue is {brief(whole)} times {a}'s on average ({brief(min(found))} to {brief(max(found))})"
    if len(found) == 1:
        evidence = f"{b} {brief(other[0].mean)}, {a} {brief(one[0].mean)}: {brief(whole)} times"
    clear = all(clearly_below(x, y) for x, y in _pairs(one, other))
    if whole >= MUCH and clear:
        return Grade(HOLDS, evidence)
    if whole > 1:
        why = "the lead is not clear in every setting" if whole >= MUCH else f"the lead is less than {MUCH:g} times"
        return Grade(IN_PART, evidence, why)
    return Grade(FAILS, evidence, f"{b}'s queue is the shorter one")


def about_as_good(one: Line, other: Line, why: str = "") -> Grade:
    """Within a factor `ALIKE` on average, either way; in part within its square."""
    whole = typical(ratios(one, other))
    a, b = short(one[0].policy), short(other[0].policy)
    evidence = f"{a}'s queue is {brief(whole)} times {b}'s on average"
    apart = max(whole, 1 / whole)
    if apart <= ALIKE:
        return Grade(HOLDS, evidence)
    longer, shorter = (a, b) if whole > 1 else (b, a)
    reason = f"{longer}'s queue is {brief(apart)} times {shorter}'s" + (f": {why}" if why and whole > 1 else "")
    return Grade(IN_PART if apart <= ALIKE**2 else FAILS, evidence, reason)


def bounded(line: Line) -> Grade:
    """Stable in every setting; in part where some runs were too short to tell."""
    name = short(line[0].policy)
    growing, unsure = [point for point in line if point.grows], [point for point in line if point.open]
    top = max(line, key=lambda point: point.mean)
    evidence = f"{name} is stable in {sum(point.stable for point in line)} of {len(line)} settings"
    evidence += f", at most {brief(top.mean)} at {top.x:g}" if len(line) > 1 else f", mean {brief(top.mean)}"
    if growing:
        return Grade(
            IN_PART if len(growing) < len(line) else FAILS, evidence, f"{name}'s queue grows at {places(growing)}"
        )
    if unsure:
        return Grade(IN_PART, evidence, f"the runs are too short to tell at {places(unsure)}")
    return Grade(HOLDS, evidence)


def places(line: Line) -> str:
    """Where the points are."""
    return ", ".join(f"{point.x:g}" for point in line)


def robust(points: Points, policies: Sequence[str]) -> Grade:
    """Both laws: no clear difference of Algorithm 1's queue above `ROBUST` times and one job, no order of two policies reversed."""
    one, two = points.laws[:2]
    pairs = _pairs(points.line(policies[0], two), points.line(policies[0], one))
    apart = [max(a.mean, b.mean) / max(min(a.mean, b.mean), 1e-9) for a, b in pairs if _differ(a, b)]
    widest = max(apart, default=1.0)
    reversed_ = [
        f"{short(a)} and {short(b)} at {x:g}"
        for x in [p.x for p in points.line(policies[0], one)]
        for a, b in itertools.combinations(policies, 2)
        if _order(points, a, b, one, x) * _order(points, a, b, two, x) < 0
    ]
    evidence = f"{short(policies[0])}'s queue differs clearly in {len(apart)} of {len(pairs)} settings"
    evidence += f", by a factor of at most {brief(widest)}" if apart else ""
    evidence += f"; {len(reversed_) or 'no'} reversals of a clear order of two algorithms"
    if widest <= ROBUST and not reversed_:
        return Grade(HOLDS, evidence)
    reasons = [f"the law changes {short(policies[0])}'s queue {brief(widest)} times"] if widest > ROBUST else []
    reasons += [f"the order of {', '.join(reversed_)} is reversed"] if reversed_ else []
    return Grade(FAILS if len(reasons) == 2 else IN_PART, evidence, " and ".join(reasons))


def _differ(a: Point, b: Point) -> bool:
    """Whether two queues differ by more than a job, and by more than their intervals."""
    below, above = sorted((a, b), key=lambda point: point.mean)
    apart = below.high is None or above.low is None or below.high < above.low
    return apart and above.mean - below.mean > 1


def _order(points: Points, a: str, b: str, law: str, x: float) -> int:
    """-1 where a is clearly below b, 1 where it is clearly above, 0 where neither."""
    one = next(p for p in points.line(a, law) if p.x == x)
    other = next(p for p in points.line(b, law) if p.x == x)
    return int(clearly_below(other, one)) - int(clearly_below(one, other))


def regret(points: Points, policies: Sequence[str], law: str) -> dict[str, list[float]]:
    """How many times the best of the policies' queue each has, setting by setting."""
    lines = {policy: points.line(policy, law) for policy in policies}
    best = [min(point.mean for point in column) for column in zip(*lines.values(), strict=True)]
    return {
        policy: [max(p.mean, 1e-9) / max(b, 1e-9) for p, b in zip(line, best, strict=True)]
        for policy, line in lines.items()
    }
