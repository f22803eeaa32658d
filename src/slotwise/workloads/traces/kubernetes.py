"""A pod list from Kubernetes: `kubectl get pods --all-namespaces -o json` (and, for the servers, `kubectl get
nodes`).

A pod asks for what its containers request together or its largest init container does, whichever is more, plus its
overhead. It arrives when it was created and runs from `status.startTime` until its last container finished; one
that still runs is censored at the newest moment in the files (or the option `now`, an ISO time). A pod that never
started is left out. Lines do not mean much in this JSON, so a bad pod is told by its place in the list.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from slotwise.errors import InputError
from slotwise.workloads.traces.importing import Format, Intake, Reading
from slotwise.workloads.traces.schema import DEMAND, Servers, TraceMeta
from slotwise.workloads.traces.tables import blocks

SUFFIX = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
    "Ei": 2.0**60,
}
GIB = 2.0**30
QUANTITY = re.compile(r"^\+?((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)$")
BYTES = ("memory", "ephemeral-storage")


def quantity(text: object) -> float:
    """Return a Kubernetes quantity (`500m`, `1.5Gi`, `2e3`) as a number; ValueError where it is none."""
    found = QUANTITY.match(str(text).strip())
    if not found or found[2] not in SUFFIX:
        raise ValueError(f"{text!r} is no quantity")
    value = float(found[1]) * SUFFIX[found[2]]
    if value == math.inf:
        raise ValueError(f"{text!r} is too large")
    return value


def _resource(name: str) -> str:
    """Return our name of a resource: `nvidia.com/gpu` is just gpu."""
    return name.rsplit("/", 1)[-1]


def _amounts(requests: dict[str, Any] | None) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, text in (requests or {}).items():
        value = quantity(text)
        found[_resource(name)] += value / GIB if name in BYTES else value  # type: ignore[assignment]
    return found


def requests_of(spec: dict[str, Any]) -> dict[str, float]:
    """Return what the scheduler reserves for a pod: max(containers and sidecars together, each init step), plus
    overhead.
    """
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for step in spec.get("initContainers") or []:
        asked = _amounts((step.get("resources") or {}).get("requests"))
        if step.get("restartPolicy") == "Always":  # a sidecar: it stays while all that follows runs
            running.update(asked)
            most |= running
        else:
            most |= running + asked
    for container in spec.get("containers") or []:
        running.update(_amounts((container.get("resources") or {}).get("requests")))
    total = (running | most) + _amounts(spec.get("overhead"))
    return {name: float(value) for name, value in total.items()}


def _moment(text: str | None) -> float | None:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else None


def _end(status: dict[str, Any]) -> float | None:
    ends = []
    for container in status.get("containerStatuses") or []:
        finished = ((container.get("state") or {}).get("terminated") or {}).get("finishedAt")
        if finished:
            ends.append(_moment(finished) or 0.0)
    return max(ends) if ends and status.get("phase") in ("Succeeded", "Failed") else None


def _items(intake: Intake, path: Path) -> list[dict[str, Any]]:
    text = b"".join(block for _, block in blocks(path, intake.bad, intake.advance))
    try:
        raw = json.loads(text)
    except ValueError as problem:
        line = getattr(problem, "lineno", None)
        raise InputError(
            f"is not JSON ({problem})",
            where=f"{path}:{line}" if line else str(path),
            remedy="write it with kubectl get pods --all-namespaces -o json",
        ) from problem
    items = raw.get("items", [raw]) if isinstance(raw, dict) else None
    if not isinstance(items, list):
        raise InputError("is no list of pods", where=str(path), remedy="it should have `items`")
    return items


def _pod(item: dict[str, Any]) -> dict[str, Any]:
    meta, spec, status = item["metadata"], item["spec"], item.get("status") or {}
    priority = None if spec.get("priority") is None else int(spec["priority"])
    if priority is not None and abs(priority) >= 2**31:
        raise ValueError(f"a priority of {priority}")
    owner = (meta.get("ownerReferences") or [{}])[0].get("uid")
    return {
        "id": f"{meta.get('namespace', 'default')}/{meta['name']}",
        "uid": meta.get("uid") or f"{meta.get('namespace', 'default')}/{meta['name']}",
        "created": _moment(meta["creationTimestamp"]),
        "start": _moment(status.get("startTime")),
        "end": _end(status),
        "phase": status.get("phase", "Unknown"),
        "tenant": str(meta.get("namespace", "default")),
        "priority": priority,
        "owner": str(owner) if owner else None,
        "requests": requests_of(spec),
    }


def _pods(intake: Intake) -> tuple[list[dict[str, Any]], list[tuple[str, dict[str, float]]]]:
    pods: list[dict[str, Any]] = []
    nodes: list[tuple[str, dict[str, float]]] = []
    seen: set[str] = set()
    for path in intake.paths:
        for number, item in enumerate(_items(intake, path)):
            where = f"{path}: items[{number}]"
            try:
                if item.get("kind", "Pod") == "Node":
                    room = item["status"].get("allocatable") or item["status"]["capacity"]
                    nodes.append((item["metadata"]["name"], {k: float(v) for k, v in _amounts(room).items()}))
                    continue
                intake.rows += 1
                pod = _pod(item)
            except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as problem:
                wrong = isinstance(problem, (ValueError, OverflowError))
                kind = "text in a number or time" if wrong else "not a pod"
                detail = f"has no {problem}" if isinstance(problem, KeyError) else str(problem)
                intake.bad.found(kind, where, detail=detail)
                continue
            if pod["uid"] in seen:
                intake.bad.found("duplicate id in uid", where, detail=pod["id"])
            elif pod["start"] is None:
                intake.left_out["pods that never started"] += 1
            elif pod["end"] is not None and pod["end"] < pod["start"]:
                intake.bad.found("finish before start", where, detail=pod["id"])
            else:
                seen.add(pod["uid"])
                pods.append(pod)
    return pods, nodes


def _frame(intake: Intake, pods: list[dict[str, Any]], resources: tuple[str, ...]) -> Iterator[pl.DataFrame]:
    now = _moment(str(intake.options["now"])) if "now" in intake.options else None
    newest = max((moment for p in pods for moment in (p["created"], p["start"], p["end"]) if moment), default=0.0)
    end = now if now is not None else newest
    rows = []
    for pod in pods:
        whole = pod["end"] is not None and pod["phase"] == "Succeeded"
        if not whole and not intake.keep:
            intake.left_out["pods that failed or still ran"] += 1
            continue
        last = pod["end"] if pod["end"] is not None else end
        rows.append(
            {
                "arrival": pod["created"],
                "duration": max(last - pod["start"], 0.5),  # the clock's tick is a second
                **{DEMAND + name: pod["requests"].get(name, 0.0) for name in resources},
                # Pods of one owner are one batch; the number means nothing.
                "batch": zlib.crc32(pod["owner"].encode()) if pod["owner"] else None,
                "tenant": pod["tenant"],
                "priority": pod["priority"],
                "censored": not whole,
                "id": pod["id"],
            }
        )
    schema: dict[str, Any] = {
        "arrival": pl.Float64,
        "duration": pl.Float64,
        **{DEMAND + name: pl.Float64 for name in resources},
        "batch": pl.Int64,
        "tenant": pl.String,
        "priority": pl.Int32,
        "censored": pl.Boolean,
        "id": pl.String,
    }
    yield pl.DataFrame(rows, schema=schema)


def read(intake: Intake) -> Reading:
    pods, nodes = _pods(intake)
    asked = {name for pod in pods for name, value in pod["requests"].items() if value > 0}
    resources = tuple(name for name in ("cpu", "memory") if name in asked)
    resources = (*resources, *sorted(asked.difference(resources))) or ("cpu", "memory")
    counts = Counter(tuple(room.get(name, 0.0) for name in resources) for _, room in nodes)
    servers = tuple(Servers(f"node{i}", n, room) for i, (room, n) in enumerate(counts.most_common()))
    meta = TraceMeta(
        source="kubernetes",
        resources=resources,
        units={
            name: {"cpu": "core", "memory": "GiB", "ephemeral-storage": "GiB"}.get(name, "") for name in resources
        },
        servers=servers,
        clock="Unix time",
    )
    return Reading(meta, _frame(intake, pods, resources))


FORMAT = Format("kubernetes", "a pod list as JSON from kubectl (and a node list)", read, options=("now",))
