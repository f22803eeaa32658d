"""What the paper does not show: how much Algorithm 1's parameters matter, other laws, empty servers, and where best-fit fails."""

from __future__ import annotations

from typing import Any

from slotwise.display.drawing import curves, dots
from slotwise.display.numbers import brief
from slotwise.display.palette import label_of
from slotwise.experiments.examples import series_frame
from slotwise.experiments.experiment import Experiment, Order
from slotwise.experiments.points import Points
from slotwise.experiments.settings import SHOWN, changed, table1
from slotwise.experiments.showing import points_table
from slotwise.experiments.sweep import SweepCell, sweep
from slotwise.model import Scenario, load_scenario
from slotwise.model.laws import BatchArrivals, BatchKind, Hyperexponential
from slotwise.policies import make_policy
from slotwise.report.blocks import Block, Figure, Panel, Prose, Section
from slotwise.simulation.judge.drift import Stability
from slotwise.theory.load import region_of

ZETA = 0.89  # intensity: just below the 0.9 up to which Algorithm 1 is proven
# option of Algorithm 1: (what it is, values tried, among them the default)
KNOBS: dict[str, tuple[str, list[Any]]] = {
    "b": ("b, the limit of beta", [0.7, 0.8, 0.9, 0.95, 0.98]),
    "p": ("p, where beta starts", [-0.5, -0.05, 0.0, 0.5, 0.9]),
    "z": ("z, how fast beta grows with the queue", [0.0005, 0.002, 0.005, 0.02, 0.1]),
    "solver": ("the solver", ["auto", "enumerate", "approximate", "greedy", "greedy-fill"]),
}
# what one request brings under batch arrivals: the mix of Table 1
MIX = {"standard": 2, "high-memory": 11, "high-cpu": 2}
LAWS: dict[str, dict[str, Any]] = {
    "exponential service": {},
    "hyper-exponential service, squared variation 4": {"service": Hyperexponential(law="hyperexponential", scv=4)},
    "hyper-exponential service, squared variation 16": {
        "service": Hyperexponential(law="hyperexponential", scv=16)
    },
    "batches of 15 jobs": {
        "arrivals": BatchArrivals(law="batch", rate=1.0, batches=(BatchKind(probability=1.0, jobs=MIX),))
    },
}
SAID = {
    Stability.STABLE: "is stable",
    Stability.GROWS: "grows",
    Stability.TOO_SHORT: "ran too short to tell",
    Stability.NEVER_STARTS: "never starts some jobs",
}
TRAP = "best-fit-trap"
TRAP_EVENTS = 5  # times the usual number of events: the growth is slow against the cluster's size


def _beyond(order: Order) -> Section:
    blocks: list[Block] = []
    parts = (_knobs, _laws, _empty, _trap)
    for n, part in enumerate(parts):
        blocks += part(order, n / len(parts), (n + 1) / len(parts))
    return Section("beyond", "Beyond the paper", blocks)


def _knobs(order: Order, start: float, end: float) -> list[Block]:
    base = table1(20, ZETA)
    run = changed(base, run=order.scale.run("algorithm1"))
    usual = make_policy("algorithm1").options
    cells = [
        SweepCell(
            run,
            "algorithm1",
            {knob: value},
            knob,
            float(n),
            f"{value}{' (default)' if value == getattr(usual, knob) else ''}",
        )
        for knob, (_, values) in KNOBS.items()
        for n, value in enumerate(values)
    ]
    points = Points.of(cells, sweep(cells, order.share("beyond", start, end), order.workers))
    panels = []
    for knob, (words, _) in KNOBS.items():
        rows = [(p.label, p.policy, p.mean, p.low, p.high) for p in points.where(law=knob).all]
        told = ", ".join(f"{label}: {brief(mean)}" for label, _, mean, _, _ in rows)
        panels.append(Panel(words, dots(rows, f"knob-{knob}"), f"Mean queue by {words}: {told}."))
    spread = [p.mean for p in points.all]
    return [
        Prose(
            "How sensitive is Algorithm 1? Table 1 on 20 servers at 0.89, Poisson arrivals, one parameter changed at a time."
            f" The mean queue lies between {brief(min(spread))} and {brief(max(spread))}."
        ),
        Figure(
            "sensitivity",
            "Algorithm 1: one parameter at a time",
            "Dots are means over the runs, bars 95 % intervals. The guarantee covers this load only where b is above 0.89.",
            panels,
            points.frame(),
            ["algorithm1"],
        ),
    ]


def _with_laws(laws: dict[str, Any]) -> Scenario:
    """Table 1 on 20 servers under other laws; batches bring their own rates."""
    base = table1(20, ZETA)
    workload = base.workload.model_copy(update=laws)
    types = base.types
    if "arrivals" in laws:
        types = tuple(job_type.model_copy(update={"rate": None}) for job_type in types)
    return changed(base, workload=workload, types=types)


def _laws(order: Order, start: float, end: float) -> list[Block]:
    cells = []
    for n, (words, laws) in enumerate(LAWS.items()):
        base = _with_laws(laws)
        cells += [
            SweepCell(
                changed(base, run=order.scale.run(policy)),
                policy,
                {},
                words,
                float(n),
                f"{words}: {label_of(policy)}",
            )
            for policy in SHOWN
        ]
    points = Points.of(cells, sweep(cells, order.share("beyond", start, end), order.workers))
    panels = []
    for n, words in enumerate(points.laws):
        part = points.where(law=words)
        rows = [(label_of(p.policy), p.policy, p.mean, p.low, p.high) for p in part.all]
        if part.has_bound:
            rows.append((label_of("lower-bound"), "lower-bound", part.all[0].bound, None, None))
        told = ", ".join(f"{label} {brief(mean)}" for label, _, mean, _, _ in rows)
        panels.append(Panel(words, dots(rows, f"law-{n}"), f"Mean queue with {words}: {told}."))
    return [
        Prose(
            "The theory also covers service times that are mixtures of exponentials and requests that bring several jobs at"
            " once (section 5). The load stays at 0.89; only the laws change."
        ),
        Figure(
            "laws",
            "Other service and arrival laws: mean queue size",
            "Table 1 on 20 servers. Bars are 95 % intervals; scales are logarithmic where the means are far apart.",
            panels,
            points.frame(),
            points.legend(),
        ),
        points_table("laws-results", "Other laws: queue and waits", points),
    ]


def _empty(order: Order, start: float, end: float) -> list[Block]:
    settings: list[tuple[str, Scenario]] = [
        ("Example 1", load_scenario("example1")),
        ("Example 2", load_scenario("example2")),
        ("Table 1, 20 servers, 0.89", table1(20, ZETA)),
        ("Table 1, 20 servers, 0.5", table1(20, 0.5)),
    ]
    cells = [
        SweepCell(
            changed(base, run=order.scale.run("algorithm1")),
            "algorithm1",
            {"faithful": faithful},
            words,
            float(faithful),
            f"{words}: {'the paper’s words' if faithful else 'as here'}",
        )
        for words, base in settings
        for faithful in (False, True)
    ]
    points = Points.of(cells, sweep(cells, order.share("beyond", start, end), order.workers))
    growing = [point.label for point in points.all if point.grows]
    seen = f" Found to grow: {'; '.join(growing)}." if growing else " No queue was found to grow in either form."
    return [
        Prose(
            "Here an empty server holds no slots: it takes the best ones for the present queues when it can next start a job."
            " In the paper's words a configuration changes at resets only, so that an active server that is empty may keep"
            " slots for jobs that do not come." + seen
        ),
        points_table("empty-servers", "Algorithm 1: empty servers as here, and in the paper's words", points),
    ]


def _trap(order: Order, start: float, end: float) -> list[Block]:
    base = load_scenario(TRAP)
    options = {"algorithm1": base.policy.options}
    cells = [
        SweepCell(
            changed(base, run=order.scale.run(policy, events=TRAP_EVENTS * order.scale.events, replications=3)),
            policy,
            options.get(policy, {}),
            x=float(n),
        )
        for n, policy in enumerate(SHOWN)
    ]
    results = sweep(cells, order.share("beyond", start, end), order.workers)
    points = Points.of(cells, results)
    by_name = dict(zip(SHOWN, results, strict=True))
    parts = [(name, r.runs[0].series[:, 0], r.runs[0].series[:, 1]) for name, r in by_name.items()]
    fit = by_name["best-fit"].runs[0].series
    verdicts = ", ".join(f"{label_of(p.policy)} {SAID[p.verdict]}" for p in points.all)
    return [
        Prose(
            "Best-fit has by far the shortest queues on the inputs above. It has no guarantee, though. Take servers of"
            " capacity 10 and jobs of 5 and of 2 units: two fives fill a server, so do five twos, and every mix wastes room."
            f" At {region_of(base).intensity:.2f} of what can be carried: {verdicts}."
        ),
        Figure(
            "trap-series",
            "Where best-fit diverges and Algorithm 1 does not",
            "20 servers, the first of the runs.",
            [
                Panel(
                    "waiting jobs over time",
                    curves(parts, "trap", x="time"),
                    f"Waiting jobs over time; best-fit ends with {fit[-1, 1]:,.0f}.",
                )
            ],
            series_frame(by_name),
            list(by_name),
        ),
        points_table("trap-results", "The same in figures", points),
    ]


BEYOND = Experiment("beyond", "Beyond the paper", _beyond)
