"""`Capacity` for people in notebooks: what it calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from slotwise.display import notebook
from slotwise.display.numbers import brief
from slotwise.display.palette import BLUE, INK, SKY, VERMILION
from slotwise.theory.answer import answer, fills

if TYPE_CHECKING:
    import polars as pl

    from slotwise.display.drawing import Picture
    from slotwise.theory.capacity import Capacity


def by_type(capacity: Capacity) -> pl.DataFrame:
    """Return a row for each type: arrivals, load, its share of the bottleneck, and how many more fit alone."""
    import polars as pl

    used = capacity.region.prices * capacity.region.rho
    whole = float(used.sum()) or 1.0
    return pl.DataFrame(
        {
            "type": [job_type.name for job_type in capacity.scenario.types],
            "rate": [float(rate) for rate in capacity.rates],
            "load": [float(load) for load in capacity.region.rho],
            "share_of_bottleneck": [float(one) / whole for one in used],
            "room_for": [
                head.more / job_type.mean_service
                for head, job_type in zip(capacity.headroom, capacity.scenario.types, strict=True)
            ],
        }
    )


def html(capacity: Capacity) -> str:
    """Return the answer, and the types."""
    rows = [
        [
            row["type"],
            brief(row["rate"]),
            brief(row["load"]),
            f"{row['share_of_bottleneck']:.0%}",
            brief(row["room_for"]),
        ]
        for row in by_type(capacity).iter_rows(named=True)
    ]
    first, *rest = answer(capacity)
    columns = ["type", "arrivals", "load", "of the bottleneck", "room for"]
    return notebook.table(f"{capacity.scenario.name}: {first}", columns, rows, rest)


def plot(capacity: Capacity) -> Picture:
    """Draw how full each resource is, and how full it can be with this mix of jobs."""
    from slotwise.display.drawing import panels  # Matplotlib is slow to load

    full = fills(capacity)
    with panels(1, 0.9 + 0.45 * max(1, len(full))) as (figure, (axes,)):
        for at, (_, most) in enumerate(full.items()):
            now = most * min(capacity.region.intensity, 10.0)
            axes.barh(
                at, most, height=0.62, color=SKY, alpha=0.45, label="at most, with this mix" if at == 0 else None
            )
            axes.barh(
                at,
                now,
                height=0.34,
                color=BLUE if now <= most else VERMILION,
                label="this load" if at == 0 else None,
            )
        axes.set_yticks(np.arange(len(full)), list(full))
        axes.invert_yaxis()
        axes.set_xlim(0, max([1.0, *(most * max(1.0, capacity.region.intensity) for most in full.values())]) * 1.02)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("share of the cluster in use", color=INK)
        axes.legend(loc="upper left", bbox_to_anchor=(0, 1.35), ncols=2, frameon=False, fontsize=9)
        return figure
