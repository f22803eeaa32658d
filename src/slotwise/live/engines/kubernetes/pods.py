"""Pods as the scheduler sees them: what they demand and require, why some cannot be bound, how they ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from slotwise.live.engines.kubernetes.quantities import amounts, quantities
from slotwise.live.engines.kubernetes.selectors import AFFINITY, Constraint, constraints, selects

Object = Mapping[str, Any]
ENDED = ("Succeeded", "Failed")
POD_LEVEL = ("cpu", "memory")  # with hugepages-*, what a request of the whole pod may name
# Volumes that any node can provide. A volume of another kind may exist on some nodes only, or be limited in number there.
FREE_VOLUMES = frozenset(
    ("emptyDir", "configMap", "secret", "projected", "downwardAPI", "hostPath", "nfs", "image", "gitRepo", "name")
)
VMI = "VirtualMachineInstance"
EXIT_FAILED = 1  # exit code of a pod that failed without one of its own
EXIT_DELETED = -15  # as of a process that SIGTERM ended


@dataclass(frozen=True)
class AntiAffinity:
    """A term by which a pod keeps other pods out of its topology domain."""

    topology: str
    selector: Mapping[str, Any] | None
    namespaces: frozenset[str] | None  # None: any namespace, since a selector of namespaces is not evaluated

    def excludes(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether a pod with these labels is kept out."""
        return (self.namespaces is None or namespace in self.namespaces) and selects(self.selector, labels)


@dataclass(frozen=True)
class Pod:
    """What is kept of a pod."""

    uid: str
    namespace: str
    name: str
    scheduler: str
    node: str
    phase: str
    deleting: bool
    gates: tuple[str, ...]
    priority: int
    created: float
    started: float | None
    exit_code: int
    reason: str  # why it ended, in the words of its status
    demand: Mapping[str, Decimal]
    constraints: tuple[Constraint, ...] = ()
    unsupported: tuple[str, ...] = ()
    labels: Mapping[str, str] | None = None  # kept for pods that wait
    keeps_out: tuple[AntiAffinity, ...] = ()
    vmi: str = ""  # name of the virtual machine that it runs
    told: str = ""  # message of its condition PodScheduled=False

    @property
    def full_name(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def ended(self) -> bool:
        """Return whether its containers have ended for good."""
        return self.phase in ENDED

    @property
    def holds(self) -> bool:
        """Return whether it holds capacity of its node."""
        return bool(self.node) and not self.ended


def read_pod(pod: Object, scheduler: str) -> Pod:
    """Return what is kept of a pod. Constraints are read only for pods of this scheduler that wait."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    node = spec.get("nodeName") or ""
    waits = not node and spec.get("schedulerName") == scheduler
    phase = status.get("phase") or "Pending"
    code, reason = how_ended(status) if phase in ENDED else (0, "")
    return Pod(
        uid=meta["uid"],
        namespace=meta.get("namespace") or "default",
        name=meta["name"],
        scheduler=spec.get("schedulerName") or "",
        node=node,
        phase=phase,
        deleting=bool(meta.get("deletionTimestamp")),
        gates=tuple(one["name"] for one in spec.get("schedulingGates") or ()),
        priority=spec.get("priority") or 0,
        created=seconds(meta.get("creationTimestamp")) or 0.0,
        started=seconds(status.get("startTime")) if phase != "Pending" else None,
        exit_code=code,
        reason=reason,
        demand=demand(spec, status),
        constraints=constraints(spec) if waits else (),
        unsupported=tuple(unsupported(spec)) if waits else (),
        labels=meta.get("labels") or {} if waits else None,
        keeps_out=tuple(anti_affinity(meta, spec)) if node else (),
        vmi=virtual_machine(meta),
        told=condition_message(status) if waits else "",
    )


def seconds(time: str | None) -> float | None:
    """Return a time of Kubernetes as seconds since 1970."""
    return None if not time else datetime.fromisoformat(time).timestamp()


# -- demand ------------------------------------------------------------------------------------------------------------


def demand(spec: Object, status: Object) -> dict[str, Decimal]:
    """Return what a pod holds of each resource of its node, in the units of the scheduler.

    The sum over its containers and sidecars, or the most that its init containers need at a time, whichever is more; then its overhead.
    A request of the whole pod replaces that sum. A container that is being resized counts with the larger size.
    """
    now = {one["name"]: one for one in status.get("containerStatuses") or ()}
    early = {one["name"]: one for one in status.get("initContainerStatuses") or ()}
    total: dict[str, Decimal] = {}
    for one in spec.get("containers") or ():
        add(total, request(one, now.get(one["name"])))
    peak: dict[str, Decimal] = {}
    sidecars: dict[str, Decimal] = {}
    for one in spec.get("initContainers") or ():
        wanted = request(one, early.get(one["name"]))
        if one.get("restartPolicy") == "Always":
            add(sidecars, wanted)
            wanted = dict(sidecars)
        else:
            add(wanted, sidecars)
        for name, value in wanted.items():
            peak[name] = max(peak.get(name, Decimal(0)), value)
    add(total, sidecars)
    for name, value in peak.items():
        total[name] = max(total.get(name, Decimal(0)), value)
    for name, value in quantities((spec.get("resources") or {}).get("requests")).items():
        if name in POD_LEVEL or name.startswith("hugepages-"):
            total[name] = value
    add(total, quantities(spec.get("overhead")))
    found = {name: value for name, value in amounts(total, up=True).items() if value}
    return {**found, "pods": Decimal(1)}


def request(container: Object, status: Object | None) -> dict[str, Decimal]:
    """Return what a container requests, or has been allocated where that is more."""
    wanted = quantities((container.get("resources") or {}).get("requests"))
    if status is not None:
        for held in (status.get("allocatedResources"), (status.get("resources") or {}).get("requests")):
            for name, value in quantities(held).items():
                wanted[name] = max(wanted.get(name, Decimal(0)), value)
    return wanted


def add(total: dict[str, Decimal], more: Mapping[str, Decimal]) -> None:
    """Add amounts to a total."""
    for name, value in more.items():
        total[name] = total.get(name, Decimal(0)) + value


# -- virtual machines of KubeVirt --------------------------------------------------------------------------------------


def virtual_machine(meta: Object) -> str:
    """Return the name of the virtual machine instance that a pod runs; "" for other pods."""
    for owner in meta.get("ownerReferences") or ():
        if owner.get("kind") == VMI and str(owner.get("apiVersion", "")).startswith("kubevirt.io/"):
            return str(owner["name"])
    return ""


def machine_size(machine: Object) -> dict[str, Decimal]:
    """Return the CPUs and the memory that a virtual machine instance has, in the units of the scheduler."""
    domain = (machine.get("spec") or {}).get("domain") or {}
    cpu, memory = domain.get("cpu") or {}, domain.get("memory") or {}
    resources = domain.get("resources") or {}
    found: dict[str, Decimal] = {}
    if any(name in cpu for name in ("cores", "sockets", "threads")):
        found["cpu"] = Decimal(cpu.get("cores") or 1) * (cpu.get("sockets") or 1) * (cpu.get("threads") or 1)
    stated = [quantities(resources.get(kind)) for kind in ("requests", "limits")]
    for name in ("cpu", "memory"):
        for one in stated:
            if name in one:
                found[name] = max(found.get(name, Decimal(0)), one[name])
    if memory.get("guest"):
        found["memory"] = max(found.get("memory", Decimal(0)), quantities({"guest": memory["guest"]})["guest"])
    return amounts(found, up=True)


# -- what cannot be honoured -------------------------------------------------------------------------------------------


def unsupported(spec: Object) -> Iterator[str]:
    """Yield what a pod demands that the scheduler cannot honour. Such a pod is not bound."""
    affinity = spec.get("affinity") or {}
    if (affinity.get("podAffinity") or {}).get(AFFINITY):
        yield "it has required pod affinity"
    if (affinity.get("podAntiAffinity") or {}).get(AFFINITY):
        yield "it has required pod anti-affinity"
    for one in spec.get("topologySpreadConstraints") or ():
        if one.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule":
            yield f"it has a topology spread constraint over {one.get('topologyKey')} with DoNotSchedule"
    for volume in spec.get("volumes") or ():
        for kind in sorted(set(volume) - FREE_VOLUMES):
            yield f"its volume {volume['name']} is of kind {kind}, which may exist on some nodes only"
    if spec.get("resourceClaims"):
        yield "it has resource claims (devices)"
    for name in ("workloadRef", "schedulingGroup"):
        if spec.get(name):
            yield f"it belongs to a group of pods ({name})"
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        ports = [one["hostPort"] for one in container.get("ports") or () if one.get("hostPort")]
        if ports:
            yield f"container {container['name']} uses host port {ports[0]}"


def anti_affinity(meta: Object, spec: Object) -> Iterator[AntiAffinity]:
    """Yield the terms by which a pod on a node keeps other pods out."""
    for term in ((spec.get("affinity") or {}).get("podAntiAffinity") or {}).get(AFFINITY) or ():
        named = term.get("namespaces") or ()
        anywhere = term.get("namespaceSelector") is not None
        spaces = None if anywhere else frozenset(named or (meta.get("namespace") or "default",))
        yield AntiAffinity(term.get("topologyKey") or "", term.get("labelSelector"), spaces)


# -- how it ended ------------------------------------------------------------------------------------------------------


def how_ended(status: Object) -> tuple[int, str]:
    """Return the exit code and the reason of a pod that has ended: of the first container that failed, if any did."""
    for one in status.get("containerStatuses") or ():
        end = (one.get("state") or {}).get("terminated") or {}
        if end.get("exitCode"):
            return int(end["exitCode"]), f"container {one['name']}: {end.get('reason') or 'Error'}"
    if status.get("phase") == "Failed":
        return EXIT_FAILED, ": ".join(filter(None, (status.get("reason"), status.get("message"))))
    return 0, ""


def condition_message(status: Object) -> str:
    """Return the message of the condition PodScheduled=False."""
    for one in status.get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            return str(one.get("message") or "")
    return ""
