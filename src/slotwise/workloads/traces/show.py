"""A summary, types and an import's report as people read them in a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slotwise.display.numbers import NONE, number
from slotwise.display.terminal import FOLDED, LEAST, fit, plain
from slotwise.model.rateprofile import PERIODS
from slotwise.workloads.traces.rhythm import MeasuredProfile
from slotwise.workloads.traces.schema import Trace
from slotwise.workloads.traces.summary import Summary
from slotwise.workloads.typemaking import Typing


def duration_text(seconds: float) -> str:
    """Write a duration with 3 figures and a unit that fits: 12.8 s, 27.8 min, 19.5 h, 3.47 d."""
    for size, unit in ((86_400.0 * 2, "d"), (3600.0 * 2, "h"), (60.0 * 2, "min")):
        if seconds >= size:
            return f"{seconds / (size / 2):.3g} {unit}"
    return f"{seconds:.3g} s"


def _facts(summary: Summary) -> Table:
    facts = plain("", "", title=f"{summary.name} ({summary.source})")
    facts.show_header = False
    facts.columns[1].justify, facts.columns[1].no_wrap = "left", False  # notes may be long
    facts.add_row("jobs", f"{summary.jobs:,}")
    facts.add_row("arrivals over", duration_text(summary.span))
    facts.add_row("rate", f"{number(summary.rate * 3600)} an hour")
    facts.add_row(
        "between arrivals", f"{duration_text(summary.interarrival['mean'])}, cv {summary.interarrival['cv']:.3g}"
    )
    facts.add_row("different demands", f"{summary.shapes:,}")
    if summary.batches:
        b = summary.batches
        facts.add_row("batches", f"{b['count']:,.0f}, {number(b['mean'])} jobs each, at most {b['max']:,.0f}")
    if summary.tenants is not None:
        facts.add_row("tenants", f"{summary.tenants:,}")
    if summary.censored is not None:
        facts.add_row("censored", f"{summary.censored:.2%}")
    if summary.servers:
        count = sum(s["count"] for s in summary.servers)
        facts.add_row("servers", f"{count:,} of {len(summary.servers)} makes")
    facts.add_row(
        "begins at", f"{summary.origin:,.6g} ({summary.clock})" if summary.clock else f"{summary.origin:,.6g}"
    )
    for note in summary.notes:
        facts.add_row("note", note)
    return facts


def summary_view(summary: Summary, width: int = 80) -> RenderableType:
    """Return the whole summary."""
    units = [f"\n{summary.units.get(name, '')}" for name in summary.demand]
    spread = plain(
        "", "duration\n", *map("".join, zip(summary.demand, units, strict=True)), title="what jobs ask for"
    )
    for column in spread.columns[1:]:
        column.no_wrap, column.overflow = False, "fold"  # many resources on a narrow terminal
    for level in ("mean", "cv", "min", "p5", "p25", "p50", "p75", "p95", "p99", "max"):
        time = summary.duration[level]
        demands = (number(values[level]) for values in summary.demand.values())
        spread.add_row(level, number(time) if level == "cv" else duration_text(time), *demands)
    load = plain("resource", "offered", "in servers", "mean in\nthe trace", "peak in\nthe trace", title="load")
    for name, value in summary.load.items():
        servers = summary.load_in_servers.get(name)
        seen = (summary.window or {}).get(name, {})
        load.add_row(name, number(value), number(servers), number(seen.get("mean")), number(seen.get("peak")))
    load.columns[0].min_width = LEAST
    told = [Text(line, "dim") for line in fit(load, width, ("offered", "mean in the trace"))]
    if summary.window_words:
        told.append(Text(summary.window_words.replace("this capacity", "one server's capacity")))
    burst = plain("window", "dispersion", title="burstiness (1 is Poisson)")
    for window, value in summary.burstiness["idc"].items():
        burst.add_row(duration_text(float(window.removesuffix("s"))), number(value))
    burst.add_row("20 min: peak / mean", number(summary.burstiness["peak_to_mean"]))
    burst.add_row("20 min: correlation", number(summary.burstiness["lag1_correlation"]))
    shapes = plain("demand", "share", "mean duration", title="most frequent demands")
    for shape in summary.top_shapes:
        text = "  ".join(f"{n} {v:g}" for n, v in zip(summary.load, shape["demand"], strict=True))
        shapes.add_row(text, f"{shape['share']:.1%}", duration_text(shape["mean_duration"]))
    gap = Text("")
    return Group(_facts(summary), gap, spread, gap, load, *told, gap, burst, gap, shapes)


def types_view(typing: Typing, trace: Trace, width: int = 80) -> RenderableType:
    """Return the types, what they hold, and what they waste."""
    table = plain("type", "jobs", "share", "an hour", "mean\nduration", "in\nservice", title=f"{typing.method}")
    table.columns[0].min_width = FOLDED
    for row in typing.table(trace).iter_rows(named=True):
        table.add_row(
            row["type"],
            f"{row['jobs']:,}",
            f"{row['share']:.2%}",
            number(row["rate"] * 3600),
            duration_text(row["mean_duration"]),
            number(row["load"]),
        )
    waste = plain("resource", "asked", "reserved", "waste", title="load in servers, and what rounding adds")
    for name, asked in typing.asked.items():
        waste.add_row(name, number(asked), number(typing.reserved[name]), f"{typing.waste[name]:.1%}")
    for name in ("total", "bottleneck"):
        fold = sum if name == "total" else max
        waste.add_row(
            name,
            number(fold(typing.asked.values())),
            number(fold(typing.reserved.values())),
            f"{typing.waste[name]:.1%}",
        )
    left_out = fit(table, width, ("in service", "share", "an hour"))
    return Group(table, *(Text(line, "dim") for line in left_out), Text(""), waste, Text(typing.told, "dim"))


def profile_view(profile: MeasuredProfile) -> RenderableType:
    """Step by step."""
    steps = len(profile.jobs)
    width = PERIODS[profile.period] / steps
    seen = float(profile.seconds.sum() / (width * steps))
    title = f"arrivals over the {profile.period}, from {profile.begins}, {seen:.3g} {profile.period}s seen"
    table = plain("from", "jobs", "an hour", "rate / mean", title=title)
    for n, (jobs, seconds, rate) in enumerate(zip(profile.jobs, profile.seconds, profile.rates, strict=True)):
        table.add_row(duration_text(n * width), f"{jobs:,}", number(float(jobs / seconds * 3600)), f"{rate:.3f}")
    return table


def closeness_view(near: dict[str, Any]) -> RenderableType:
    """Return what `slotwise.workloads.profiles.closeness` found."""
    table = plain("", "other / first", title="how close the other trace comes to the first")
    table.add_row("distance of the type mix (0 is equal)", f"{near['mix_distance']:.4f}")
    table.add_row("arrival rate", f"{near['rate_ratio']:.3f}")
    table.add_row("mean duration", f"{near['mean_duration_ratio']:.3f}")
    for level, ratio in near["duration_ratio"].items():
        table.add_row(f"duration, {level}", f"{ratio:.3f}")
    for name, ratio in near["load_ratio"].items():
        table.add_row(f"offered load, {name}", f"{ratio:.3f}")
    for window, (first, other) in near["idc"].items():
        ratio_text = f"{other / first:.3f}" if first and other else NONE
        table.add_row(f"dispersion over {duration_text(float(window.removesuffix('s')))}", ratio_text)
    return table
