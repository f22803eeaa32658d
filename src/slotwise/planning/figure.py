"""The trade-off as a picture: proven throughput to the right, measured queue upwards, a line for each solver."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slotwise.display.palette import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from slotwise.files import whole
from slotwise.planning.tradeoff import Setting, Tradeoff

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
MARKERS = "osD^vP*"
CLOSE = 0.08  # marks nearer than this leave no room for a number between them


def draw(found: Tradeoff, path: str | Path) -> None:
    """Write the figure; the ending of the file name says in which format."""
    import matplotlib  # slow to import
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator

    from slotwise.display.drawing import check_picture, plain_number

    path = Path(path)
    check_picture(path)
    with matplotlib.rc_context({"svg.hashsalt": "slotwise", "svg.fonttype": "none", "font.size": 11.5}):
        figure = Figure(figsize=(8.4, 6.0), layout="constrained")
        axes = figure.add_subplot()
        best = found.recommended
        for i, solver in enumerate(dict.fromkeys(setting.solver for setting in found.settings)):
            mine = [setting for setting in found.settings if setting.solver == solver]
            colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
            for proven, style in ((True, "-"), (False, ":")):
                some = [setting for setting in mine if (setting.share is not None) == proven]
                if not some:
                    continue
                name = f"solver {solver}" + ("" if proven else " (nothing proven)")
                _draw_line(axes, some, name, colour=colour, marker=marker, style=style, proven=proven)
        grows = [setting for setting in found.settings if setting.result.grows]
        if grows:
            axes.scatter(
                [setting.share or 0.0 for setting in grows],
                [setting.result.mean_queue.mean for setting in grows],
                marker="x",
                s=60,
                color="black",
                linewidths=1,
                zorder=4,
                label="the queue grows without bound",
            )
        axes.scatter(
            [best.share or 0.0],
            [best.result.mean_queue.mean],
            s=160,
            facecolors="none",
            edgecolors="black",
            linewidths=1.4,
            zorder=5,
            label=f"recommended: {best.name}",
        )
        axes.axvline(found.intensity, color="0.4", linestyle="--", linewidth=1, label="this load")
        axes.set_xlim(-0.04, max(1.08, min(1.5, found.intensity * 1.05)))
        if all(setting.result.mean_queue.mean > 0 for setting in found.settings):
            axes.set_yscale("log")
            axes.yaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
            for set_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
                set_formatter(FuncFormatter(plain_number))
        axes.set_xlabel("proven share of the capacity region (0: nothing is proven)")
        axes.set_ylabel("mean queue, measured")
        axes.set_title(f"{found.scenario.name}, {found.policy}: numbers at the marks are {best.key}", fontsize=12)
        axes.grid(True, which="major", color="0.9", linewidth=0.6)
        figure.legend(loc="outside lower center", ncols=2, fontsize=10.5, frameon=False)
        with whole(path) as place:
            figure.savefig(place, dpi=150, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)


def _draw_line(
    axes: Axes, some: Sequence[Setting], name: str, *, colour: str, marker: str, style: str, proven: bool
) -> None:
    """Draw the settings of one solver, each with its value of the option."""
    x = [setting.share or 0.0 for setting in some]
    intervals = [setting.result.mean_queue for setting in some]
    # on a log scale what reaches 0 would reach down for ever
    below = [min(one.mean - (one.low or one.mean), 0.8 * one.mean) for one in intervals]
    above = [(one.high or one.mean) - one.mean for one in intervals]
    axes.errorbar(
        x,
        [interval.mean for interval in intervals],
        yerr=[below, above],
        color=colour,
        marker=marker,
        markerfacecolor=colour if proven else "white",
        linestyle=style,
        linewidth=1.6,
        markersize=7,
        capsize=2,
        label=name,
    )
    above_it = False
    for n, setting in enumerate(some):
        if proven or n in (0, len(some) - 1):
            # neighbours that are close take turns: below the mark to the right, above it to the left
            above_it = not proven or (n > 0 and x[n] - x[n - 1] < CLOSE and not above_it)
            axes.annotate(
                f"{setting.beta:g}",
                (setting.share or 0.0, setting.result.mean_queue.mean),
                textcoords="offset points",
                xytext=(-5 if proven else 6, 6) if above_it else (6, -15),
                ha="right" if proven and above_it else "left",
                fontsize=10,
                color=colour,
            )
