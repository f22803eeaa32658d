"""The picture of a trace: arrivals over time, and the load they bring."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import NDArray

from slotwise.workloads.traces.schema import Trace
from slotwise.workloads.traces.summary import counts_in_windows, dispersion

WIDTHS = (1, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 2 * 3600, 6 * 3600, 86_400, 7 * 86_400)
MOST_WINDOWS = 120  # bars of one figure
INK, SOFT, LINE = "#1f2933", "#7b8794", "#e4e7eb"
TICKS = {
    "days": [1, 2, 5, 10],
    "hours": [1, 2, 2.4, 3, 6, 10],
    "minutes": [1, 1.5, 2, 3, 6, 10],
    "seconds": [1, 2, 5, 10],
}
COLOURS = ("#2f6f9f", "#d9822b", "#3a8f5c", "#a854a8", "#b03a48", "#6b705c")


def nice_width(span: float) -> float:
    """Return 20 minutes, as in the paper, if that gives 24 to `MOST_WINDOWS` windows, else the nearest width that
    does."""
    if 24 <= span / 1200 <= MOST_WINDOWS:
        return 1200.0
    return float(next((w for w in WIDTHS if span / w <= MOST_WINDOWS), WIDTHS[-1]))


def in_words(seconds: float) -> str:
    for size, word in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size and seconds % size == 0:
            n = int(seconds // size)
            return word if n == 1 else f"{n} {word}s"
    return f"{seconds:g} seconds" if seconds != 1 else "second"


def _clock(span: float) -> tuple[float, str]:
    if span > 4 * 86_400:
        return 86_400.0, "days"
    if span > 2 * 3600:
        return 3600.0, "hours"
    return (60.0, "minutes") if span > 300 else (1.0, "seconds")


def in_use(trace: Trace, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the demand in use at each moment if every job started on its arrival: float64[len(edges), R]."""
    first = trace.arrival[0]
    start, demands = trace.arrival - first, trace.demands()
    end = start + trace.duration
    order = np.argsort(end, kind="stable")
    begun = np.vstack([np.zeros(demands.shape[1]), np.cumsum(demands, axis=0)])
    ended = np.vstack([np.zeros(demands.shape[1]), np.cumsum(demands[order], axis=0)])
    return begun[np.searchsorted(start, edges, "right")] - ended[np.searchsorted(end[order], edges, "right")]


def arrivals_figure(trace: Trace, width: float | None = None) -> Figure:
    """Draw arrivals per window, and below it the resources in use if nothing ever waited."""
    width = width or nice_width(trace.span)
    unit, word = _clock(trace.span)
    time = trace.arrival - trace.arrival[0]
    counts = np.bincount((time / width).astype(np.int64))
    counts = counts[:-1] if len(counts) > 1 else counts  # the trace's end cuts the last window off
    edges = np.arange(len(counts) + 1) * width / unit
    with matplotlib.rc_context({"font.family": "DejaVu Sans", "font.size": 10, "svg.fonttype": "path"}):
        figure = Figure(figsize=(9, 5.4), layout=ConstrainedLayoutEngine(h_pad=0.09, w_pad=0.09), facecolor="white")
        top, low = figure.subplots(2, 1, sharex=True, height_ratios=(2.1, 1))
        _draw_counts(top, counts, edges, f"arrivals per {in_words(width)}")
        _draw_use(low, trace, unit)
        low.set_xlabel(f"{word} from the first arrival")
        low.set_xlim(0, edges[-1])
        low.xaxis.set_major_locator(MaxNLocator(nbins=12, steps=TICKS[word]))
        top.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        for axes in (top, low):
            _plain(axes)
        idc = dispersion(trace.arrival, width)
        burst = f", dispersion {idc:,.0f} (Poisson: 1)" if idc is not None and idc >= 2 else ""
        figure.suptitle(
            f"{trace.name}: {len(trace):,} jobs, {len(trace) / max(trace.span, 1e-300) * 3600:,.0f} an hour{burst}",
            x=0.012,
            ha="left",
            fontsize=12,
            fontweight="bold",
            color=INK,
        )
    return figure


def _draw_counts(axes: Axes, counts: NDArray[np.int64], edges: NDArray[Any], label: str) -> None:
    """Draw the arrivals of each window, and their mean."""
    axes.stairs(counts, edges, fill=True, color=COLOURS[0], alpha=0.16, linewidth=0)
    axes.stairs(counts, edges, color=COLOURS[0], linewidth=1.6)
    axes.axhline(counts.mean(), color=SOFT, linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(
        f"mean\n{counts.mean():,.0f}",
        (1, counts.mean()),
        xycoords=("axes fraction", "data"),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        color=SOFT,
        fontsize=9,
    )
    axes.set_ylabel(label)
    axes.set_ylim(0, counts.max() * 1.08)


def _draw_use(axes: Axes, trace: Trace, unit: float) -> None:
    """Draw the resources in use if every job started on its arrival."""
    moments = np.linspace(0, trace.span, 600)
    load = in_use(trace, moments)
    for r, name in enumerate(trace.resources):
        room = trace.meta.capacity.get(name)
        scale = room if room else max(float(load[:, r].max()), 1e-300)
        axes.plot(moments / unit, load[:, r] / scale, color=COLOURS[r % len(COLOURS)], linewidth=1.4, label=name)
    known = all(name in trace.meta.capacity for name in trace.resources)
    axes.set_ylabel("in use (servers)" if known else "in use (of peak)")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
    axes.legend(
        frameon=False,
        fontsize=9,
        loc="lower left",
        bbox_to_anchor=(-0.01, 0.94),
        ncols=len(trace.resources),
        labelcolor=INK,
        handlelength=1.4,
    )


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(SOFT)
    axes.tick_params(colors=INK, length=3)
    axes.yaxis.label.set_color(INK)
    axes.xaxis.label.set_color(INK)
    axes.grid(axis="y", color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)


def comparison_figure(real: Trace, made: Trace) -> Figure:
    """Draw two traces side by side: arrivals over time, durations, and how arrivals vary with the window."""
    with matplotlib.rc_context({"font.family": "DejaVu Sans", "font.size": 10, "svg.fonttype": "path"}):
        figure = Figure(figsize=(9, 5.6), layout=ConstrainedLayoutEngine(h_pad=0.09, w_pad=0.09), facecolor="white")
        parts: dict[str, Axes] = figure.subplot_mosaic([["arrivals", "arrivals"], ["durations", "bursts"]])
        width = nice_width(max(real.span, made.span))
        unit, word = _clock(max(real.span, made.span))
        for trace, colour, weight in ((real, COLOURS[0], 1.6), (made, COLOURS[1], 1.4)):
            counts = counts_in_windows(trace.arrival, width)
            parts["arrivals"].stairs(
                counts, np.arange(len(counts) + 1) * width / unit, color=colour, linewidth=weight, label=trace.name
            )
            share = np.linspace(0, 1, 512)
            parts["durations"].plot(np.quantile(trace.duration, share), share, color=colour, linewidth=weight)
            found = {w: dispersion(trace.arrival, w) for w in WIDTHS if w >= 10 and trace.span / w >= 16}
            bursts = {w: value for w, value in found.items() if value is not None}
            parts["bursts"].plot(
                list(bursts), list(bursts.values()), "o-", color=colour, linewidth=weight, markersize=3
            )
        parts["arrivals"].set(xlabel=word, ylabel=f"arrivals per {in_words(width)}", ylim=(0, None), xlim=(0, None))
        parts["arrivals"].yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        parts["arrivals"].xaxis.set_major_locator(MaxNLocator(nbins=12, steps=TICKS[word]))
        parts["arrivals"].legend(
            frameon=False, fontsize=9, loc="lower right", bbox_to_anchor=(1.01, 0.98), ncols=2, labelcolor=INK
        )
        parts["durations"].set(xscale="log", xlabel="duration (seconds)", ylabel="share of jobs", ylim=(0, 1))
        parts["bursts"].set(xscale="log", yscale="log", xlabel="window (seconds)", ylabel="dispersion (Poisson: 1)")
        parts["bursts"].set_ylim(bottom=1)
        for axes in parts.values():
            _plain(axes)
        figure.suptitle(
            f"{made.name} beside {real.name}", x=0.012, ha="left", fontsize=12, fontweight="bold", color=INK
        )
    return figure


"""for each format, the moment of its making left out"""
