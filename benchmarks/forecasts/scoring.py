"""What forecasts are worth: pinball loss, coverage, width; for ours and for each baseline, on the same origins."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotwise.foresee.correction import BANDS, LEVELS, band_of, curves_of, mixed
from slotwise.foresee.tracking import Tracker

F8 = NDArray[np.float64]
Data = dict[str, Any]
TAU = np.array(LEVELS)
RETRAINED, LEARNT = 3, 8_000  # how often gradient boosting is trained, and on how many rows
FEWEST = 10  # observations below which a baseline does not answer
FAR = 56 * 86_400.0  # what "later" counts as, in seconds


def pinball(q: F8, y: F8) -> F8:
    """Return the loss at each level, (n, levels)."""
    gap = y[:, None] - q
    return np.maximum(TAU * gap, (TAU - 1) * gap)


def ours(data: Data) -> F8:
    """Runs ahead and recent waits, corrected by what was known when each forecast was made."""
    return _tracked(data, data["members"], data["waits"])


def corrected(data: Data) -> F8:
    """Runs ahead alone, corrected likewise."""
    return _tracked(data, data["members"], np.full_like(data["waits"], np.nan))


def raw(data: Data) -> F8:
    """Runs ahead without correction."""
    return _plain(data["members"])


def oracle(data: Data) -> F8:
    """Runs ahead with the true durations of the jobs that are there, and drawn arrivals, corrected likewise."""
    return _tracked(data, data["oracle"], np.full_like(data["waits"], np.nan))


def _plain(members: F8) -> F8:
    return np.asarray(np.quantile(np.minimum(members, FAR), TAU, axis=1, method="weibull").T)


def _tracked(data: Data, members: F8, waits: F8) -> F8:
    """Correct the runs of each origin by the outcomes that were known by then; the jobs beside the scored ones teach, too."""
    tracker, started, types = Tracker(), data["started"], data["types"][data["job_type"]]
    order = np.argsort(data["now"], kind="stable")
    jobs = {int(job) for job in (*data["job"], *data["beside_job"].ravel()) if job >= 0}
    starts = sorted((float(started[job]), job) for job in jobs if np.isfinite(started[job]))
    out, next_start = np.empty((len(order), len(TAU))), 0
    for at in order:
        now, job = float(data["now"][at]), int(data["job"][at])
        while next_start < len(starts) and starts[next_start][0] <= now:
            tracker.started(starts[next_start][1], starts[next_start][0])
            next_start += 1
        tracker.advance(now)
        beside = data["beside"][at] if members is data["members"] else data["beside"][at][:0]
        told = ~np.isnan(beside).any(axis=1)
        rows = np.concatenate([members[at][None, :], beside[told]]) if told.any() else members[at][None, :]
        named = [job, *data["beside_job"][at][: len(beside)][told].tolist()]
        kinds, medians = [str(types[one]) for one in named], np.median(np.minimum(rows, FAR), axis=1)
        asked = np.flatnonzero([True, *told])
        curves = mixed(curves_of(rows.T), waits[at][asked])
        q = tracker.correction(now).quantiles(curves, kinds, medians)
        out[at] = np.minimum(q[:, 0], FAR)
        for place, curve in enumerate(curves):
            tracker.add(named[place], now, q[:, place], kinds[place], float(medians[place]), curve)
    return out


def by_position(data: Data) -> F8:
    """The place in the queue over recent throughput; quantiles of the sum of so many exponential gaps."""
    from scipy.stats import gamma

    with np.errstate(invalid="ignore"):
        return np.asarray(gamma.ppf(TAU[None, :], data["position"][:, None]) / data["throughput"][:, None])


def by_recent_waits(data: Data) -> F8:
    """Quantiles of recent waits of the type that were longer than the age (as QBETS bounds them)."""
    rows = [row[np.isfinite(row)] for row in data["recent"]]
    return np.array([np.quantile(row, TAU) if len(row) >= FEWEST else [np.nan] * 3 for row in rows])


def by_plan(data: Data) -> F8:
    """A plan that takes every job to run for its requested limit, times quantiles of what became of earlier plans."""
    plan, known, out = data["plan"], data["now"] + data["actual"], np.full((len(data["now"]), 3), np.nan)
    for at, now in enumerate(data["now"]):
        past = (known <= now) & (plan > 0)
        ratios = (data["actual"] / np.maximum(plan, 1.0))[past][-200:]
        out[at] = plan[at] * (np.quantile(ratios, TAU) if len(ratios) >= FEWEST else np.ones(3))
    return out


def by_boosting(data: Data) -> F8:
    """Quantile gradient boosting on what is known of queue, cluster and job, trained anew after every third of the forecasts on the last 8,000 of all that have started by then."""
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ImportError:
        print("scikit-learn is not installed: no gradient boosting", file=sys.stderr)
        return np.full((len(data["now"]), 3), np.nan)
    order, out = np.argsort(data["now"], kind="stable"), np.full((len(data["now"]), 3), np.nan)
    known = data["all_now"] + data["all_actual"]
    told = np.isfinite(data["all_features"]).any(axis=0)
    for piece in np.array_split(order, RETRAINED):
        begin = float(data["now"][piece[0]])
        rows = np.flatnonzero(known <= begin)[-LEARNT:]
        if len(rows) < 50:
            continue
        for level, tau in enumerate(TAU):
            model = HistGradientBoostingRegressor(
                loss="quantile", quantile=float(tau), max_iter=100, random_state=1
            )
            model.fit(data["all_features"][rows][:, told], np.log1p(data["all_actual"][rows]))
            out[piece, level] = np.expm1(model.predict(data["features"][piece][:, told]))
    return np.sort(np.maximum(out, 0.0), axis=1)


METHODS: dict[str, Callable[[Data], F8]] = {
    "runs and recent waits, corrected": ours,
    "runs ahead, corrected": corrected,
    "runs ahead, not corrected": raw,
    "queue position": by_position,
    "recent waits": by_recent_waits,
    "plan from limits": by_plan,
    "gradient boosting": by_boosting,
    "oracle": oracle,
}
OURS, FLOOR = "runs and recent waits, corrected", "oracle"
RIVALS = [name for name in METHODS if name not in (OURS, FLOOR) and not name.startswith("runs ahead")]


def inside(q: F8, y: F8) -> NDArray[np.bool_]:
    """Return whether each start lies in its interval."""
    return (y >= q[:, 0]) & (y <= q[:, 2])


def score(file: Path) -> tuple[Data, dict[str, F8]]:
    """Return the origins of a log and the quantiles of every method."""
    with np.load(file) as kept:
        data = {name: kept[name] for name in kept.files}
    return data, {name: method(data) for name, method in METHODS.items()}


def table(headings: list[str], rows: list[list[str]]) -> list[str]:
    """Return a table in Markdown."""
    return [f"| {' | '.join(row)} |" for row in [headings, ["---"] * len(headings), *rows]]


def report(files: list[Path], out: Path | None) -> None:
    """Print, and write, the tables."""
    lines: list[str] = []
    for part, heading in (
        ("tune", "Logs to tune on"),
        ("decide", "Logs to decide on"),
        ("last", "Logs that were looked at last"),
    ):
        scored = [(file.stem, *score(file)) for file in files if file.exists() and _part(file) == part]
        if not scored:
            continue
        lines += [f"### {heading}", ""]
        lines += [*losses(scored), "", *ours_in_detail(scored), "", *groups(scored), ""]
    text = "\n".join(lines)
    print(text)
    if out is not None:
        out.write_text(text + "\n", "utf-8")


def _part(file: Path) -> str:
    with np.load(file) as kept:
        return str(kept["part"])


Scored = list[tuple[str, Data, dict[str, F8]]]


def losses(scored: Scored) -> list[str]:
    """Mean pinball loss over the three levels, in seconds, on the origins that a method answers; ours on the same origins beside it."""
    rows = []
    for name, data, found in scored:
        y = data["actual"]
        loss = {method: pinball(q, y).mean(axis=1) for method, q in found.items()}
        best = min((m for m in RIVALS if _answered(found[m]).mean() > 0.5), key=lambda m: _relative(loss, found, m))
        gain = 1.0 - 1.0 / _relative(loss, found, best)
        cells = []
        for method in METHODS:
            ok = _answered(found[method])
            share = "" if ok.all() else f" ({ok.mean():.0%})"
            cells.append(f"{loss[method][ok].mean():,.0f}{share}" if ok.any() else "–")
        rows.append([name, f"{len(y)}", *cells, f"{gain:.0%}"])
    about = (
        "Pinball loss in seconds, mean over .1, .5 and .9. In brackets: the share of forecasts that a method answers, if that is not all. Last column: how much lower"
        " ours is than the best baseline, on the forecasts that the baseline answers."
    )
    return [
        about,
        "",
        *table(["log", "forecasts", *METHODS, "below the best"], rows),
    ]


def _answered(q: F8) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(q).all(axis=1))


def _relative(loss: dict[str, F8], found: dict[str, F8], method: str) -> float:
    """Return the loss of a method over ours, on the origins that it answers."""
    ok = _answered(found[method])
    return float(loss[method][ok].mean() / loss[OURS][ok].mean())


def ours_in_detail(scored: Scored) -> list[str]:
    """Coverage, width, error of the median and how many started at once."""
    rows = []
    for name, data, found in scored:
        y, q = data["actual"], found[OURS]
        once, waited = data["counts"]
        by_level = " / ".join(f"{x:,.0f}" for x in pinball(q, y).mean(axis=0))
        rows.append([
            name, by_level, f"{inside(q, y).mean():.1%}", f"{inside(found['runs ahead, not corrected'], y).mean():.1%}",
            f"{np.mean(q[:, 2] - q[:, 0]):,.0f}", f"{np.abs(y - q[:, 1]).mean() / y.mean():.2f}", f"{y.mean():,.0f}",
            f"{once / (once + waited):.0%}", f"{1 - _answered(q).mean():.0%}", f"{np.mean(data['seconds']):.2f}",
        ])  # fmt: skip
    headings = ["log", "pinball .1 / .5 / .9 s", "80 % intervals hold", "before correction", "width s", "MAE / mean wait", "mean wait left s", "start at once", "unanswered", "s per forecast"]  # fmt: skip
    return table(headings, rows)


def groups(scored: Scored) -> list[str]:
    """How often 80 % intervals hold, by type, by length of the forecast wait, by age, and by length of the actual wait."""
    rows = []
    edges = ("0 s", "1 min", "10 min", "1 h", "4 h", "1 day")
    for name, data, found in scored:
        y, q = data["actual"], found[OURS]
        held = inside(q, y)
        medians = np.median(np.minimum(data["members"], FAR), axis=1)
        by = {
            "type": data["type"],
            "forecast from": np.array([band_of(x) for x in medians]),
            "age": data["age"],
            "actual from": np.array([band_of(x) for x in y]),
        }
        for what, values in by.items():
            cells = []
            for value in np.unique(values):
                mine = values == value
                label = (
                    str(data["types"][value])
                    if what == "type"
                    else f"{value / 60:.0f} min"
                    if what == "age"
                    else edges[value]
                )
                cells.append(f"{label}: {held[mine].mean():.0%} of {mine.sum()}")
            rows.append([name, what, ", ".join(cells)])
    assert len(edges) == len(BANDS) + 1
    return table(["log", "by", "80 % intervals hold"], rows)
