"""What a service has seen, as a scenario: its jobs as a trace, its servers as a cluster, for `slotwise compare --journal`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from slotwise.errors import InputError
from slotwise.live.store import existing_store
from slotwise.live.store.backup import save
from slotwise.model import Scenario, parse_scenario
from slotwise.workloads.traces import import_trace, write_trace

FILE = "sqlite:///"


def scenario_of(source: str, folder: Path) -> Scenario:
    """Return a scenario of the journal of a store: a URL, a SQLite file, or a file of `slotwise backup`. Its trace is written to the folder."""
    if source.startswith(("postgresql://", "postgres://")):
        path = folder / "journal.gz"
        with closing(existing_store(source)) as store:
            save(store, path)
    else:
        path = Path(source.removeprefix(FILE))
    if not path.is_file():
        raise InputError("is not there", where=str(path), remedy="give a store of `slotwise serve`, or a backup")
    trace, _ = import_trace("journal", [path])
    if len(trace) < 2:
        raise InputError(
            f"has {len(trace)} jobs that have come to their end", where=str(path), remedy="2 or more are needed"
        )
    if not trace.meta.servers:
        raise InputError("has no servers", where=str(path), remedy="give a store whose service had some")
    file = folder / "journal.parquet"
    write_trace(trace, file)
    return parse_scenario(
        {
            "name": path.stem,
            "time_unit": "s",
            "cluster": {
                "resources": list(trace.resources),
                "servers": [
                    {"name": one.name, "count": one.count, "capacity": [str(x) for x in one.capacity]}
                    for one in trace.meta.servers
                ],
            },
            "workload": {"trace": str(file), "typing": {"too_large": "drop"}},
            "run": {"warmup": 0.0, "replications": 1},
        }
    )
