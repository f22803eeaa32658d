"""The claims of section 7 of the paper, each a statement that is tested on results and can fail."""

from __future__ import annotations

from slotwise.display.numbers import brief
from slotwise.experiments.grading import (
    FAILS,
    HOLDS,
    IN_PART,
    MUCH,
    NOTABLE,
    TREND,
    Grade,
    Line,
    about_as_good,
    bounded,
    clearly_below,
    does_not_fall,
    falls,
    much_better,
    over_laws,
    rank_trend,
    ratios,
    regret,
    robust,
    short,
    typical,
)
from slotwise.experiments.points import Points
from slotwise.experiments.settings import PAPER
from slotwise.report.claims import Claim

A1, M14, G16 = PAPER
LEAST_SWINGS = 5  # swings of a queue that count as a sawtooth


def _claim(name: str, statement: str, grade: Grade) -> Claim:
    return Claim(name, statement, grade.verdict, grade.evidence, grade.because)


def example1(points: Points) -> list[Claim]:
    """One server, two types."""
    ours, theirs = points.line(A1)[0], points.line(M14)[0]
    final = theirs.more["final_queue"]
    evidence = f"M14 ends with {brief(final)} waiting jobs, Algorithm 1's mean is {brief(ours.mean)}"
    if theirs.grows and final > 10 * ours.mean:
        grows = Grade(HOLDS, evidence)
    elif theirs.mean > MUCH * ours.mean:
        grows = Grade(IN_PART, evidence, "M14's queue is long, but no growth without bound was found")
    else:
        grows = Grade(FAILS, evidence, "M14's queue stays bounded")
    swings, resets = ours.more["swings"], ours.more["resets"]
    evidence = f"{brief(resets)} resets and {brief(swings)} rises and falls seen per run"
    if swings >= LEAST_SWINGS and resets >= swings:
        saw = Grade(HOLDS, evidence)
    elif swings >= 1:
        saw = Grade(IN_PART, evidence, "there are few swings, or fewer resets than swings")
    else:
        saw = Grade(FAILS, evidence, "the queue does not swing")
    return [
        _claim("example1-m14", "Example 1: the queues under M14 go to infinity.", grows),
        _claim("example1-stable", "Example 1: Algorithm 1 keeps the queues stable.", bounded([ours])),
        _claim("example1-sawtooth", "Example 1: its queue is a sawtooth that shows the resets.", saw),
    ]


def example2(points: Points) -> list[Claim]:
    """Four unlike servers, four types."""
    grade = much_better(points.line(A1), points.line(G16))
    return [
        _claim("example2-g16", "Example 2: G16 has very large queues, Algorithm 1 performs much better.", grade)
    ]


def _why_longer(points: Points, law: str) -> str:
    stalled = max(point.more.get("stalled_fraction", 0.0) for point in points.line(A1, law))
    return (
        f"it has up to {stalled:.1%} of the servers stalled; a likely reason, not tested here, is that every maximal"
        " configuration of Table 1 holds five jobs, so that a reset can gain little"
    )


def servers(points: Points) -> list[Claim]:
    """Table 1 with more and more servers."""

    def alike(law: str) -> Grade:
        return about_as_good(points.line(A1, law), points.line(M14, law), _why_longer(points, law))

    return [
        _claim(
            "servers-algorithm1",
            "Algorithm 1 performs better as the number of servers increases.",
            over_laws(points, lambda law: falls(points.line(A1, law))),
        ),
        _claim(
            "servers-m14",
            "M14 performs better as the number of servers increases.",
            over_laws(points, lambda law: falls(points.line(M14, law))),
        ),
        _claim(
            "servers-g16",
            "G16 does not perform better as the number of servers increases.",
            over_laws(points, lambda law: does_not_fall(points.line(G16, law))),
        ),
        _claim("servers-as-m14", "Scaling servers, Algorithm 1 is about as good as M14.", over_laws(points, alike)),
        _claim(
            "servers-beats-g16",
            "Scaling servers, Algorithm 1 is much better than G16.",
            over_laws(points, lambda law: much_better(points.line(A1, law), points.line(G16, law))),
        ),
        _claim(
            "servers-robust",
            "The results are robust to the arrival process (Poisson or log-normal).",
            robust(points, PAPER),
        ),
    ]


def intensity(points: Points) -> list[Claim]:
    """Table 1 with more and more load."""
    return [
        _claim(
            "intensity-bounded",
            "Algorithm 1 performs well in the whole range of workloads: its queue stays bounded throughout.",
            over_laws(points, lambda law: bounded(points.line(A1, law))),
        ),
        _claim(
            "intensity-m14",
            "M14 seems to become unstable at high traffic.",
            over_laws(points, lambda law: _m14_unstable(points, law)),
        ),
        _claim(
            "intensity-stable",
            "G16 and Algorithm 1 are still stable at the highest load.",
            over_laws(points, lambda law: _both(points, law)),
        ),
        _claim(
            "intensity-g16",
            "G16 deteriorates at lower traffic.",
            over_laws(points, lambda law: _g16_low(points, law)),
        ),
        _claim(
            "intensity-consistent",
            "Algorithm 1 has the most consistent performance of the three.",
            over_laws(points, lambda law: consistent(points, law)),
        ),
        _claim(
            "intensity-robust",
            "The performance is robust to the arrival process (Poisson or log-normal).",
            robust(points, PAPER),
        ),
    ]


def _m14_unstable(points: Points, law: str) -> Grade:
    """Return whether M14's queue grows at the highest load."""
    ours, theirs = points.line(A1, law), points.line(M14, law)
    growing = [point for point in theirs if point.grows]
    top, own = theirs[-1], ours[-1]
    evidence = f"M14 {brief(top.mean)} and Algorithm 1 {brief(own.mean)} at {top.x:g}"
    if growing and growing[-1] is top:
        return Grade(HOLDS, evidence + f", M14 found to grow from {growing[0].x:g} on")
    share = ratios(theirs, ours)
    if share[-1] > 1 and rank_trend(share) >= TREND:
        return Grade(IN_PART, evidence, "M14 loses its lead as the load grows, but no growth was found")
    return Grade(FAILS, evidence, f"M14's queue stays bounded in runs of this length, at {brief(top.mean)}")


def _g16_low(points: Points, law: str) -> Grade:
    """Return whether G16 loses ground at low load."""
    lines = {policy: points.line(policy, law) for policy in PAPER}
    worst = max(PAPER, key=lambda policy: lines[policy][0].mean)
    share = ratios(lines[G16], lines[A1])
    evidence = f"at {lines[G16][0].x:g} G16 has {brief(lines[G16][0].mean)}, Algorithm 1 "
    evidence += f"{brief(lines[A1][0].mean)}, M14 {brief(lines[M14][0].mean)}; G16 over Algorithm 1 is "
    evidence += f"{brief(share[0])} there and {brief(share[-1])} at {lines[G16][-1].x:g}"
    if worst == G16 and share[0] > share[-1]:
        return Grade(HOLDS, evidence)
    if worst == G16 or share[0] > share[-1]:
        why = "it is not the worst at low load" if worst != G16 else "its lag is no larger at low load than at high"
        return Grade(IN_PART, evidence, why)
    return Grade(FAILS, evidence, "G16 does not lose ground at low load")


def _both(points: Points, law: str) -> Grade:
    ends = [points.line(A1, law)[-1], points.line(G16, law)[-1]]
    evidence = ", ".join(f"{short(p.policy)} {brief(p.mean)} ({p.verdict})" for p in ends)
    growing = [short(point.policy) for point in ends if point.grows]
    unsure = [short(point.policy) for point in ends if point.open]
    if growing:
        return Grade(IN_PART if len(growing) == 1 else FAILS, evidence, f"{' and '.join(growing)} grows")
    if unsure:
        return Grade(IN_PART, evidence, f"the runs are too short to tell for {' and '.join(unsure)}")
    return Grade(HOLDS, evidence)


def consistent(points: Points, law: str) -> Grade:
    """Algorithm 1's worst ratio to the best of the three is the least; in part where only its typical ratio is."""
    found = regret(points, PAPER, law)
    worst = {policy: max(values) for policy, values in found.items()}
    usual = {policy: typical(values) for policy, values in found.items()}
    evidence = "at worst " + ", ".join(f"{short(p)} {brief(worst[p])}" for p in PAPER) + " times the best"
    if min(worst, key=lambda p: worst[p]) == A1:
        return Grade(HOLDS, evidence)
    leader = min(worst, key=lambda p: worst[p])
    verdict = (
        IN_PART if min(usual, key=lambda p: usual[p]) == A1 or worst[A1] < sorted(worst.values())[-1] else FAILS
    )
    return Grade(verdict, evidence, f"{short(leader)} is never more than {brief(worst[leader])} times the best")


def arrivals(dispersion: float | None, correlation: float | None) -> list[Claim]:
    """The rate of the trace, from counts over 20 minutes: Var / mean, and the correlation of neighbours."""
    evidence = f"variance over mean of the counts is {brief(dispersion)} (Poisson: 1)"
    evidence += f", correlation of neighbouring windows {brief(correlation)}"
    bursty = dispersion is not None and dispersion > 3
    tied = correlation is not None and correlation > 0.1
    if bursty and tied:
        grade = Grade(HOLDS, evidence)
    elif bursty or tied:
        grade = Grade(
            IN_PART,
            evidence,
            "the counts vary, but neighbours are not correlated" if bursty else "the counts hardly vary",
        )
    else:
        grade = Grade(FAILS, evidence, "the counts are those of a Poisson process")
    statement = "The arrivals of the trace are variable and correlated, and do not really follow Poisson."
    return [_claim("arrivals-bursty", statement, grade)]


def google(points: Points) -> list[Claim]:
    """The trace, with more and more servers."""
    lines = {policy: points.where(policy=policy).all for policy in PAPER}
    found = regret(points, PAPER, points.laws[0])
    usual = {policy: typical(values) for policy, values in found.items()}
    first = sum(value <= 1.0 for value in found[A1])
    evidence = "typical queue over the best of the three: " + ", ".join(
        f"{short(p)} {brief(usual[p])}" for p in PAPER
    )
    evidence += f"; Algorithm 1 is best at {first} of {len(lines[A1])} server counts"
    leader = min(usual, key=lambda policy: usual[policy])
    stalled = max(point.more.get("stalled_fraction", 0.0) for point in lines[A1])
    why = f"{short(leader)} is best overall, where Algorithm 1 has up to {stalled:.1%} of its servers stalled"
    if leader == A1 and first == len(lines[A1]):
        best = Grade(HOLDS, evidence)
    elif leader == A1:
        best = Grade(IN_PART, evidence, "it is not the best at every server count")
    else:
        best = Grade(IN_PART if first else FAILS, evidence, why)
    return [
        _claim("google-best", "Algorithm 1 has the best overall performance in the whole range of servers.", best),
        _claim(
            "google-g16",
            "The performance of G16 deteriorates as the number of servers scales up.",
            _worsens(lines[G16], lines[A1], upwards=True),
        ),
        _claim(
            "google-m14",
            "The performance of M14 deteriorates as the number of servers scales down.",
            _worsens(lines[M14], lines[A1], upwards=False),
        ),
    ]


def _worsens(theirs: Line, ours: Line, *, upwards: bool) -> Grade:
    """The queue grows with x (or against it) by itself and against Algorithm 1's; in part where only one of both."""
    share = ratios(theirs, ours)
    near, far = (theirs[0], theirs[-1]) if upwards else (theirs[-1], theirs[0])
    name = short(near.policy)
    sign = 1 if upwards else -1
    alone = clearly_below(near, far) and sign * rank_trend([point.mean for point in theirs]) >= TREND
    relative = sign * rank_trend(share) >= TREND and (share[-1] if upwards else share[0]) > NOTABLE
    at, end = (share[0], share[-1]) if upwards else (share[-1], share[0])
    evidence = f"{name} {brief(near.mean)} at {near.x:g} servers, {brief(far.mean)} at {far.x:g}"
    evidence += f"; over Algorithm 1's it is {brief(at)} and {brief(end)}"
    if alone and relative:
        return Grade(HOLDS, evidence)
    if relative:
        return Grade(IN_PART, evidence, "its queue does not grow, it only falls behind Algorithm 1's")
    if alone:
        return Grade(IN_PART, evidence, "so does Algorithm 1's queue, by as much or more")
    return Grade(FAILS, evidence, f"neither {name}'s queue nor its ratio to Algorithm 1's grows steadily")
