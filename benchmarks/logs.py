"""Real logs with their exact sizes, as files that every version of the package reads: without users' estimates, which earlier ones do not know."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHARED = (
    ROOT.parent / "shared" / "traces"
)  # what else knows this place imports more of the package than earlier versions have
LOADS = {"kth": 0.688, "nasa": 0.4665, "ceritsc2013": 0.85}  # over the whole log; the first two as they are


def names() -> list[str]:
    """The logs, where they are beside the project."""
    return list(LOADS) if SHARED.exists() else []


def prepare(name: str) -> None:
    """Write the log's scenario to build/."""
    from benchmarks.policies.families import cloud, log
    from slotwise.workloads.traces import read_trace, write_trace

    scenario = (cloud if name == "ceritsc2013" else log)(name, LOADS[name], "exact")
    place = path_of(name)
    place.parent.mkdir(exist_ok=True)
    trace = place.with_suffix(".parquet")
    told = read_trace(scenario.workload.trace)
    write_trace(replace(told, frame=told.frame.drop("estimate", strict=False)), trace)
    document = {
        "name": name,
        "cluster": scenario.cluster.model_dump(mode="json", exclude_defaults=True),
        "workload": {"trace": str(trace), "typing": {"method": "exact"}},
        "run": {"warmup": 0.25, "seed": 1, "replications": 1},
    }
    place.write_text(json.dumps(document))


def path_of(name: str) -> Path:
    """Where `prepare` puts it."""
    return ROOT / "build" / f"log-{name}.json"
