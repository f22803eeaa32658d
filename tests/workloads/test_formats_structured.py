"""Formats that are no text tables, databases and JSON: a small file of our own making, what it must become, what bad rows say."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from slotwise.errors import InputError
from slotwise.workloads.traces import import_trace
from slotwise.workloads.traces.kubernetes import quantity, requests_of

GIB = 2.0**30


def packing(path: Path, vms: list[tuple[Any, ...]]) -> Path:
    base = sqlite3.connect(path)
    base.execute("create table vm (vmId, tenantId, vmTypeId, priority, starttime, endtime)")
    base.execute("create table vmType (id, vmTypeId, machineId, core, memory, hdd, ssd, nic)")
    base.executemany("insert into vm values (?, ?, ?, ?, ?, ?)", vms)
    kinds = [
        (0, 1, 16, 0.5, 0.25, None, 0.1, 0.0),
        (1, 1, 17, 0.25, 0.125, None, 0.1, 0.0),
        (2, 2, 17, 1, 1, None, 0.0, 0.0),
    ]
    base.executemany("insert into vmType values (?, ?, ?, ?, ?, ?, ?, ?)", kinds)
    base.commit()
    base.close()
    return path


VMS_PACKING = [
    (10, 5, 1, 0, 0.5, 1.5),
    (11, 5, 2, 1, 0.25, None),
    (12, 6, 1, 1, -2.0, 1.0),
    (13, 6, 1, 1, 1.0, 2.0),
]


def test_azure_packing(tmp_path: Path) -> None:
    path = packing(tmp_path / "trace.sqlite", VMS_PACKING)
    trace, _ = import_trace("azure-packing", [path])  # machine 17 can host all of them
    assert trace.meta.resources == ("core", "memory", "ssd")
    assert trace.frame["id"].to_list() == ["12", "11", "10", "13"]
    assert trace.frame["censored"].to_list() == [True, True, False, False]
    assert trace.demands()[2].tolist() == [0.25, 0.125, 0.1]
    assert trace.frame["priority"].to_list() == [0, 0, 1, 0]  # larger is more urgent
    assert (trace.arrival[2], trace.duration[2]) == (2.5 * 86_400, 86_400.0)
    other, report = import_trace("azure-packing", [path], options={"machine": "16"}, interrupted="drop")
    assert (len(other), report.left_out["VMs that machine 16 cannot host"]) == (2, 1)
    with pytest.raises(InputError, match="no machine '99'"):
        import_trace("azure-packing", [path], options={"machine": "99"})


@pytest.mark.parametrize(
    ("vm", "message"),
    [
        ((10, 5, 1, 0, 1.5, 2.5), "duplicate id in vm"),
        ((20, 5, 1, 0, 1.5, 0.5), "finish before start"),
        ((20, 5, 1, 0, None, 0.5), "missing value"),
    ],
)
def test_azure_packing_bad_rows(vm: tuple[Any, ...], message: str, tmp_path: Path) -> None:
    path = packing(tmp_path / "trace.sqlite", [*VMS_PACKING, vm])
    with pytest.raises(InputError, match=rf"row of table vm\):5: {message}"):
        import_trace("azure-packing", [path])
    trace, report = import_trace("azure-packing", [path], skip_bad=True)
    assert (len(trace), sum(report.skipped.values())) == (4, 1)


def test_azure_packing_needs_its_tables(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite").write_text("this is no database, it only looks like a file")
    with pytest.raises(InputError, match="is not the packing trace"):
        import_trace("azure-packing", [tmp_path / "x.sqlite"])


def pod(name: str, **changes: Any) -> dict[str, Any]:
    item: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "web", "uid": name, "creationTimestamp": "2024-01-01T00:00:00Z"},
        "spec": {"priority": 7, "containers": [{"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}] * 2},
        "status": {
            "phase": "Succeeded",
            "startTime": "2024-01-01T00:00:10Z",
            "containerStatuses": [{"state": {"terminated": {"finishedAt": "2024-01-01T00:01:10Z"}}}],
        },
    }
    for path, value in changes.items():
        part, _, key = path.partition("__")
        item[part][key] = value
    return item


NODE = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "3920m", "memory": "15Gi"}}}


def pods(path: Path, items: list[Any]) -> Path:
    path.write_text(json.dumps({"kind": "List", "items": items}))
    return path


def test_kubernetes(tmp_path: Path) -> None:
    waiting = pod("c", status__phase="Pending", status__startTime=None)
    running = pod(
        "b", status__phase="Running", status__containerStatuses=[], status__startTime="2024-01-01T00:00:30Z"
    )
    trace, report = import_trace(
        "kubernetes", [pods(tmp_path / "pods.json", [pod("a"), running, waiting, NODE, NODE])]
    )
    assert trace.demands().tolist() == [[1.0, 2.0], [1.0, 2.0]]
    assert trace.duration.tolist() == [60.0, 40.0]
    assert trace.frame["censored"].to_list() == [False, True]
    assert trace.frame["id"].to_list() == ["web/a", "web/b"]
    assert [(s.count, s.capacity) for s in trace.meta.servers] == [(2, (3.92, 15.0))]
    assert report.left_out == {"pods that never started": 1}
    later, _ = import_trace("kubernetes", [tmp_path / "pods.json"], options={"now": "2024-01-01T01:00:30Z"})
    assert later.duration.tolist() == [60.0, 3600.0]


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        (pod("z", spec__containers=[{"resources": {"requests": {"cpu": "half"}}}]), "text in a number or time"),
        (pod("z", metadata__creationTimestamp="today"), "text in a number or time"),
        (pod("z", status__startTime="2024-01-01T02:00:00Z"), "finish before start"),
        (pod("a"), "duplicate id in uid"),
        ({"spec": {}}, "not a pod"),
        ("just text", "not a pod"),
    ],
)
def test_kubernetes_bad_pods(item: Any, kind: str, tmp_path: Path) -> None:
    path = pods(tmp_path / "pods.json", [pod("a"), item])
    with pytest.raises(InputError, match=rf"pods\.json: items\[1\]: {kind}"):
        import_trace("kubernetes", [path])
    trace, report = import_trace("kubernetes", [path], skip_bad=True)
    assert (len(trace), report.skipped) == (1, {kind: 1})


def test_kubernetes_needs_json(tmp_path: Path) -> None:
    (tmp_path / "pods.json").write_text('{"items": [\n{]}')
    with pytest.raises(InputError, match=r"pods\.json:2: is not JSON"):
        import_trace("kubernetes", [tmp_path / "pods.json"])


def test_kubernetes_quantities_and_requests() -> None:
    assert [quantity(q) for q in ("2", "250m", "1Ki", "1.5Gi", "2e3", 3, "5M")] == [
        2,
        0.25,
        1024,
        1.5 * GIB,
        2000,
        3,
        5e6,
    ]
    ask = [{"resources": {"requests": {"cpu": c}}} for c in ("1", "2", "8")]
    # Containers together ask for 3; the init container for 8 alone; a sidecar beside both.
    assert requests_of({"containers": ask[:2], "initContainers": ask[2:]}) == {"cpu": 8.0}
    assert requests_of({"containers": ask[:2], "overhead": {"cpu": "500m"}}) == {"cpu": 3.5}
    sidecar = {**ask[0], "restartPolicy": "Always"}
    assert requests_of({"containers": ask[:2], "initContainers": [sidecar, ask[2]]}) == {"cpu": 9.0}
