"""Make runs of logs (`members`), then score what is made of them (`score`). `durations` scores the service times alone."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.forecasts.logs import ALL
from benchmarks.forecasts.members import write_members

FOLDER = Path(__file__).resolve().parents[2] / "build" / "forecasts"


def main() -> None:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forecasts", description=__doc__)
    parser.add_argument("what", choices=["members", "score", "durations"])
    parser.add_argument("--log", action="append", choices=list(ALL), help="this log only; repeatable")
    parser.add_argument("--targets", type=int, default=250, help="jobs of each log that are forecast")
    parser.add_argument("--runs", type=int, default=32, help="runs ahead for each forecast")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where runs are kept")
    parser.add_argument("--out", type=Path, help="write the tables to this file, too")
    options = parser.parse_args()
    if options.what == "durations":
        from benchmarks.forecasts.durations import report as report_durations

        report_durations({name: ALL[name] for name in options.log or ALL})
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.log or ALL:
        file = options.folder / f"{name}.npz"
        if options.what == "members" and not file.exists():
            try:
                write_members(ALL[name](), file, targets=options.targets, runs=options.runs)
            except FileNotFoundError as missing:
                print(f"{name}: skipped, {missing.filename} is not beside the project", file=sys.stderr)
    if options.what == "score":
        from benchmarks.forecasts.scoring import report

        report([options.folder / f"{name}.npz" for name in options.log or ALL], options.out)


if __name__ == "__main__":
    main()
