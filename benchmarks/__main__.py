"""`python -m benchmarks [NAME]... [--check] [--save]`: all benchmarks, or some, as one table and in build/benchmarks.json.

`--check` warns of figures that lost more than a fifth against the committed ones; `--save` commits these in their place.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks import results

MODULES = ("starts", "simulator", "ciw_mmn", "growth", "core", "rebuild", "solvers", "capacity", "trace_import")
OUT = Path("build") / "benchmarks.json"
PACKAGES = ("numpy", "numba", "simpy", "ciw", "polars", "slotwise")


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    names: list[str] = []
    if Path("/proc/cpuinfo").is_file():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
        "time": time.strftime("%Y-%m-%d %H:%M:%S%z"),
    }


def table_of(found: results.Results) -> Table:
    """One line for each figure."""
    table = Table(box=SIMPLE_HEAD, title=", ".join(f"{key} {value}" for key, value in found["machine"].items()))
    for heading in ("what", "figure", "unit", "goal", "detail"):
        table.add_column(heading, justify="right" if heading == "figure" else "left")
    for row in found["rows"]:
        goal = f"{row['goal']}: {'met' if row['met'] else 'MISSED'}" if "goal" in row else ""
        table.add_row(row["name"], f"{row['value']:,.4g}", row["unit"], goal, row["detail"])
    return table


def main(arguments: list[str]) -> int:
    """Run them, print them, write them; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(MODULES)}")
    parser.add_argument("--check", action="store_true", help="warn of figures that lost more than a fifth")
    parser.add_argument(
        "--save", action="store_true", help=f"write {results.COMMITTED.name} anew; needs all of them"
    )
    asked = parser.parse_args(arguments)
    if unknown := set(asked.names) - set(MODULES):
        parser.error(f"no benchmark is called {unknown.pop()}; there are: {', '.join(MODULES)}")
    if asked.names and asked.save:
        parser.error("--save goes with all benchmarks: the file shall be of one run")
    rows: list[dict[str, Any]] = []
    found: results.Results = {"machine": machine(), "rows": rows}
    for name in asked.names or MODULES:
        begun = time.perf_counter()
        print(f"{name} ...", file=sys.stderr, end=" ", flush=True)
        rows += importlib.import_module(f"benchmarks.{name}").run()
        print(f"{time.perf_counter() - begun:.0f} s", file=sys.stderr)
    console = Console()
    console.width = max(console.width, 150)
    console.print(table_of(found))
    results.write(found, OUT)
    print(f"written to {OUT}", file=sys.stderr)
    if asked.check:
        before = results.read()
        if before is None:
            print(
                f"there is no {results.COMMITTED.name} to compare with: python -m benchmarks --save",
                file=sys.stderr,
            )
        else:
            warnings, summary = results.compare(found, before)
            for line in [*(f"WARNING {warning}" for warning in warnings), summary]:
                print(line, file=sys.stderr)
    if asked.save:
        results.write(found, results.COMMITTED)
        print(f"written to {results.COMMITTED}", file=sys.stderr)
    return 1 if any(row.get("met") is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
