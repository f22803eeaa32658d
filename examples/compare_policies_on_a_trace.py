"""Compare policies on a trace: one is generated here; put the path of your own in its place."""

from __future__ import annotations

from pathlib import Path

import slotwise
from slotwise.workloads.generators import PROFILES
from slotwise.workloads.profiles import generate
from slotwise.workloads.traces import write_trace

SCENARIO = """
[cluster]
resources = ["cpu", "memory"]
servers = [{ name = "machine", count = 200, capacity = [1, 1] }]

[workload]
trace = "jobs.parquet"
time_scale = 60

[run]
jobs = 20_000
replications = 1
"""


def main() -> None:
    write_trace(generate(PROFILES["google-like"], 20_000, 1), Path("jobs.parquet"))
    Path("traced.toml").write_text(SCENARIO)
    comparison = slotwise.compare("traced.toml", ["best-fit", "first-fit", "algorithm1"])
    print(comparison)
    print(f"least queue: {comparison.best.policy}")


if __name__ == "__main__":
    main()
