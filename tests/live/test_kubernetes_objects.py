"""Pods and nodes as JSON objects: demands, constraints, reasons not to bind, capacities. No server."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pytest

from slotwise.errors import InputError
from slotwise.live.engines.kubernetes.capacities import LEVELS, MOST, level_for, round_down, rounded
from slotwise.live.engines.kubernetes.mirror import MOST_REFERRED, Mirror
from slotwise.live.engines.kubernetes.nodes import read_node
from slotwise.live.engines.kubernetes.pods import Pod, demand, how_ended, machine_size, read_pod, unsupported
from slotwise.live.engines.kubernetes.quantities import amount, quantity
from slotwise.live.engines.kubernetes.selectors import (
    NodeFacts,
    constraints,
    labels_of,
    requires,
    selects,
    unmet,
)
from slotwise.model.labels import matches

GIB = 1024


def container(name: str = "c", **requests: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests}}


@pytest.mark.parametrize(
    ("text", "value"),
    [("100m", "0.1"), ("2", "2"), (3, "3"), ("1.5Gi", "1610612736"), ("1e3", "1000"), ("12E", "12e18"), ("128974848", "128974848"), (".5", "0.5")],
)  # fmt: skip
def test_quantities_are_exact(text: Any, value: str) -> None:
    assert quantity(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "1x", "Gi", "1 Gi", "--1", "1Kii"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no quantity"):
        quantity(text)


def test_demands_are_rounded_up_and_capacities_down() -> None:
    assert amount("cpu", quantity("1500u"), up=True) == Decimal("0.002")
    assert amount("memory", quantity("1G"), up=True) == 954
    assert amount("memory", quantity("1G"), up=False) == 953
    assert amount("nvidia.com/gpu", quantity("2"), up=True) == 2


def test_a_pod_holds_the_sum_of_its_containers_and_its_overhead() -> None:
    spec = {
        "containers": [container(cpu="1", memory="1Gi"), container("d", cpu="500m")],
        "overhead": {"cpu": "250m"},
    }
    assert demand(spec, {}) == {"cpu": Decimal("1.75"), "memory": GIB, "pods": 1}


def test_init_containers_count_with_their_peak_and_sidecars_always() -> None:
    sidecar = container("s", cpu="1") | {"restartPolicy": "Always"}
    spec = {
        "initContainers": [container("i", cpu="3"), sidecar, container("j", cpu="2500m")],
        "containers": [container(cpu="1")],
    }
    assert demand(spec, {})["cpu"] == Decimal("3.5")  # j beside the sidecar is the peak
    spec["containers"] = [container(cpu="4")]
    assert demand(spec, {})["cpu"] == 5


def test_a_request_of_the_whole_pod_replaces_the_sum() -> None:
    spec = {"containers": [container(cpu="1", memory="1Gi")], "resources": {"requests": {"cpu": "3"}}}
    assert demand(spec, {}) == {"cpu": 3, "memory": GIB, "pods": 1}


def test_a_container_that_is_being_resized_counts_with_the_larger_size() -> None:
    spec = {"containers": [container(cpu="1")]}
    status = {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "2"}}]}
    assert demand(spec, status)["cpu"] == 2


def test_a_virtual_machine_has_its_own_size() -> None:
    domain = {
        "cpu": {"cores": 2, "sockets": 2, "threads": 2},
        "memory": {"guest": "3Gi"},
        "resources": {"requests": {"memory": "1Gi"}},
    }
    assert machine_size({"spec": {"domain": domain}}) == {"cpu": 8, "memory": 3 * GIB}
    assert machine_size({}) == {}


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}}, "pod affinity"),
        (
            {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            "anti-affinity",
        ),
        ({"topologySpreadConstraints": [{"topologyKey": "zone"}]}, "topology spread"),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {}}]}, "persistentVolumeClaim"),
        ({"volumes": [{"name": "v", "ephemeral": {}}]}, "ephemeral"),
        ({"volumes": [{"name": "v", "csi": {}}]}, "csi"),
        ({"resourceClaims": [{"name": "gpu"}]}, "resource claims"),
        ({"workloadRef": {"name": "w"}}, "group of pods"),
        ({"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}, "host port 80"),
    ],
)
def test_what_cannot_be_honoured_has_a_reason(spec: dict[str, Any], reason: str) -> None:
    found = list(unsupported(spec))
    assert len(found) == 1
    assert reason in found[0]


def test_what_is_only_preferred_is_no_reason() -> None:
    spec = {
        "affinity": {
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]},
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]},
        },
        "topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {}}],
    }
    assert list(unsupported(spec)) == []


def test_the_first_container_that_failed_says_how_the_pod_ended() -> None:
    done = {"name": "a", "state": {"terminated": {"exitCode": 0}}}
    failed = {"name": "b", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    assert how_ended({"phase": "Failed", "containerStatuses": [done, failed]}) == (137, "container b: OOMKilled")
    assert how_ended({"phase": "Failed", "reason": "Evicted", "message": "disk"}) == (1, "Evicted: disk")
    assert how_ended({"phase": "Succeeded", "containerStatuses": [done]}) == (0, "")


# -- constraints -------------------------------------------------------------------------------------------------------


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def may_run(spec: dict[str, Any], node: NodeFacts) -> bool:
    """Whether a pod may run on a node, by the labels and requirements that the scheduler gets."""
    found = constraints(spec)
    by_labels = matches(requires(found), labels_of(node, found))
    assert by_labels == (not unmet(found, node))
    return by_labels


def node(name: str = "n", taints: tuple[tuple[str, str, str], ...] = (), **labels: str) -> NodeFacts:
    return NodeFacts(name, labels, taints)


@pytest.mark.parametrize(
    ("spec", "good", "bad"),
    [
        ({"nodeSelector": {"disk": "ssd"}}, node(disk="ssd"), node(disk="hdd")),
        ({"nodeSelector": {"role": ""}}, node(role=""), node()),
        (affinity({"matchExpressions": [expression("a", "In", "1", "2")]}), node(a="2"), node(a="3")),
        (affinity({"matchExpressions": [expression("a", "NotIn", "1")]}), node(), node(a="1")),
        (affinity({"matchExpressions": [expression("a", "Exists")]}), node(a=""), node(b="")),
        (affinity({"matchExpressions": [expression("a", "DoesNotExist")]}), node(), node(a="")),
        (affinity({"matchExpressions": [expression("a", "Gt", "5")]}), node(a="6"), node(a="5")),
        (affinity({"matchExpressions": [expression("a", "Lt", "5")]}), node(a="4"), node(a="x")),
        (affinity({"matchFields": [expression("metadata.name", "In", "n")]}), node(), node("m")),
        (affinity({"matchExpressions": [expression("a", "In", "1")]}, {"matchExpressions": [expression("b", "In", "1")]}), node(b="1"), node(a="2")),
        ({"nodeSelector": {"a": "1"}} | affinity({"matchExpressions": [expression("a", "In", "1", "2")]}), node(a="1"), node(a="2")),
        ({}, node(), node(taints=(("gpu", "", "NoSchedule"),))),
        ({"tolerations": [{"key": "gpu", "operator": "Exists"}]}, node(taints=(("gpu", "x", "NoSchedule"),)), node(taints=(("cpu", "", "NoExecute"),))),
        ({"tolerations": [{"key": "gpu", "value": "x", "effect": "NoSchedule"}]}, node(taints=(("gpu", "x", "NoSchedule"),)), node(taints=(("gpu", "x", "NoExecute"),))),
        ({"tolerations": [{"key": "gpu", "value": "x"}]}, node(), node(taints=(("gpu", "y", "NoSchedule"),))),
        ({"tolerations": [{"operator": "Exists"}]}, node(taints=(("any", "", "NoExecute"),)), None),
    ],
)  # fmt: skip
def test_constraints(spec: dict[str, Any], good: NodeFacts, bad: NodeFacts | None) -> None:
    assert may_run(spec, good)
    assert bad is None or not may_run(spec, bad)


@pytest.mark.parametrize(
    "spec",
    [
        affinity(),
        affinity({}),
        affinity({"matchExpressions": [expression("a", "Near", "1")]}),
        {"nodeSelector": {"a": "1"}} | affinity({"matchExpressions": [expression("a", "In", "2")]}),
    ],
)
def test_what_matches_no_node(spec: dict[str, Any]) -> None:
    assert not may_run(spec, node(a="1"))
    assert not may_run(spec, node(a="2"))


def test_tolerations_of_node_states_make_no_constraint() -> None:
    usual = [
        {
            "key": "node.kubernetes.io/not-ready",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        },
        {"key": "soft", "operator": "Exists", "effect": "PreferNoSchedule"},
    ]
    assert constraints({"tolerations": usual}) == constraints({})


def test_equal_constraints_are_equal_whatever_their_order() -> None:
    one = affinity({"matchExpressions": [expression("a", "In", "2", "1"), expression("b", "Exists")]})
    other = affinity({"matchExpressions": [expression("b", "Exists"), expression("a", "In", "1", "2")]})
    assert constraints(one) == constraints(other)


def test_random_constraints_agree_with_a_plain_evaluation() -> None:
    rng = random.Random(3)
    for _ in range(500):
        terms = [
            {"matchExpressions": [random_expression(rng) for _ in range(rng.randrange(1, 3))]}
            for _ in range(rng.randrange(1, 3))
        ]
        labels = {key: rng.choice(["1", "2", "3"]) for key in "abc" if rng.random() < 0.6}
        wanted = any(all(plainly(one, labels) for one in term["matchExpressions"]) for term in terms)
        assert may_run(affinity(*terms), node(**labels)) == wanted, (terms, labels)


def random_expression(rng: random.Random) -> dict[str, Any]:
    operator = rng.choice(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
    values = {"In": 2, "NotIn": 2, "Gt": 1, "Lt": 1}.get(operator, 0)
    return expression(rng.choice("abc"), operator, *rng.sample(["1", "2", "3"], values))


def plainly(one: dict[str, Any], labels: dict[str, str]) -> bool:
    has, values = labels.get(one["key"]), one.get("values", [])
    return {
        "In": lambda: has in values,
        "NotIn": lambda: has not in values,
        "Exists": lambda: has is not None,
        "DoesNotExist": lambda: has is None,
        "Gt": lambda: has is not None and int(has) > int(values[0]),
        "Lt": lambda: has is not None and int(has) < int(values[0]),
    }[one["operator"]]()


def test_label_selectors_of_pods() -> None:
    assert selects({}, {"a": "1"})
    assert not selects(None, {"a": "1"})
    assert selects({"matchLabels": {"a": "1"}, "matchExpressions": [expression("b", "DoesNotExist")]}, {"a": "1"})
    assert not selects({"matchLabels": {"a": "2"}}, {"a": "1"})


# -- nodes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "status", "reason"),
    [
        ({}, {}, ""),
        ({"unschedulable": True}, {}, "cordoned"),
        ({"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}, {}, "not-ready"),
        ({"taints": [{"key": "mine", "effect": "NoSchedule"}]}, {}, ""),
        ({}, {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}, "NodeStatusUnknown"),
    ],
)  # fmt: skip
def test_nodes_that_take_no_pods(spec: dict[str, Any], status: dict[str, Any], reason: str) -> None:
    found = read_node(
        {
            "metadata": {"name": "n"},
            "spec": spec,
            "status": {"allocatable": {"cpu": "3920m", "memory": "1Gi"}} | status,
        }
    )
    assert found.allocatable == {"cpu": Decimal("3.920"), "memory": GIB}
    assert reason in found.closed
    assert bool(reason) == bool(found.closed)


def test_capacities_become_few_and_never_larger() -> None:
    rng = random.Random(5)
    found = [
        {"cpu": Decimal(rng.randrange(1000, 64000)) / 1000, "memory": Decimal(rng.randrange(1, 10**6))}
        for _ in range(300)
    ]
    level = level_for(found)
    assert level == len(LEVELS) - 1
    for one in found:
        less = rounded(one, LEVELS[level])
        assert all(one[name] * 8 / 9 <= less[name] <= one[name] for name in one)
    alike = [{"cpu": Decimal(4), "memory": Decimal(16000 + n)} for n in range(40)]
    assert 0 < level_for(alike) < len(LEVELS) - 1
    assert len({str(rounded(one, LEVELS[level_for(alike)])) for one in alike}) <= MOST
    assert level_for(alike[:MOST]) == 0
    assert round_down(Decimal("0.9"), 3) == 0


def test_only_waiting_pods_of_this_scheduler_are_read_for_constraints() -> None:
    pod = {"metadata": {"uid": "u", "name": "p"}, "spec": {"schedulerName": "slotwise", "nodeSelector": {"a": "b"}}}
    assert len(read_pod(pod, "slotwise").constraints) == 2
    assert read_pod(pod, "other").constraints == ()
    pod["spec"]["nodeName"] = "n"
    assert read_pod(pod, "slotwise").constraints == ()


def test_a_pod_for_one_node_splits_one_node_off_and_is_forgotten_later() -> None:
    mirror = Mirror("slotwise")
    names = [f"n{n}" for n in range(MOST_REFERRED + 8)]
    size = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
    mirror.list_nodes(
        read_node({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "status": size})
        for name in names
    )

    def pinned(name: str, node: str = "") -> Pod:
        selector = {"schedulerName": "slotwise", "nodeSelector": {"kubernetes.io/hostname": name}}
        return read_pod(
            {"metadata": {"uid": name, "name": name}, "spec": selector | {"nodeName": node}}, "slotwise"
        )

    def kinds() -> int:
        mirror.facts()
        return len({tuple(sorted(one.labels.items())) for one in mirror.servers()})

    mirror.see_pod(pinned("n0"))
    assert kinds() == 2
    for name in names:
        mirror.see_pod(pinned(name))
    assert kinds() == len(names)
    for name in names[1:]:
        mirror.see_pod(pinned(name, node=name))
    mirror.retell()
    assert kinds() == 2
