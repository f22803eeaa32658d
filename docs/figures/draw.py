"""Draws the pictures of the documentation: `python docs/figures/draw.py` (a few minutes); they are committed beside it.

With names, only those: `python docs/figures/draw.py plan.svg tradeoff.svg`.
"""

from __future__ import annotations

import io
import math
import re
import sys
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import slotwise
from slotwise.display.palette import INK, RULE, SOFT, style_of
from slotwise.planning.figure import draw as draw_tradeoff
from slotwise.scheduling import Reason

HERE = Path(__file__).parent
STYLE = {"font.family": "sans-serif", "font.size": 10, "svg.fonttype": "none", "svg.hashsalt": "slotwise"}
POLICIES = ["guarded", "algorithm1", "best-fit", "m14"]
SCENARIOS = ["table1", "best-fit-trap", "example1"]
LEAST, MOST = 0.5, 100_000  # mean queues on the axis of `policies`


def tidy(axes: Axes) -> None:
    """Little ink."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(SOFT)
    axes.tick_params(colors=INK, length=3)
    axes.grid(color=RULE, linewidth=0.7)
    axes.set_axisbelow(True)


def shrunk(svg: str) -> str:
    """Paths with coordinates to a tenth of a point, on one line each."""

    def path(data: re.Match[str]) -> str:
        text = re.sub(r"-?\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}", data[0])
        return " ".join(text.split())

    return re.sub(r' d="[^"]*"', lambda data: " " + path(data), svg)


def save(figure: Figure, name: str) -> None:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    (HERE / name).write_text(shrunk(text.getvalue()))
    print(HERE / name)


def policies() -> None:
    """Mean queues of four policies on three scenarios: what a table of `slotwise compare` says, at a glance."""
    figure = Figure(figsize=(9, 2.5), layout="constrained", facecolor="white")
    panels = figure.subplots(1, len(SCENARIOS), sharey=True)
    for axes, name in zip(panels, SCENARIOS, strict=True):
        tidy(axes)
        results = slotwise.compare(name, POLICIES).results
        for at, result in enumerate(results):
            style, queue = style_of(result.policy), result.mean_queue.mean
            face = "white" if result.grows else style.colour
            axes.plot([queue], [at], marker="o", markersize=9, color=style.colour, markerfacecolor=face, mew=2)
            text = f"{queue:,.3g}" if queue < 1000 else f"{queue:,.0f}"
            words = text if result.stable else f"{text}, grows" if result.grows else f"{text}, not settled"
            # words stand on the side with more room, within their own panel
            offset, side = (-9, "right") if queue > math.sqrt(LEAST * MOST) else (9, "left")
            axes.annotate(
                words, (queue, at), (offset, 0), textcoords="offset points", ha=side, va="center", fontsize=9
            )
        axes.set_xscale("log")
        axes.set_xlim(LEAST, MOST)
        axes.set_ylim(len(POLICIES) - 0.5, -0.5)
        axes.set_yticks(range(len(POLICIES)), [style_of(policy).label for policy in POLICIES])
        axes.set_title(name, fontsize=10, color=INK)
        axes.set_xlabel("mean number of waiting jobs")
    save(figure, "policies.svg")


def sawtooth() -> None:
    """Example 1: the queue over time."""
    figure = Figure(figsize=(7, 2.6), layout="constrained", facecolor="white")
    axes = figure.subplots()
    tidy(axes)
    for policy in ("m14", "algorithm1"):
        overrides = ["run.events=20000", "run.replications=1"]
        frame = slotwise.simulate("example1", policy, overrides=overrides).series()
        style = style_of(policy)
        time, queue = frame["time"].to_numpy()[::2], frame["queue"].to_numpy()[::2]
        axes.plot(time, queue, color=style.colour, linewidth=1.1, label=style.label)
    axes.set_xlim(left=0)
    axes.set_ylim(0, 400)
    axes.set_xlabel("time (mean service times)")
    axes.set_ylabel("waiting jobs")
    axes.legend(frameon=False)
    save(figure, "sawtooth.svg")


def one_server() -> None:
    """Example 1 on the scheduler itself: what the one server holds, and when it is stalled."""
    scenario = slotwise.load_scenario("example1")
    scheduler = slotwise.Scheduler.from_scenario(scenario)
    chance = np.random.default_rng(4)
    rates = {one.name: float(one.rate or 0) for one in scenario.types}
    type_of: dict[int, str] = {}
    running: set[int] = set()
    now, rows = 0.0, []
    for number in range(4_000):
        total = sum(rates.values()) + len(running)
        now += chance.exponential(1 / total)
        if chance.random() * total < len(running):
            job = sorted(running)[chance.integers(len(running))]
            running.discard(job)
            placed = scheduler.complete(job)
            del type_of[job]
        else:
            kind = "large" if chance.random() < rates["large"] / sum(rates.values()) else "small"
            type_of[number] = kind
            placed = scheduler.submit(number, kind)
        running |= {placement.job for placement in placed}  # type: ignore[misc]
        held = [type_of[job] for job in running]
        stalled = Reason.STALLED in scheduler.explain_server("server-0").reasons
        rows.append((now, held.count("large"), held.count("small"), *scheduler.waiting.values(), stalled))
    table = np.array(rows, dtype=float)
    begins = np.flatnonzero(np.diff(table[:, 5]) > 0)
    middle = table[begins[len(begins) // 2], 0]
    kept = table[(table[:, 0] > middle - 14) & (table[:, 0] < middle + 30)]
    draw_server(kept)


def draw_server(kept: np.ndarray) -> None:
    figure = Figure(figsize=(7, 4), layout="constrained", facecolor="white")
    top, bottom = figure.subplots(2, 1, sharex=True)
    time = kept[:, 0] - kept[0, 0]
    for axes in (top, bottom):
        tidy(axes)
        axes.fill_between(time, 0, 1, where=kept[:, 5] > 0, step="post", transform=axes.get_xaxis_transform(),
                          color=SOFT, alpha=0.25, linewidth=0, label="stalled")  # fmt: skip
    large, small = style_of("algorithm1").colour, style_of("m14").colour
    top.fill_between(time, 0, 4 * kept[:, 1], step="post", color=large, linewidth=0, label="large (4 units)")
    top.fill_between(time, 4 * kept[:, 1], 4 * kept[:, 1] + kept[:, 2], step="post", color=small, linewidth=0,
                     label="small (1 unit)")  # fmt: skip
    top.set_ylim(0, 6)
    top.set_ylabel("held, of 6 units")
    bottom.step(time, kept[:, 3], where="post", color=large)
    bottom.step(time, kept[:, 4], where="post", color=small)
    bottom.set_ylim(bottom=0)
    bottom.set_ylabel("waiting jobs")
    bottom.set_xlim(0, time[-1])
    bottom.set_xlabel("time (mean service times)")
    figure.legend(*top.get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    save(figure, "server.svg")


def comparison() -> None:
    """What `compare(...).plot()` shows in a notebook, and the page of `slotwise compare --out` larger."""
    save(slotwise.compare("table1", POLICIES).plot(), "comparison.svg")


def growing() -> None:
    """A queue that grows without bound, beside the waits of its jobs."""
    save(slotwise.simulate("example1", "m14").plot(), "growing.svg")


def plan() -> None:
    """The numbers of servers that were tried for a target."""
    found = slotwise.plan("table1", {"p95_wait": 0.5}, "best-fit", overrides={"run.events": 20_000})
    save(found.plot(), "plan.svg")


def tradeoff() -> None:
    """Proven throughput against the measured queue."""
    draw_tradeoff(slotwise.tradeoff("table1"), HERE / "tradeoff.svg")
    print(HERE / "tradeoff.svg")


DRAWN = {
    "policies.svg": policies,
    "sawtooth.svg": sawtooth,
    "server.svg": one_server,
    "comparison.svg": comparison,
    "growing.svg": growing,
    "plan.svg": plan,
    "tradeoff.svg": tradeoff,
}

if __name__ == "__main__":
    with matplotlib.rc_context(STYLE):
        for name in sys.argv[1:] or DRAWN:
            DRAWN[name]()
