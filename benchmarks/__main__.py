"""`python -m benchmarks [NAME]...`: all benchmarks, or some, as one table and in build/benchmarks.json."""

from __future__ import annotations

import importlib
import importlib.util
import json
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

MODULES = ("core", "simulator", "capacity", "trace_import")
OUT = Path("build") / "benchmarks.json"


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
        **{name: version(name) for name in ("numpy", "numba", "simpy", "polars", "slotwise")},
        "time": time.strftime("%Y-%m-%d %H:%M:%S%z"),
    }


def main(wanted: list[str]) -> int:
    """Run them, print them, write them; 1 where a goal is missed."""
    unknown = set(wanted) - set(MODULES)
    if unknown:
        print(f"no benchmark is called {unknown.pop()}; there are: {', '.join(MODULES)}", file=sys.stderr)
        return 2
    facts = machine()
    rows: list[dict[str, Any]] = []
    for name in MODULES:
        if (wanted and name not in wanted) or importlib.util.find_spec(f"benchmarks.{name}") is None:
            continue
        print(f"{name} ...", file=sys.stderr)
        rows += importlib.import_module(f"benchmarks.{name}").run()
    table = Table(box=SIMPLE_HEAD, title=", ".join(f"{key} {value}" for key, value in facts.items()))
    for heading in ("what", "figure", "unit", "goal", "detail"):
        table.add_column(heading, justify="right" if heading == "figure" else "left")
    for row in rows:
        goal = f"{row['goal']}: {'met' if row['met'] else 'MISSED'}" if "goal" in row else ""
        table.add_row(row["name"], f"{row['value']:,.4g}", row["unit"], goal, row["detail"])
    console = Console()
    console.width = max(console.width, 150)
    console.print(table)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({"machine": facts, "rows": rows}, indent=2) + "\n")
    print(f"written to {OUT}", file=sys.stderr)
    return 1 if any(row.get("met") is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
