"""A real API server that tools/system/with-kubernetes has started: objects are created and looked at with plain requests.

`Recorder` watches pods and keeps what happened in order; `violations` checks from that record alone that no node held more than it has and no pod
ran where it must not. It evaluates constraints in its own simple way, not with the code of the engine.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

Object = dict[str, Any]
ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "packaging" / "kubernetes"
KINDS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Node": "/api/v1/nodes",
}


class RealKubernetes:
    """Requests as the administrator; programs that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        config = yaml.safe_load((folder / "admin.conf").read_text())
        parts = urlsplit(config["clusters"][0]["cluster"]["server"])
        self._address = parts.hostname or "", parts.port or 443
        self._token = config["users"][0]["user"]["token"]
        self._tls = ssl.create_default_context(cafile=config["clusters"][0]["cluster"]["certificate-authority"])
        self._local = threading.local()
        self._opened: list[http.client.HTTPSConnection] = []

    def connection(self) -> http.client.HTTPSConnection:
        """Return a new connection."""
        made = http.client.HTTPSConnection(*self._address, context=self._tls, timeout=60)
        self._opened.append(made)
        return made

    def close(self) -> None:
        """Close all connections."""
        for one in self._opened:
            one.close()

    def headers(self) -> dict[str, str]:
        """Return what lets a request in."""
        return {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}

    def call(self, method: str, path: str, body: Any = None, content: str = "application/json") -> Any:
        """Return the answer; wait while the server is away."""
        end = time.monotonic() + 120
        while True:
            kept = getattr(self._local, "connection", None) or self.connection()
            try:
                kept.request(
                    method,
                    path,
                    None if body is None else json.dumps(body),
                    self.headers() | {"Content-Type": content},
                )
                answer = kept.getresponse()
                data = answer.read()
                self._local.connection = kept
            except (OSError, http.client.HTTPException):
                kept.close()
                self._local.connection = None
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
                continue
            if answer.status in (403, 429, 500, 503, 504) and time.monotonic() < end:
                time.sleep(0.2)
                continue
            if (method, answer.status) == ("DELETE", 404):
                return {}  # a try whose answer was lost may have deleted it
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {data[:500]!r}")
            return json.loads(data)

    def create(self, value: Object) -> Object:
        """Create an object; one that is there stays."""
        space = value["metadata"].get("namespace", "default")
        try:
            return self.call("POST", KINDS[value["kind"]].format(space), value)
        except RuntimeError as error:
            if "AlreadyExists" not in str(error):
                raise
            return {}

    def create_all(self, values: Sequence[Object], threads: int = 8) -> None:
        """Create many objects."""
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(self.create, values))

    def apply_manifests(self, kinds: Sequence[str] = tuple(KINDS)) -> None:
        """Create what packaging/kubernetes has of these kinds."""
        for name in yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["resources"]:
            for value in yaml.safe_load_all((MANIFESTS / name).read_text()):
                if value["kind"] in kinds:
                    self.create(value)

    def node(self, name: str, cpu: float, memory: str, **more: Any) -> Object:
        """Return a node that KWOK plays; `labels`, `taints`, `pods`."""
        size = {"cpu": str(cpu), "memory": memory, "pods": str(more.get("pods", 110))}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **more.get("labels", {})}},
            "spec": {"taints": more.get("taints", [])},
            "status": {"allocatable": size, "capacity": size},
        }

    def pods(self, query: str = "") -> list[Object]:
        """Return pods."""
        found: list[Object] = self.call("GET", f"/api/v1/pods?{query}")["items"]
        return found

    def kill(self, program: str, *, wait: bool = True) -> None:
        """Kill a program, and start it again."""
        number = int((self.folder / f"{program}.pid").read_text())
        os.kill(number, 9)
        while wait and Path(f"/proc/{number}").exists() and "Z" not in Path(f"/proc/{number}/stat").read_text():
            time.sleep(0.01)
        self.start(program)

    def start(self, program: str) -> None:
        """Start a program."""
        subprocess.run([self.folder / f"start-{program}"], check=True)

    def stop(self, program: str) -> None:
        """End a program."""
        os.kill(int((self.folder / f"{program}.pid").read_text()), 9)
        (self.folder / f"{program}.pid").write_text("")


def pod(name: str, cpu: str, *, seconds: float | None = None, scheduler: str = "slotwise", **more: Any) -> Object:
    """Return a pod; it ends after `seconds`, or never. `memory`, `spec`, `namespace`, `labels`."""
    requests = {"cpu": cpu, "memory": more.get("memory", "64Mi")}
    notes = {} if seconds is None else {"slotwise/seconds": f"{seconds:.3f}s"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": more.get("namespace", "default"),
            "annotations": notes,
            "labels": more.get("labels", {}),
        },
        "spec": {
            "schedulerName": scheduler,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "none", "resources": {"requests": requests}}],
            **more.get("spec", {}),
        },
    }


class Recorder:
    """A watch of pods from now on, in a thread; every event once, in order."""

    def __init__(
        self, api: RealKubernetes, on_event: Callable[[str, Object, float], None] = lambda *_: None
    ) -> None:
        self.api, self.on_event = api, on_event
        self.events: list[tuple[str, Object]] = []
        self.times: dict[str, dict[str, float]] = {}  # by uid: created, bound, ended
        self._version = api.call("GET", "/api/v1/pods?limit=1")["metadata"]["resourceVersion"]
        self.gaps = 0  # how often a server that came back no longer had the version to go on from
        self._known: dict[str, Object] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self._watch()
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(0.2)

    def _watch(self) -> None:
        query = urlencode({"watch": "true", "resourceVersion": self._version, "timeoutSeconds": 30})
        with closing(self.api.connection()) as connection:
            connection.request("GET", f"/api/v1/pods?{query}", None, self.api.headers())
            with connection.getresponse() as answer:
                if answer.status != 200:
                    time.sleep(0.2)
                    return
                while not self._ending.is_set() and (line := answer.readline()):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        if event["object"].get("code") == 410:
                            self._list_anew()
                        return
                    seen = event["object"]
                    self._version = seen["metadata"]["resourceVersion"]
                    self._note(event["type"], seen)

    def _list_anew(self) -> None:
        """Close a gap: what has ended first, then what was bound."""
        self.gaps += 1
        found = self.api.call("GET", "/api/v1/pods?limit=100000")
        there = {one["metadata"]["uid"]: one for one in found["items"]}
        for uid in [uid for uid in self._known if uid not in there]:
            self._note("DELETED", self._known[uid])
        for one in sorted(
            there.values(), key=lambda one: one["status"].get("phase") not in ("Succeeded", "Failed")
        ):
            self._note("MODIFIED", one)
        self._version = found["metadata"]["resourceVersion"]

    def _note(self, kind: str, seen: Object) -> None:
        self._known[seen["metadata"]["uid"]] = seen
        if kind == "DELETED":
            del self._known[seen["metadata"]["uid"]]
        now = time.monotonic()
        times = self.times.setdefault(seen["metadata"]["uid"], {"created": now})
        if seen["spec"].get("nodeName"):
            times.setdefault("bound", now)
        if kind == "DELETED" or seen["status"].get("phase") in ("Succeeded", "Failed"):
            times.setdefault("ended", now)
        self.events.append((kind, seen))
        self.on_event(kind, seen, now)

    def close(self) -> None:
        """End, within the time that a watch lasts."""
        self._ending.set()
        self._thread.join()


def millis(text: str) -> int:
    """Return CPUs as thousandths."""
    return int(text[:-1]) if text.endswith("m") else int(float(text) * 1000)


def mebibytes(text: str) -> int:
    """Return memory in MiB."""
    return int(text[:-2]) * {"Mi": 1, "Gi": 1024}[text[-2:]]


def violations(events: Sequence[tuple[str, Object]], nodes: dict[str, Object]) -> list[str]:
    """Return what was done wrong: a pod bound twice or against its constraints, a node that held more than it has."""
    wrong: list[str] = []
    bound: dict[str, str] = {}
    ended: set[str] = set()
    use: Counter[tuple[str, str]] = Counter()
    for kind, seen in events:
        uid, where = seen["metadata"]["uid"], seen["spec"].get("nodeName")
        name = seen["metadata"]["name"]
        held = seen["spec"]["containers"][0]["resources"]["requests"]
        size = {"cpu": millis(held["cpu"]), "memory": mebibytes(held["memory"]), "pods": 1}
        if where and uid not in bound:
            bound[uid] = where
            node = nodes.get(where)
            if node is None:
                wrong.append(f"{name} was bound to {where}, which does not exist")
                continue
            for resource, amount in size.items():
                use[where, resource] += amount
            wrong += [f"{name} on {where}: {why}" for why in misplaced(seen, node)]
            has = node["status"]["allocatable"]
            most = {"cpu": millis(has["cpu"]), "memory": mebibytes(has["memory"]), "pods": int(has["pods"])}
            wrong += [f"{where} holds {use[where, r]} {r} of {most[r]}" for r in most if use[where, r] > most[r]]
        elif where and bound[uid] != where:
            wrong.append(f"{name} was bound to {bound[uid]} and to {where}")
        over = kind == "DELETED" or seen["status"].get("phase") in ("Succeeded", "Failed")
        if over and uid in bound and uid not in ended:
            ended.add(uid)
            for resource, amount in size.items():
                use[bound[uid], resource] -= amount
    return wrong


def misplaced(seen: Object, node: Object) -> list[str]:
    """Return the selectors and taints that a pod is bound against."""
    labels = node["metadata"]["labels"]
    wrong = [
        f"{key}={value}"
        for key, value in (seen["spec"].get("nodeSelector") or {}).items()
        if labels.get(key) != value
    ]
    tolerated = {one.get("key") for one in seen["spec"].get("tolerations") or []}
    wrong += [f"taint {one['key']}" for one in node["spec"].get("taints") or [] if one["key"] not in tolerated]
    return wrong
