"""A plan for people in notebooks: what `Plan` calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slotwise.display import notebook
from slotwise.display.numbers import brief, with_band
from slotwise.display.palette import INK, SOFT, style_of
from slotwise.model import labelled
from slotwise.planning.targets import meaning, shown, unit_of

if TYPE_CHECKING:
    import polars as pl

    from slotwise.display.drawing import Picture
    from slotwise.planning.plan import Plan

KINDS = {"meets": "good", "misses": "bad"}


def frame(plan: Plan) -> pl.DataFrame:
    """Return a row for each choice that was tried, in the order of cost."""
    import polars as pl

    rows = []
    for trial in sorted(plan.tried, key=lambda one: one.cost):
        row: dict[str, Any] = dict(zip(plan.class_names, trial.servers, strict=True))
        row |= {"cost": trial.cost, "verdict": str(trial.verdict), "replications": trial.replications}
        for key in plan.targets:
            found = (trial.estimates or {}).get(key)
            row |= {key: found.mean if found else None}
            row |= {f"{key}_low": found.low if found else None, f"{key}_high": found.high if found else None}
        rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)


def html(plan: Plan) -> str:
    """Return the sentence, and what was tried."""
    columns = [
        "servers",
        *(["cost"] if plan.priced else []),
        *(labelled(meaning(k), unit_of(k, plan.scenario.time_unit)) for k in plan.targets),
        "verdict",
    ]
    rows = []
    for trial in sorted(plan.tried, key=lambda one: one.cost):
        if not trial.estimates:
            continue  # nothing was run
        mix = zip(plan.class_names, trial.servers, strict=True)
        servers = " + ".join(f"{n:,} {name}" for name, n in mix if n) or "none"
        found = [with_band(*trial.estimates[key][:3]) for key in plan.targets]
        verdict = str(trial.verdict)
        kind = KINDS.get(verdict, "unsure")
        rows.append([servers, *([brief(trial.cost)] if plan.priced else []), *found, (verdict, kind)])
    return notebook.table(plan.statement, columns, rows)


def plot(plan: Plan) -> Picture:
    """Draw each target over the cost of the tried servers, with its limit."""
    from matplotlib.ticker import MaxNLocator  # Matplotlib is slow to load

    from slotwise.display.drawing import panels, plain_axes

    style, unit = style_of(plan.policy), plan.scenario.time_unit
    with panels(len(plan.targets)) as (figure, all_axes):
        for axes, (key, limit) in zip(all_axes, plan.targets.items(), strict=True):
            for trial in plan.tried:
                found = (trial.estimates or {}).get(key)
                if found is None or not found.mean < float("inf"):
                    continue
                if found.low is not None and found.high is not None and found.high < float("inf"):
                    axes.plot(
                        [trial.cost] * 2,
                        [max(found.low, 0.0), found.high],
                        color=style.colour,
                        alpha=0.35,
                        linewidth=3,
                    )
                face = style.colour if trial is plan.best else "white"
                axes.plot(
                    [trial.cost], [found.mean], marker="o", color=style.colour, markerfacecolor=face, markersize=6
                )
            axes.axhline(limit, color=INK, linestyle=(0, (4, 2)), linewidth=1)
            axes.annotate(
                f"at most {shown(key, limit, unit)}",
                (1, limit),
                xycoords=("axes fraction", "data"),
                ha="right",
                va="bottom",
                color=SOFT,
            )
            axes.set_ylim(bottom=0)
            axes.set_xlabel("cost" if plan.priced else "servers", color=INK)
            axes.set_ylabel(labelled(meaning(key), unit_of(key, unit)), color=INK)
            plain_axes(axes)
            if not plan.priced:
                axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.suptitle(
            plan.statement if len(plan.statement) < 90 else f"{plan.scenario.name}, {plan.policy}", fontsize=9
        )
        return figure
