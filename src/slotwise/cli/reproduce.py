"""`slotwise reproduce`: the paper's experiments, figures and claims, with a report page."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from slotwise.cli.compiling import shown
from slotwise.cli.running import WorkersOption, messages, say
from slotwise.display.terminal import show
from slotwise.errors import InputError
from slotwise.experiments.reproduce import EXPERIMENTS, REPORT, Reproduction, chosen
from slotwise.experiments.reproduce import reproduce as run
from slotwise.files import reserve
from slotwise.report import CONTENTS
from slotwise.report.claims import Standing
from slotwise.simulation.run import ahead

STYLES = {Standing.HOLDS: "green", Standing.IN_PART: "yellow", Standing.FAILS: "red", Standing.UNTESTED: "dim"}


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help=f"experiments (default: all): {', '.join(EXPERIMENTS)}"),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="short runs, for a first impression")] = False,
    trace: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORMAT=DIR", help="use this trace, such as google2011=DIR (default: a generated one)"
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="the folder of the report")] = Path(REPORT),
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="the same seed gives the same report data")] = 1,
    workers: WorkersOption = None,
) -> None:
    """Reproduce the evaluation of the paper and test its claims; ends with the path of a report page.

    \b
    Examples:
      slotwise reproduce
      slotwise reproduce example1 servers --quick --out report
      slotwise reproduce google --trace google2011=DIR
    """
    experiments = chosen(names or [])
    reserve(out, CONTENTS)
    with _progress([experiment.name for experiment in experiments]) as progress:
        found = run(
            names or [],
            quick=quick,
            traces=_traces(trace or []),
            out=out,
            seed=seed,
            workers=workers,
            progress=progress,
        )
    if found.claims:
        show(summary(found))
    print(f"report: {found.path.resolve()}")


def summary(found: Reproduction) -> Group:
    """The claims and how they fared."""
    table = Table(title="the paper's claims", show_lines=True)
    table.add_column("claim", ratio=5)
    table.add_column("verdict", ratio=4)
    table.add_column("measured", ratio=5)
    for claim in found.claims:
        table.add_row(claim.statement, Text(claim.finding, style=STYLES[claim.verdict]), claim.evidence)
    counts = [(verdict, sum(claim.verdict is verdict for claim in found.claims)) for verdict in Standing]
    tally = ", ".join(f"{count} {verdict}" for verdict, count in counts if count)
    return Group(
        table, Text(f"{tally} of {len(found.claims)} claims; {sum(found.seconds.values()):.0f} s", style="bold")
    )


def _traces(items: list[str]) -> dict[str, Path]:
    traces = {}
    for item in items:
        form, equals, path = item.partition("=")
        if not (form and equals and path):
            raise InputError(
                f"{item!r} is not FORMAT=DIR", where="--trace", remedy="such as google2011=/data/google"
            )
        if not Path(path).exists():
            raise InputError(
                f"there is no folder {path}", where=f"--trace {item}", remedy="name the folder of the trace"
            )
        traces[form] = Path(path)
    return traces


@contextmanager
def _progress(names: list[str]) -> Iterator[Callable[[str, float], None]]:
    """A bar for each experiment on standard error; plain lines where that is no terminal."""
    if not messages.is_terminal:
        with shown():
            yield _lines(names)
        return
    columns = TextColumn("{task.description:<10}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %")
    with Progress(*columns, TimeElapsedColumn(), console=messages) as display:
        bars: dict[str, TaskID] = {name: display.add_task(name, total=1.0, start=False) for name in names}

        def report(name: str, share: float) -> None:
            if share == 0.0:
                display.start_task(bars[name])
            display.update(bars[name], completed=share)

        with shown(_bar(display)):
            yield report


def _bar(display: Progress) -> ahead.Told:
    """A bar of its own for what is compiled."""
    bars: list[TaskID] = []

    def tell(n: int, m: int, _: str) -> None:
        if not bars:
            bars.append(display.add_task("compiling", total=m))
        display.update(bars[0], completed=n - 1)

    return tell


def _lines(names: list[str]) -> Callable[[str, float], None]:
    """A line a quarter of each experiment."""
    begun = time.monotonic()
    seen: dict[str, int] = {}

    def report(name: str, share: float) -> None:
        quarter = int(4 * share + 1e-9)
        if quarter > seen.get(name, -1):
            seen[name] = quarter
            at = names.index(name) + 1
            say(f"[{time.monotonic() - begun:5.0f} s] {name} ({at} of {len(names)}): {25 * quarter} %")

    return report
