"""Figures as inline SVG: equal input gives equal bytes, text is drawn as outlines, so it looks the same everywhere.

Every picture is a panel of one width that stays legible on a telephone; what needs more room is several panels, which
the page sets side by side or below each other. Legends are part of the page, not of the panels.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import ArrayLike, NDArray

from slotwise.display.palette import INK, RULE, SOFT, VERMILION, Style, style_of
from slotwise.errors import InputError
from slotwise.files import whole

# inches; a panel's width of 4.7 inches shown on 330 points keeps its labels above 6 points; a wide one is for
# screens that have the room
WIDTH, HEIGHT, WIDE = 4.7, 3.15, 9.6
# logarithmic axes of queues and waits begin no lower: a queue of less than a thousandth of a job is none
FLOOR = 5e-4
FAR = 8.0  # means that are this many times apart are shown on a logarithmic scale
MOST_SHOWN = 30.0  # of an interval on a logarithmic scale: from so many times less than its mean on
_RC = {
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "axes.titlesize": 10.5,
    "svg.fonttype": "path",
    "svg.hashsalt": "slotwise",
    "axes.unicode_minus": True,
}

_PLACE = "key-of-a-policy"
_DIGITS = re.compile(r"-?\d+\.\d{3,}")


@dataclass(frozen=True)
class DrawnSeries:
    """One line of a chart: a policy's means over x, with their intervals where there are some."""

    policy: str
    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    grows: Sequence[bool] = ()
    """where the queue was found to grow without bound: drawn as an open marker"""


class Picture(Figure):
    """A figure that a notebook shows by itself."""

    def _repr_svg_(self) -> str:
        return svg_of(self, f"picture-{id(self):x}")


@contextmanager
def panel(height: float = HEIGHT, wide: bool = False) -> Iterator[tuple[Figure, Axes]]:
    """An empty panel in the house style."""
    with panels(1, height, WIDE if wide else WIDTH) as (figure, (axes,)):
        yield figure, axes


@contextmanager
def panels(count: int, height: float = HEIGHT, width: float = WIDTH) -> Iterator[tuple[Picture, list[Axes]]]:
    """Empty panels side by side."""
    with matplotlib.rc_context(_RC):
        layout = ConstrainedLayoutEngine(h_pad=0.05, w_pad=0.05)
        figure = Picture(figsize=(count * width, height), layout=layout, facecolor="white")
        found = [figure.add_subplot(1, count, n + 1) for n in range(count)]
        for axes in found:
            axes.spines[["top", "right"]].set_visible(False)
            axes.spines[["left", "bottom"]].set_color(SOFT)
            axes.tick_params(colors=INK, length=3, which="both")
            axes.grid(color=RULE, linewidth=0.7)
            axes.set_axisbelow(True)
        yield figure, found


SAVED: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".png": {}, ".pdf": {"CreationDate": None}}


def check_picture(path: str | Path) -> None:
    """Whether a picture can have this name."""
    if Path(path).suffix.lower() not in SAVED:
        raise InputError(
            f"{Path(path).suffix or 'no ending'!r} is no picture format",
            where=str(path),
            remedy="use .svg, .png or .pdf",
        )


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure without the moment of its making, so that equal figures give equal files."""
    check_picture(path)
    with matplotlib.rc_context({"svg.hashsalt": "slotwise"}), whole(path) as place:
        figure.savefig(place, dpi=160, metadata=SAVED[Path(path).suffix.lower()])


def svg_of(figure: Figure, identity: str) -> str:
    """The figure as an inline SVG element whose ids do not clash with those of other figures on the page."""
    with matplotlib.rc_context(_RC):
        target = io.StringIO()
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    text = target.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{identity}-\1"', text)
    text = re.sub(r'(xlink:href|href)="#([^"]+)"', rf'\1="#{identity}-\2"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{identity}-\1)", text)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    # ten-thousandths of a point are nothing but bytes (in outlines; the scale of a glyph needs its digits)
    text = re.sub(r' d="[^"]*"', lambda path: _DIGITS.sub(lambda n: f"{float(n[0]):.2f}", path[0]), text)
    return text.strip().replace("<svg", '<svg aria-hidden="true" focusable="false"', 1)


def lines(
    series: Sequence[DrawnSeries],
    identity: str,
    *,
    x: str,
    y: str = "mean queue size (jobs)",
    log: bool = True,
    log_x: bool = False,
    ticks: Sequence[float] | None = None,
    markers: bool = True,
    height: float = HEIGHT,
    wide: bool = False,
    floor: float = FLOOR,
) -> str:
    """Means over a parameter, with confidence bands."""
    with panel(height, wide) as (figure, axes):
        draw_lines(axes, series, x=x, y=y, log=log, log_x=log_x, ticks=ticks, markers=markers, floor=floor)
        return svg_of(figure, identity)


def draw_lines(
    axes: Axes,
    series: Sequence[DrawnSeries],
    *,
    x: str,
    y: str,
    log: bool = True,
    log_x: bool = False,
    ticks: Sequence[float] | None = None,
    markers: bool = True,
    floor: float = FLOOR,
) -> None:
    """`lines` on axes that are there."""
    for one in series:
        _line(axes, one, style_of(one.policy), markers)
    if log:
        _log_axis(axes, series, floor)
    else:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6))
        axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
    if log_x:
        axes.set_xscale("log")
        far = [float(v) for one in series for v in one.x if v > 0]
        if far:
            axes.set_xlim(min(far), max(far) * 1.08)
    if ticks is not None:
        axes.xaxis.set_major_locator(FixedLocator(list(ticks)))
        axes.xaxis.set_minor_locator(FixedLocator([]))
    axes.xaxis.set_major_formatter(FuncFormatter(plain_number))
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)


def _line(axes: Axes, one: DrawnSeries, style: Style, markers: bool) -> None:
    x, mean = np.asarray(one.x, float), np.asarray(one.mean, float)
    if len(one.low):
        low = np.array([np.nan if value is None else value for value in one.low])
        high = np.array([np.nan if value is None else value for value in one.high])
        axes.fill_between(x, np.maximum(low, 1e-9), high, color=style.colour, alpha=0.16, linewidth=0)
    width = 1.4 if style.marker else 1.1
    axes.plot(x, mean, color=style.colour, linestyle=style.line, linewidth=width)
    if style.marker and markers:
        grows = np.array(one.grows, bool) if len(one.grows) else np.zeros(len(x), bool)
        size = 7.5 if style.marker == "*" else 4.6
        for chosen, face in ((~grows, style.colour), (grows, "white")):
            axes.plot(
                x[chosen],
                mean[chosen],
                linestyle="none",
                marker=style.marker,
                markersize=size,
                markerfacecolor=face,
                markeredgecolor=style.colour,
                markeredgewidth=1.1,
            )


def _log_axis(axes: Axes, series: Sequence[DrawnSeries], floor: float) -> None:
    # a figure that is not known yet is infinite, and is not drawn
    shown = [v for one in series for v in one.mean if v is not None and 0 < v < np.inf]
    tops = [v for one in series for v in one.high if v is not None and 0 < v < np.inf]
    axes.set_yscale("log")
    if shown:
        axes.set_ylim(max(floor, min(shown) / 1.8), max([*shown, *tops]) * 1.5)
    axes.yaxis.set_major_locator(LogLocator(numticks=8))
    axes.yaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0), numticks=8))
    axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
    spread = np.log10(max(shown) / min(shown)) if shown else 0
    axes.yaxis.set_minor_formatter(FuncFormatter(plain_number) if spread < 1.6 else NullFormatter())


def plain_number(value: float, _: object = None) -> str:
    """1,000 rather than 10^3."""
    if value == 0:
        return "0"
    if abs(value) >= 1e6:
        return f"{value / 1e6:g} M"
    if abs(value) < 1e-4:
        return f"{value:.10f}".rstrip("0") if abs(value) >= 1e-7 else f"{value:.0e}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def plain_axes(axes: Axes) -> None:
    """Plain numbers on both axes."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6))
        axis.set_major_formatter(FuncFormatter(plain_number))


def curves(
    parts: Sequence[tuple[str, NDArray[np.float64], NDArray[np.float64]]],
    identity: str,
    *,
    x: str,
    y: str = "waiting jobs",
    marks: Sequence[float] = (),
    height: float = HEIGHT,
    wide: bool = False,
    top: float | None = None,
) -> str:
    """Time series of policies: (policy, time, value); a vertical line at each of the `marks`; `top` is the end of the axis."""
    with panel(height, wide) as (figure, axes):
        draw_curves(axes, parts, x=x, y=y, marks=marks, top=top)
        return svg_of(figure, identity)


def draw_curves(
    axes: Axes,
    parts: Sequence[tuple[str, NDArray[np.float64], NDArray[np.float64]]],
    *,
    x: str,
    y: str = "waiting jobs",
    marks: Sequence[float] = (),
    top: float | None = None,
) -> None:
    """`curves` on axes that are there."""
    for moment in marks:
        axes.axvline(moment, color=VERMILION, linewidth=1.2, alpha=0.55)
    for policy, time, value in parts:
        style = style_of(policy)
        axes.plot(time, value, color=style.colour, linewidth=1.1, linestyle=style.line)
    axes.set_xlim(left=0, right=max((max(time) for _, time, _ in parts), default=1))
    axes.set_ylim(bottom=0)
    if top is not None and top > 0:
        axes.set_ylim(0, 1.05 * top)
    axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
    axes.xaxis.set_major_formatter(FuncFormatter(plain_number))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)


Row = tuple[str, str, float, float | None, float | None]  # (label, policy, mean, low, high)


def dots(
    rows: Sequence[Row],
    identity: str,
    *,
    x: str = "mean queue size (jobs)",
    log: bool | None = None,
    wide: bool = False,
) -> str:
    """A row for each (label, policy, mean, low, high): a dot with its interval; labels stand above their row.

    The scale is logarithmic where the means are far apart, or as `log` says.
    """
    with panel(0.75 + 0.4 * len(rows), wide) as (figure, axes):
        draw_dots(axes, rows, x=x, log=log)
        return svg_of(figure, identity)


def draw_dots(
    axes: Axes, rows: Sequence[Row], *, x: str = "mean queue size (jobs)", log: bool | None = None
) -> None:
    """`dots` on axes that are there. No bar reaches beyond the axis: one that goes on below it ends in an arrow."""
    shown = [row[2] for row in rows if row[2] > 0]
    tops = [*shown, *(row[4] for row in rows if row[4] is not None)]
    log = bool(shown) and (max(shown) > FAR * min(shown) if log is None else log)
    lows = [max(row[3], row[2] / MOST_SHOWN) for row in rows if row[2] > 0 and row[3] is not None]
    left = min([*shown, *lows], default=0.0) / 1.4 if log else 0.0
    for at, (label, policy, mean, low, high) in enumerate(rows):
        style = style_of(policy)
        if low is not None and high is not None:
            begin = max(low, left * 1.04)
            axes.plot(
                [begin, high],
                [at, at],
                color=style.colour,
                linewidth=3,
                alpha=0.35,
                zorder=2,
                solid_capstyle="butt",
            )
            if low < begin:
                axes.plot([begin], [at], marker=8, color=style.colour, markersize=6, alpha=0.6, zorder=2)
        if mean >= left and (mean > 0 or not log):
            axes.plot([mean], [at], marker=style.marker or "o", color=style.colour, markersize=5.5, zorder=3)
        axes.annotate(
            label if mean > 0 or not log else f"{label}: {mean:g}",
            (0, at),
            xycoords=("axes fraction", "data"),
            xytext=(3, 6),
            textcoords="offset points",
            fontsize=9.5,
            color=INK,
            va="bottom",
        )
    axes.set_ylim(len(rows) - 0.55, -0.9)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    if log:
        axes.set_xscale("log")
        axes.set_xlim(left, max(tops) * 1.25)
        axes.xaxis.set_major_locator(LogLocator(numticks=7))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(0, 1.06 * max(tops, default=1.0) or 1.0)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
    axes.xaxis.set_major_formatter(FuncFormatter(plain_number))
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(x, color=INK)


def bars_over_time(
    edges: ArrayLike,
    values: ArrayLike,
    identity: str,
    *,
    x: str,
    y: str,
    mean: float | None = None,
    top: float | None = None,
) -> str:
    """Counts in windows of time, with their mean as a line."""
    with panel() as (figure, axes):
        axes.stairs(np.asarray(values), np.asarray(edges), color=SOFT, fill=True, alpha=0.55)
        axes.stairs(np.asarray(values), np.asarray(edges), color=INK, linewidth=0.8)
        if mean is not None:
            axes.axhline(mean, color=INK, linestyle=(0, (4, 2)), linewidth=0.9)
        axes.set_xlim(np.min(edges), np.max(edges))
        axes.set_ylim(0, 1.05 * (top if top is not None else float(np.max(values))))
        axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 2.4, 3, 6, 10]))
        axes.set_xlabel(x, color=INK)
        axes.set_ylabel(y, color=INK)
        return svg_of(figure, identity)


def key_mark(policy: str, identity: str) -> str:
    """The small picture of a policy for a legend of the page."""
    return _mark(policy).replace(_PLACE, identity)


@lru_cache(maxsize=64)
def _mark(policy: str) -> str:
    style = style_of(policy)
    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=(0.46, 0.2), facecolor="none")
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_axis_off()
        axes.set(xlim=(0, 1), ylim=(0, 1))
        axes.plot([0.04, 0.96], [0.5, 0.5], color=style.colour, linestyle=style.line, linewidth=1.5)
        if style.marker:
            size = 8 if style.marker == "*" else 5.5
            axes.plot([0.5], [0.5], marker=style.marker, color=style.colour, markersize=size)
        return svg_of(figure, _PLACE)
