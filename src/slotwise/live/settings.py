"""From a TOML file, or from what the engine finds, to a service: which servers, types and policy it begins with."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from slotwise.errors import InputError
from slotwise.live.engines.local import LocalEngine
from slotwise.live.engines.machine import Machine
from slotwise.live.engines.protocol import Engine, ServerUp
from slotwise.live.engines.simulated import SimulatedEngine, exponential
from slotwise.live.restart import Setup
from slotwise.model import Cluster, JobType, Scenario, ServerClass, load_scenario
from slotwise.model.reader import parse_scenario, parse_toml

ENGINES = ("local", "simulated", "slurm", "kubernetes", "libvirt")


class Ready(NamedTuple):
    """An engine and what the core begins with."""

    engine: Engine
    setup: Setup


def read_cluster(source: str) -> Scenario:
    """Return the cluster of a file, or of a shipped scenario."""
    try:
        text = Path(source).read_text("utf-8")
    except (OSError, ValueError):
        return load_scenario(source)  # a shipped name; or a mistake, which is told there
    return parse_cluster(text, where=source)


def parse_cluster(text: str, *, where: str = "cluster file") -> Scenario:
    """Return the cluster of a text. It is a scenario that need not say what arrives, since that is seen, nor which types there are, since they are made."""
    return scenario_of(parse_toml(text, where=where), where=where)


def scenario_of(tables: dict[str, Any], *, where: str) -> Scenario:
    """Return the scenario of tables, filled up with what the live service does not need to be told."""
    tables.pop("hooks", None)  # `slotwise serve` reads them when it starts
    tables.setdefault("run", {"events": 1000})
    types = tables.get("types")
    for one in types if isinstance(types, list) else []:
        if isinstance(one, dict):
            one.setdefault("rate", 1)
    if not types and "workload" not in tables:
        with suppress(ValidationError):  # a mistake in the cluster, which is told below
            first = smallest_type(Cluster.model_validate(tables.get("cluster")))
            tables["types"] = [{"name": first.name, "demand": list(first.demand), "rate": 1}]
    tables.setdefault("name", Path(where).stem)
    return parse_scenario(tables, where=where)


def servers_of(cluster: Cluster) -> list[ServerUp]:
    """One after the other, named class-0, class-1, ..."""
    return [
        ServerUp(
            f"{one.name}-{n}",
            dict(zip(cluster.resources, map(float, one.capacity), strict=True)),
            one.labels,
            one.name,
        )
        for one in cluster.servers
        for n in range(one.count)
    ]


def this_machine(machine: Machine) -> tuple[Cluster, list[ServerUp]]:
    """This machine as a cluster of one server."""
    capacity = machine.capacity()
    name = socket.gethostname().split(".")[0] or "local"
    kind = ServerClass(name=name, count=1, capacity=tuple(Decimal(str(x)) for x in capacity.values()))
    return Cluster(resources=tuple(capacity), servers=(kind,)), [ServerUp(name, capacity, {}, name)]


def smallest_type(cluster: Cluster) -> JobType:
    """What a job is that asks for nothing special: one CPU, or one of the first resource."""
    which = cluster.resources.index("cpu") if "cpu" in cluster.resources else 0
    most = max(one.capacity[which] for one in cluster.servers)
    name = cluster.resources[which]
    amount = min(Decimal(1), most)
    demand = tuple(amount if r == which else Decimal(0) for r in range(len(cluster.resources)))
    return JobType(name=f"{name}{amount:f}", demand=demand)


def prepare(
    source: str | None,
    engine: str,
    folder: Path,
    *,
    speed: float = 1.0,
    slurm: Mapping[str, Any] | None = None,
    kubernetes: Mapping[str, Any] | None = None,
    store: str = "",
    outputs: Mapping[str, Any] | None = None,
) -> Ready:
    """Read the cluster and make the engine; `folder` is where engines keep what they need, `store` the store's identity."""
    if engine not in ENGINES:
        raise InputError(
            f"no engine is called {engine!r}", where="--engine", remedy=f"use one of: {', '.join(ENGINES)}"
        )
    if engine == "libvirt":
        return machines_of(source, folder / "libvirt", store)
    scenario = read_cluster(source) if source is not None else None
    if engine == "local" and sys.platform != "linux":
        raise InputError(
            f"needs Linux, and this is {sys.platform}",
            where="--local",
            remedy="use --engine simulated, or run the service on Linux; clients work on both",
        )
    if engine == "local":
        machine = Machine.found()
        if scenario is None:
            cluster, servers = this_machine(machine)
        else:
            cluster, servers = scenario.cluster, servers_of(scenario.cluster)
        return Ready(
            LocalEngine(
                folder / "local",
                {one.name: one for one in servers},
                machine=machine,
                runs_as_submitter=os.geteuid() == 0,
                **(outputs or {}),
            ),
            setup_of(cluster, scenario),
        )
    if engine == "slurm":
        from slotwise.live.engines.slurm import SlurmEngine

        found = SlurmEngine(folder / "slurm", **(slurm or {}))
        return Ready(found, setup_of(cluster_from(found.shape()), scenario))
    if engine == "kubernetes":
        from slotwise.live.engines.kubernetes.engine import KubernetesEngine

        nodes = KubernetesEngine(folder / "kubernetes", **(kubernetes or {}))
        return Ready(nodes, setup_of(nodes.cluster(), scenario))
    if scenario is None:
        raise InputError(
            "is missing", where="CLUSTER.toml", remedy="the simulated engine needs a cluster to simulate"
        )
    means = {one.name: one.mean_service for one in scenario.types}
    simulated = SimulatedEngine(
        servers_of(scenario.cluster), exponential(scenario.run.seed, means), speed=speed, world=folder / "world"
    )
    return Ready(simulated, setup_of(scenario.cluster, scenario))


def machines_of(source: str | None, folder: Path, store: str) -> Ready:
    """Return the engine for the hosts of a file. Its other tables may name types and a policy; the cluster is what the hosts are."""
    from slotwise.live.engines.libvirt.engine import LibvirtEngine
    from slotwise.live.engines.libvirt.hosts import read_hosts

    hosts, tables = read_hosts(source)
    engine = LibvirtEngine(folder, hosts, store)
    cluster = engine.cluster()
    if not tables:
        return Ready(engine, setup_of(cluster, None))
    rows = [{**one.model_dump(), "capacity": list(map(str, one.capacity))} for one in cluster.servers]
    tables["cluster"] = {"resources": list(cluster.resources), "servers": rows}
    return Ready(engine, setup_of(cluster, scenario_of(tables, where=str(source))))


def setup_of(cluster: Cluster, scenario: Scenario | None) -> Setup:
    """Types and policy of the scenario; without one, a type for jobs that ask for nothing special."""
    if scenario is None:
        return Setup(cluster, (smallest_type(cluster),))
    types = scenario.types or (smallest_type(cluster),)
    policy = scenario.policy
    return Setup(cluster, types, policy.name, policy.options, scenario.run.seed, scenario.shares, scenario.quotas)


def cluster_from(servers: list[ServerUp]) -> Cluster:
    """Classes of servers that are alike."""
    resources = list(dict.fromkeys(name for one in servers for name in one.capacity))
    classes: dict[str, ServerClass] = {}
    for one in servers:
        if one.server_class not in classes:
            capacity = tuple(Decimal(str(one.capacity.get(name, 0))) for name in resources)
            classes[one.server_class] = ServerClass(
                name=one.server_class, count=1, capacity=capacity, labels=dict(one.labels)
            )
    if not classes:
        raise InputError("has no servers", where="engine", remedy="see whether it runs and has nodes")
    return Cluster(resources=tuple(resources), servers=tuple(classes.values()))
