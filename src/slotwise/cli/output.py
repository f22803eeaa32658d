"""What `simulate` and `compare` do with their results: a table, JSON or CSV, and a report page."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from slotwise._version import __version__
from slotwise.cli.tables import results_table
from slotwise.display.numbers import as_json as to_json
from slotwise.display.terminal import show
from slotwise.errors import InputError
from slotwise.files import reserve
from slotwise.model import Scenario
from slotwise.report import CONTENTS
from slotwise.simulation.result import Comparison, Result, as_json

OutOption = Annotated[Path | None, typer.Option(metavar="DIR", help="also write a report page there")]
CsvOption = Annotated[
    bool, typer.Option("--csv", help="print CSV on standard output: a row for each policy and replication")
]


class Output:
    """Where results go, checked before anything runs."""

    def __init__(self, command: str, *, json: bool, csv: bool, out: Path | None) -> None:
        if json and csv:
            raise InputError("are both given", where="--json and --csv", remedy="keep one of them")
        if out is not None:
            reserve(out, CONTENTS)
        self.command, self.json, self.csv, self.out = command, json, csv, out
        self.begun = time.perf_counter()

    def give(self, scenario: Scenario, results: Sequence[Result]) -> None:
        if self.json:
            print(to_json(as_json(scenario, results, __version__)))
        elif self.csv:
            print(Comparison(tuple(results)).frame().write_csv(), end="")
        else:
            show(lambda width: results_table(results, width))
        if self.out is not None:
            where = self._write_page(scenario, results)
            # beside a table on standard output, and out of the way of data
            print(f"report: {where.resolve()}", file=sys.stderr if self.json or self.csv else sys.stdout)

    def _write_page(self, scenario: Scenario, results: Sequence[Result]) -> Path:
        from slotwise.report.comparison import comparison_page  # Matplotlib is slow to load
        from slotwise.report.manifest import Manifest
        from slotwise.report.page import write_page

        assert self.out is not None
        taken = {"simulation": time.perf_counter() - self.begun}
        manifest = Manifest(self.command, scenario.run.seed, taken)
        return write_page(comparison_page(Comparison(tuple(results))), self.out, manifest)


def command_line(name: str, scenario: str, policies: Sequence[str], settings: Sequence[str]) -> str:
    """Return the command without the folders of this machine, so that it can be typed on another one."""
    words = ["slotwise", name, Path(scenario).name, "--policy", ",".join(policies)]
    for setting in settings:
        words += ["--set", setting]
    return shlex.join(words)
