"""The engine `kubernetes` as a whole, with the service, against a small API server that does odd things on demand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_kubernetes import FakeKubernetes
from processes import PATIENCE

from slotwise.live.engines.kubernetes.access import fixed
from slotwise.live.engines.kubernetes.engine import KubernetesEngine
from slotwise.live.engines.kubernetes.http import Access, ApiClient
from slotwise.live.engines.kubernetes.lease import Lease
from slotwise.live.engines.protocol import Troubled
from slotwise.live.replay import replay
from slotwise.live.service import Service
from slotwise.live.settings import setup_of
from slotwise.live.store import open_store
from slotwise.live.store.records import Job, Query


def until(condition: Callable[[], Any]) -> Any:
    """Wait until something is so, and return it."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError("it did not happen in time")
        time.sleep(0.01)
    return found


class Cluster:
    """A fake API server, and services on it that come and go."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.api = folder, FakeKubernetes()
        self.services: list[Service] = []

    def serve(self, name: str = "x", **options: Any) -> Service:
        engine = KubernetesEngine(
            self.folder / name,
            access=(Access(self.api.url, None, fixed({})), "default"),
            explain_after=0.0,
            **options,
        )
        setup = setup_of(engine.cluster(), None)._replace(policy="best-fit")
        service = Service(open_store(f"sqlite:///{self.folder}/{name}.db"), engine, setup)
        self.services.append(service)
        return service

    def stop(self, service: Service) -> None:
        self.services.remove(service)
        service.close()

    def close(self) -> None:
        for one in self.services:
            one.close()
        self.api.close()

    def job(self, service: Service, path: str) -> Job:
        """Return the newest job of a pod."""
        name = path.removeprefix("/api/v1/namespaces/").replace("/pods/", "/")
        return service.store.jobs(Query(name=name, limit=1))[0]

    def is_in(self, service: Service, path: str, state: str) -> bool:
        name = path.removeprefix("/api/v1/namespaces/").replace("/pods/", "/")
        found = service.store.jobs(Query(name=name, limit=1))
        return bool(found) and found[0].state == state


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


def test_a_pod_from_its_arrival_to_its_end(cluster: Cluster) -> None:
    api = cluster.api
    api.node("n1", 4)
    service = cluster.serve()
    pod = api.pod("a", "500m", memory="1Gi", namespace="team")
    until(lambda: api.node_of(pod) == "n1")
    api.phase(pod, "Running")
    until(lambda: cluster.is_in(service, pod, "running"))
    api.phase(pod, "Failed", 3)
    until(lambda: cluster.is_in(service, pod, "failed"))
    job = cluster.job(service, pod)
    assert (job.tenant, job.name, job.exit_code) == ("team", "team/a", 3)
    until(lambda: any("Successfully assigned team/a to n1" in note for note in api.events_of(pod)))
    assert not replay(service.store).differences


def test_a_pod_waits_with_a_reason_and_is_bound_when_room_appears(cluster: Cluster) -> None:
    api = cluster.api
    api.node("n1", 4)
    service = cluster.serve()
    first, second = api.pod("a", "3"), api.pod("b", "3")
    bound = until(lambda: [pod for pod in (first, second) if api.node_of(pod)])[0]
    waits = second if bound == first else first
    until(lambda: "needs" in api.condition(waits) or "free" in api.condition(waits) or api.condition(waits))
    assert until(lambda: api.events_of(waits))
    api.phase(bound, "Succeeded")
    until(lambda: api.node_of(waits) == "n1")
    assert len(api.bindings) == 2
    until(lambda: cluster.is_in(service, bound, "done"))


def test_pods_of_others_count_and_a_node_that_they_fill_takes_no_more(cluster: Cluster) -> None:
    api = cluster.api
    api.node("n1", 4)
    other = api.pod("other", "3", scheduler="default-scheduler", node="n1", phase="Running")
    cluster.serve()
    pod = api.pod("a", "2")
    until(lambda: "no node that meets its constraints has cpu 2" in api.condition(pod))
    api.phase(other, "Succeeded")
    until(lambda: api.node_of(pod) == "n1")
    late = api.pod("late", "1", scheduler="default-scheduler", node="n1", phase="Running")
    small = api.pod("b", "2")
    until(lambda: api.condition(small))
    assert not api.node_of(small)
    api.delete(late)
    until(lambda: api.node_of(small) == "n1")


def test_selectors_taints_and_cordons_are_obeyed(cluster: Cluster) -> None:
    api = cluster.api
    api.node("plain", 4)
    api.node("ssd", 4, labels={"disk": "ssd"})
    api.node("gpu", 4, taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
    cluster.serve()
    on_ssd = api.pod("a", "3", spec={"nodeSelector": {"disk": "ssd"}})
    until(lambda: api.node_of(on_ssd) == "ssd")
    tolerant = api.pod(
        "b",
        "3",
        spec={
            "nodeSelector": {"kubernetes.io/hostname": "gpu"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
        },
    )
    until(lambda: api.node_of(tolerant) == "gpu")
    plain = api.pod("c", "3")
    until(lambda: api.node_of(plain) == "plain")
    nowhere = api.pod("d", "1", spec={"nodeSelector": {"disk": "tape"}})
    until(lambda: "disk = tape" in api.condition(nowhere))
    api.node("tape", 4, labels={"disk": "tape"}, unschedulable=True)
    api.update("/api/v1/nodes/tape", lambda node: node["spec"].pop("unschedulable"))
    until(lambda: api.node_of(nowhere) == "tape")


def test_what_cannot_be_honoured_is_not_bound_and_says_why(cluster: Cluster) -> None:
    api = cluster.api
    api.node("n1", 4)
    cluster.serve()
    spread = {
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
    }
    volume = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "x"}}]}
    gate = {"schedulingGates": [{"name": "quota"}]}
    pods = [api.pod("s", spec=spread), api.pod("v", spec=volume), api.pod("g", spec=gate), api.pod("fine")]
    until(lambda: api.node_of(pods[3]) == "n1")
    until(lambda: "topology spread" in api.condition(pods[0]))
    until(lambda: "persistentVolumeClaim" in api.condition(pods[1]))
    assert not any(map(api.node_of, pods[:3]))
    api.update(pods[2], lambda pod: pod["spec"].pop("schedulingGates"))
    until(lambda: api.node_of(pods[2]) == "n1")


def test_the_status_tells_of_pods_that_the_scheduler_does_not_get_and_of_the_api_server(cluster: Cluster) -> None:
    api = cluster.api
    api.node("n1", 4)
    service = cluster.serve()
    engine = service.engine
    assert isinstance(engine, Troubled)
    assert engine.troubles() == []
    api.pod("gated", "1", spec={"schedulingGates": [{"name": "later"}]})
    api.pod("b", "1", spec={"hostNetwork": True, "resourceClaims": [{"name": "gpu"}]})
    api.pod("a", "1", spec={"resourceClaims": [{"name": "gpu"}]})
    until(lambda: any("scheduled: 2, such as default/a: this scheduler" in one for one in engine.troubles()))
    with api.failing(500, "GET"):
        api.cut_watches()
        until(lambda: any("the API server: /api/v1/nodes: 500" in one for one in engine.troubles()))
    until(lambda: len(engine.troubles()) == 1)


def test_anti_affinity_of_running_pods_keeps_others_out(cluster: Cluster) -> None:
    api = cluster.api
    api.node("n1", 4)
    term = {"labelSelector": {"matchLabels": {"app": "noisy"}}, "topologyKey": "kubernetes.io/hostname"}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    quiet = api.pod(
        "quiet", scheduler="default-scheduler", node="n1", spec={"affinity": {"podAntiAffinity": required}}
    )
    cluster.serve()
    noisy, other = api.pod("noisy", labels={"app": "noisy"}), api.pod("other", labels={"app": "other"})
    until(lambda: api.node_of(other) == "n1")
    until(lambda: "anti-affinity" in api.condition(noisy))
    api.delete(quiet)
    until(lambda: api.node_of(noisy) == "n1")


def test_a_second_binding_a_lost_answer_and_a_new_pod_of_the_same_name(cluster: Cluster) -> None:
    api = cluster.api
    api.node("n1", 100)
    service = cluster.serve()
    api.lose_answers = True
    pod = api.pod("a")
    until(lambda: api.node_of(pod) == "n1")
    api.lose_answers = False
    api.phase(pod, "Running")
    until(lambda: cluster.is_in(service, pod, "running"))
    with api.failing(500, "POST", "/binding"):
        other = api.pod("b")
        until(lambda: ("POST", f"{other}/binding") in api.calls)
        api.delete(other)
        api.pod("b")  # another pod of this name
        until(lambda: len([call for call in api.calls if call == ("POST", f"{other}/binding")]) > 2)
    until(lambda: api.node_of(other) == "n1")
    uids = [uid for uid, _ in api.bindings]
    assert len(uids) == len(set(uids)) == 2


def test_a_pod_that_another_scheduler_binds_is_left_to_it(cluster: Cluster) -> None:
    api = cluster.api
    api.node("n1", 4)
    api.node("n2", 4)
    service = cluster.serve()
    with api.failing(503, "POST", "/binding"):
        pod = api.pod("a", "3")
        until(lambda: ("POST", f"{pod}/binding") in api.calls)
        placed = cluster.job(service, pod).server
        elsewhere = "n2" if placed == "n1" else "n1"
        api.update(pod, lambda one: one["spec"].update(nodeName=elsewhere))
        until(lambda: cluster.is_in(service, pod, "cancelled"))
    small = [api.pod(f"s{n}", "3") for n in range(2)]
    until(lambda: any(map(api.node_of, small)))
    assert {api.node_of(one) for one in small} == {"", placed}


@pytest.mark.parametrize("status", [0, 403, 429, 500])
def test_requests_that_fail_are_tried_again(cluster: Cluster, status: int) -> None:
    api = cluster.api
    api.node("n1", 4)
    with api.failing(status, times=6):
        cluster.serve()
    with api.failing(status, times=6):
        api.cut_watches()
        pod = api.pod("a")
        until(lambda: api.node_of(pod) == "n1")
    assert len(api.bindings) == 1


@pytest.mark.parametrize("inside", [False, True])
def test_a_version_too_old_is_answered_by_a_new_list(cluster: Cluster, inside: bool) -> None:
    api = cluster.api
    api.error_in_watch = inside
    api.node("n1", 4)
    service = cluster.serve()
    gone = api.pod("gone", "4")
    until(lambda: api.node_of(gone) == "n1")
    with api.failing(503, "GET"):
        api.cut_watches()
        api.delete(gone)
        api.node("n2", 8)
        pod = api.pod("a", "6")
        api.forget_history()
    until(lambda: api.node_of(pod) == "n2")
    until(lambda: cluster.is_in(service, gone, "cancelled"))


def test_what_a_watch_never_tells_is_found_by_the_next_list(cluster: Cluster) -> None:
    api = cluster.api
    api.node("n1", 2)
    service = cluster.serve(relist=0.2)
    first = api.pod("first", "2")
    until(lambda: api.node_of(first) == "n1")
    until(lambda: cluster.is_in(service, first, "placed"))
    api.mute = True
    api.delete(first)
    api.node("n2", 4)
    late = api.pod("late", "3")
    until(lambda: api.node_of(late) == "n2")
    until(lambda: cluster.is_in(service, first, "cancelled"))
    api.delete(late)
    api.delete("/api/v1/nodes/n2")
    until(lambda: "n2" not in service.loop.ledger.servers)
    assert len(api.bindings) == 2


@pytest.mark.parametrize("year", ["1999", "2099"])
def test_clocks_of_nodes_and_the_api_server_decide_nothing(cluster: Cluster, year: str) -> None:
    api = cluster.api
    api.node("n1", 4)
    began = time.time()
    service = cluster.serve()
    pod = api.pod("a", "1")
    until(lambda: api.node_of(pod) == "n1")
    moment = f"{year}-01-01T00:00:00Z"

    def change(phase: str, state: dict[str, Any]) -> None:
        told = {"phase": phase, "startTime": moment, "containerStatuses": [{"name": "c", "state": state}]}
        api.update(pod, lambda one: one["status"].update(told))

    change("Running", {"running": {"startedAt": moment}})
    until(lambda: cluster.is_in(service, pod, "running"))
    change("Succeeded", {"terminated": {"exitCode": 0, "startedAt": moment, "finishedAt": moment}})
    until(lambda: cluster.is_in(service, pod, "done"))
    job = cluster.job(service, pod)
    moments = [began, job.submitted, job.placed, job.started, job.ended, time.time()]
    assert None not in moments
    assert moments == sorted(moments)  # type: ignore[type-var]


@pytest.mark.parametrize("year", ["1999", "2099"])
def test_a_lease_counts_by_the_clock_of_who_watches_it(
    cluster: Cluster, year: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A holder whose clock is wrong keeps its lease as long as it renews it, and loses it when it does not."""
    api, now = cluster.api, 1000.0
    monkeypatch.setattr("slotwise.live.engines.kubernetes.lease.time.monotonic", lambda: now)
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/slotwise"
    moment = f"{year}-01-01T00:00:00.000000Z"
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 15, "renewTime": moment, "acquireTime": moment}
    api.put(path, {"metadata": {"name": "slotwise"}, "spec": spec})

    async def tries() -> list[str | None]:
        nonlocal now
        client = ApiClient(Access(api.url, None, fixed({})))
        lease, found = Lease(client, "default", "slotwise", "me"), []
        for renewed in (False, True, True, False):
            if renewed:
                api.update(path, lambda one: None)
            found.append(await lease._try())
            now += 14.0
        now += 2.0
        found.append(await lease._try())
        client.close()
        return found

    # the last renewal is seen at 1028; at 1042 the lease is 14 s old, at 1058 it is 30
    assert asyncio.run(tries()) == ["other", "other", "other", "other", None]


def test_events_told_twice_change_nothing(cluster: Cluster) -> None:
    api = cluster.api
    api.twice = True
    api.node("n1", 8)
    service = cluster.serve()
    pods = [api.pod(f"p{n}", "1") for n in range(6)]
    until(lambda: all(map(api.node_of, pods)))
    for pod in pods:
        api.phase(pod, "Running")
        api.phase(pod, "Succeeded")
    until(lambda: all(cluster.is_in(service, pod, "done") for pod in pods))
    assert len(api.bindings) == len(service.store.jobs(Query(limit=100))) == 6


def test_pods_deleted_at_every_moment(cluster: Cluster) -> None:
    api = cluster.api
    api.node("n1", 2)
    service = cluster.serve()
    running, waiting = api.pod("running", "2"), api.pod("waiting", "2")
    first = until(lambda: [one for one in (running, waiting) if api.node_of(one)])[0]
    second = waiting if first == running else running
    until(lambda: cluster.is_in(service, second, "waiting"))
    api.delete(second)  # while it waits
    until(lambda: cluster.is_in(service, second, "cancelled"))
    api.phase(first, "Running")
    api.delete(first)  # while it runs
    until(lambda: cluster.is_in(service, first, "cancelled"))
    with api.failing(503, "POST", "/binding"):
        binding = api.pod("binding", "2")
        until(lambda: ("POST", f"{binding}/binding") in api.calls)
        api.delete(binding)  # while it is bound
        until(lambda: cluster.is_in(service, binding, "cancelled"))
    last = api.pod("last", "2")
    until(lambda: api.node_of(last) == "n1")


def test_a_deleted_node_takes_no_more_and_is_forgotten_when_it_is_empty(cluster: Cluster) -> None:
    api = cluster.api
    api.node("n1", 2)
    service = cluster.serve()
    pod = api.pod("a", "2")
    until(lambda: api.node_of(pod) == "n1")
    api.delete("/api/v1/nodes/n1")
    until(lambda: service.loop.ledger.servers["n1"].status == "draining")
    assert not cluster.is_in(service, pod, "lost")
    api.delete(pod)
    until(lambda: "n1" not in service.loop.ledger.servers)
    api.node("n1", 4)
    other = api.pod("b", "4")
    until(lambda: api.node_of(other) == "n1")


def test_a_restart_adopts_what_runs_and_binds_what_was_placed(cluster: Cluster) -> None:
    api = cluster.api
    api.node("n1", 4)
    service = cluster.serve()
    running, ended = api.pod("running", "1"), api.pod("ended", "1")
    until(lambda: api.node_of(running) and api.node_of(ended))
    with api.failing(503, "POST", "/binding"):
        placed = api.pod("placed", "1")
        until(lambda: cluster.is_in(service, placed, "placed"))
        cluster.stop(service)
    api.phase(running, "Running")
    api.phase(ended, "Failed", 7)
    new = api.pod("new", "1")
    service = cluster.serve()
    until(lambda: api.node_of(placed) == "n1" and api.node_of(new) == "n1")
    until(lambda: cluster.is_in(service, running, "running") and cluster.is_in(service, ended, "failed"))
    assert cluster.job(service, ended).exit_code == 7
    assert len(api.bindings) == 4
    assert not replay(service.store).differences


def test_a_restart_does_not_count_its_own_pods_as_those_of_others(cluster: Cluster) -> None:
    api = cluster.api
    api.node("n1", 4)
    service = cluster.serve()
    pod = api.pod("a", "3")
    until(lambda: api.node_of(pod) == "n1")
    cluster.stop(service)
    service = cluster.serve()
    before = service.loop.ledger.seq
    small = api.pod("b", "1")
    until(lambda: api.node_of(small) == "n1")
    rows = [entry.event for entry in service.store.entries(0, limit=1000)]
    assert before > 0
    assert not [row for row in rows if '"drain"' in row or '"reclass"' in row]


def test_a_service_with_an_empty_store_counts_what_an_earlier_one_bound(cluster: Cluster) -> None:
    api = cluster.api
    api.node("n1", 4)
    first = cluster.serve()
    pod = api.pod("a", "3")
    until(lambda: api.node_of(pod) == "n1")
    cluster.stop(first)
    lease = api.objects["/apis/coordination.k8s.io/v1/namespaces/default/leases/slotwise"]
    assert "holderIdentity" not in lease["spec"]  # so the next service need not wait until it runs out
    cluster.serve("y")
    big, small = api.pod("big", "2"), api.pod("small", "1")
    until(lambda: api.node_of(small) == "n1")
    until(lambda: api.condition(big))
    assert not api.node_of(big)


def test_a_standby_takes_over_when_the_lease_is_left(cluster: Cluster) -> None:
    api = cluster.api
    api.node("n1", 4)
    first = cluster.serve(lease_seconds=0.6)
    pod = api.pod("a", "1")
    until(lambda: api.node_of(pod) == "n1")
    with api.failing(503, "", "/leases"):
        until(first.loop.ended.is_set)
    assert "lease" in (first.loop.trouble or "")
    late = api.pod("b", "1")
    second = cluster.serve("y", lease_seconds=0.6)
    until(lambda: api.node_of(late) == "n1")
    assert second.loop.trouble is None
    assert [node for _, node in api.bindings] == ["n1", "n1"]


def test_a_pod_is_bound_after_the_lease_was_renewed_late(cluster: Cluster) -> None:
    """As after a process was stopped for longer than the lease may go without a renewal."""
    api = cluster.api
    api.node("n1", 4)
    service = cluster.serve()
    engine = service.loop.engine
    assert isinstance(engine, KubernetesEngine)
    engine._lease._renewed = float("-inf")
    pod = api.pod("a", "1")
    until(lambda: api.node_of(pod) == "n1")


def test_a_virtual_machine_counts_with_its_own_size(cluster: Cluster) -> None:
    api = cluster.api
    api.node("n1", 8)
    machine = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm"
    api.put(
        machine,
        {
            "metadata": {"name": "vm"},
            "spec": {"domain": {"cpu": {"cores": 3, "sockets": 2}, "memory": {"guest": "2Gi"}}},
        },
    )
    service = cluster.serve()
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "vm"}
    pod = api.pod("virt-launcher-vm", "100m", owners=[owner])
    until(lambda: api.node_of(pod) == "n1")
    other = api.pod("b", "3")
    until(lambda: api.condition(other))
    assert not api.node_of(other)
    specs = service.store.specs([cluster.job(service, pod).id])
    assert '"cpu": 6.0' in next(iter(specs.values()))[1]
