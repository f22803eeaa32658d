"""All experiments in one go, and the page that tells of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slotwise.errors import InputError
from slotwise.experiments.beyond import BEYOND
from slotwise.experiments.compiling import compile_ahead
from slotwise.experiments.examples import EXAMPLE1, EXAMPLE2
from slotwise.experiments.experiment import Experiment, Order, Progress, silent
from slotwise.experiments.scaling import INTENSITY, SERVERS
from slotwise.experiments.settings import FULL, QUICK, Scale
from slotwise.experiments.traces import ARRIVALS, GOOGLE
from slotwise.report.blocks import ReportPage, Section
from slotwise.report.claims import Claim
from slotwise.report.manifest import Manifest
from slotwise.report.page import write_page

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for experiment in (EXAMPLE1, EXAMPLE2, SERVERS, INTENSITY, ARRIVALS, GOOGLE, BEYOND)
}
REPORT = "slotwise-report"


@dataclass(frozen=True)
class Reproduction:
    """What was found, and where the report lies."""

    claims: Sequence[Claim]
    path: Path
    seconds: Mapping[str, float]


def chosen(names: Sequence[str]) -> list[Experiment]:
    """The experiments of these names, all where none is named, in the paper's order."""
    for name in names:
        if name not in EXPERIMENTS:
            raise InputError(f"no experiment is called {name!r}", remedy=f"use some of: {', '.join(EXPERIMENTS)}")
    return [experiment for name, experiment in EXPERIMENTS.items() if not names or name in names]


def reproduce(
    names: Sequence[str] = (),
    *,
    quick: bool = False,
    traces: Mapping[str, Path] | None = None,
    out: Path = Path(REPORT),
    seed: int = 1,
    workers: int | None = None,
    progress: Progress = silent,
) -> Reproduction:
    """Run the experiments and write the report."""
    base = QUICK if quick else FULL
    scale = Scale(**(vars(base) | {"seed": seed}))
    order = Order(scale, traces or {}, progress, workers)
    out.mkdir(parents=True, exist_ok=True)
    sections: list[Section] = []
    seconds: dict[str, float] = {}
    begun = time.perf_counter()
    if any(experiment.simulates for experiment in chosen(names)):
        compile_ahead()
    seconds["compiling"] = time.perf_counter() - begun
    for experiment in chosen(names):
        begun = time.perf_counter()
        progress(experiment.name, 0.0)
        sections.append(experiment.run(order))
        progress(experiment.name, 1.0)
        seconds[experiment.name] = time.perf_counter() - begun
    begun = time.perf_counter()
    page = page_of(sections, scale, quick)
    command = " ".join(["slotwise reproduce", *names, *(["--quick"] if quick else [])])
    seconds["page"] = time.perf_counter() - begun
    path = write_page(page, out, Manifest(command, seed, seconds))
    return Reproduction(page.claims, path, seconds)


def page_of(sections: Sequence[Section], scale: Scale, quick: bool) -> ReportPage:
    """The report on these sections."""
    what = (
        "Jobs that must not be interrupted, on servers that hold only certain mixes of them: this page runs the evaluation"
        " of Psychas and Ghaderi, On Non-Preemptive VM Scheduling in the Cloud (section 7), anew and tests what the paper"
        " says of it, claim by claim."
    )
    how = (
        "M14 and G16 are reconstructions from their descriptions. Best-fit is what many would run today; the dotted line is"
        " the least mean queue that any policy could have which does not know how long jobs take. The paper's own"
        " figures are not available as numbers, so shapes and orders are compared, not values."
    )
    lead = [what, how]
    if quick:
        lead.append("This is a quick look with short runs: verdicts may differ from those at full size.")
    facts = [
        ("events a run", f"{scale.events:,} (G16 {2 * scale.events:,})"),
        ("dropped as warm-up", "the first quarter"),
        ("runs", f"{scale.replications}, on the trace {scale.trace_replications}"),
        ("bands", "95 % intervals over the runs"),
        ("seed", str(scale.seed)),
    ]
    return ReportPage("The paper, reproduced", lead, sections, facts)
