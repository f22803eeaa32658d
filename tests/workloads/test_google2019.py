"""The Google trace of 2019: instance events as JSON, CSV and Parquet, with owners and machines, and bad lines in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from textfiles import write

from slotwise.errors import InputError
from slotwise.workloads.traces import import_trace

INSTANCES = [
    {"time": "1000000", "type": "0", "collection_id": "7", "instance_index": "0", "priority": "103",
     "collection_type": "0", "resource_request": {"cpus": 0.25, "memory": 0.125}},
    {"time": "1000000", "type": "1", "collection_id": "7", "instance_index": "0", "priority": "103",
     "resource_request": {"cpus": 0.25, "memory": 0.125}},
    {"time": "2000000", "type": "3", "collection_id": "7", "instance_index": "0", "priority": "103",
     "resource_request": {"cpus": 0.25, "memory": 0.125}},
    {"time": "6000000", "type": "6", "collection_id": "7", "instance_index": "0", "priority": "103",
     "resource_request": {"cpus": 0.25, "memory": 0.125}},
    {"time": "3000000", "type": "0", "collection_id": "8", "instance_index": "1", "priority": "0",
     "resource_request": {"cpus": 0.5, "memory": 0.25}},
    {"time": "3500000", "type": "3", "collection_id": "8", "instance_index": "1", "priority": "0",
     "resource_request": {"cpus": 0.5, "memory": 0.25}},
    {"time": "4000000", "type": "4", "collection_id": "8", "instance_index": "1", "priority": "0",
     "resource_request": {"cpus": 0.5, "memory": 0.25}},
    {"time": "1000000", "type": "0", "collection_id": "9", "instance_index": "0", "priority": "0",
     "collection_type": "1", "resource_request": {"cpus": 0.5, "memory": 0.25}},
]  # fmt: skip


def flat(record: dict[str, Any]) -> dict[str, Any]:
    rest = {k: int(v) for k, v in record.items() if k not in ("resource_request", "collection_type")}
    kind = int(record.get("collection_type", 0))
    return {
        **rest,
        "collection_type": kind,
        **{f"resource_request.{k}": v for k, v in record["resource_request"].items()},
    }


def google2019(folder: Path, kind: str) -> list[Path]:
    if kind == "json":
        # In two shards of no order.
        first = write(folder / "instance_events-00.json.gz", [json.dumps(r) for r in INSTANCES[::-2]])
        second = write(folder / "instance_events-01.json", [json.dumps(r) for r in INSTANCES[-2::-2]])
        return [first, second]
    frame = pl.DataFrame([flat(r) for r in INSTANCES])
    if kind == "csv":
        frame.write_csv(folder / "instance_events.csv")
        return [folder / "instance_events.csv"]
    nested = frame.with_columns(
        pl.struct(cpus="resource_request.cpus", memory="resource_request.memory").alias("resource_request")
    ).drop("resource_request.cpus", "resource_request.memory")
    nested.write_parquet(folder / "instance_events.parquet")
    return [folder / "instance_events.parquet"]


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_google2019(kind: str, tmp_path: Path) -> None:
    paths = google2019(tmp_path, kind)
    trace, report = import_trace("google2019", paths)
    assert (trace.arrival.tolist(), trace.duration.tolist()) == ([0.0], [4.0])
    assert trace.demands().tolist() == [[0.25, 0.125]]
    assert trace.meta.origin == 1.0
    assert report.left_out == {"events of alloc sets": 1, "tasks interrupted (evicted, failed, killed, lost)": 1}
    kept, _ = import_trace("google2019", paths, interrupted="keep")
    assert kept.frame["censored"].to_list() == [False, True]
    assert kept.duration.tolist() == [4.0, 0.5]


def test_google2019_with_owners_and_machines(tmp_path: Path) -> None:
    google2019(tmp_path, "json")
    write(tmp_path / "collection_events-00.json", [json.dumps({"time": "0", "collection_id": "7", "user": "u7"})])
    machines = [(0, 1, 1, 0.5, 0.25), (0, 2, "ADD", 0.5, 0.25), (0, 3, 1, 1.0, 1.0), (5, 3, 2, None, None)]
    rows = [
        {"time": t, "machine_id": m, "type": k, "capacity": {"cpus": c, "memory": y}} for t, m, k, c, y in machines
    ]
    write(tmp_path / "machine_events-00.json", [json.dumps(row) for row in rows])
    trace, _ = import_trace("google2019", [tmp_path])
    assert trace.frame["tenant"].to_list() == ["u7"]
    assert [(s.count, s.capacity) for s in trace.meta.servers] == [(2, (0.5, 0.25)), (1, (1.0, 1.0))]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{broken", r"-01\.json:1: broken JSON"),
        ("[1]", r":1: broken JSON \(the line is no object\)"),
        (json.dumps({**INSTANCES[0], "time": "soon"}), r":1: text in a number \(column 'time' holds 'soon'\)"),
        (json.dumps({**INSTANCES[0], "collection_id": None}), r":1: missing value \(column 'job' is empty\)"),
        (json.dumps({**INSTANCES[0], "type": "77"}), r":1: unknown event type"),
    ],
)
def test_google2019_bad_lines(line: str, message: str, tmp_path: Path) -> None:
    _, other = google2019(tmp_path, "json")
    other.write_text(f"{line}\n{other.read_text()}")
    with pytest.raises(InputError, match=message):
        import_trace("google2019", [tmp_path])
    trace, report = import_trace("google2019", [tmp_path], skip_bad=True)
    assert sum(report.skipped.values()) == 1
    assert len(trace) == 1
