"""A real API server that tools/system/with-kubernetes has started: objects are created and looked at with plain requests.

`Recorder` watches pods and keeps what happened in order; `violations` checks from that record alone that no node held more than it has and no pod
ran where it must not. It evaluates constraints in its own simple way, not with the code of the engine.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

Object = dict[str, Any]
ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "packaging" / "kubernetes"
PATIENCE = 300.0  # seconds without any progress after which a test fails
WATCH_SECONDS = 5  # a watch lasts; the end of a Recorder waits for that of its watch
ENDED = ("Succeeded", "Failed")
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
    """Requests as the administrator; servers that can be killed."""

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

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        content: str = "application/json",
        read: Callable[[bytes], Any] = json.loads,
    ) -> Any:
        """Return the answer; wait while the server is away."""
        end = time.monotonic() + PATIENCE
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
            except (OSError, http.client.HTTPException) as error:
                kept.close()
                self._local.connection = None
                if time.monotonic() > end:
                    raise AssertionError(f"{method} {path}: {error} for {PATIENCE:g} s\n{last_words()}") from error
                time.sleep(0.2)
                continue
            if answer.status in (403, 429, 500, 503, 504) and time.monotonic() < end:
                time.sleep(0.2)
                continue
            if (method, answer.status) == ("DELETE", 404):
                return {}  # a try whose answer was lost may have deleted it
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {data[:500]!r}")
            return read(data)

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

    def until_ready(self) -> None:
        """Wait until the API server says that it is ready: an earlier test may have left it dead."""
        self.call("GET", "/readyz", read=bytes)

    def kill(self, program: str) -> None:
        """Kill a server, and wait until tools/system/keep has started it again."""
        number = self._number(program)
        with suppress(ProcessLookupError):  # it has just ended by itself
            os.kill(number, signal.SIGKILL)
        until(lambda: self._number(program) != number, f"{program} is started again")

    def _number(self, program: str) -> int:
        return int((self.folder / f"{program}.pid").read_text())


def until(condition: Callable[[], Any], what: str, progress: Callable[[], Any] = lambda: None) -> Any:
    """Wait until something is so, and return it. Raise an AssertionError if there is no progress for PATIENCE seconds."""
    seen, end = progress(), time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > end:
            if (now := progress()) == seen:
                raise AssertionError(f"not within {PATIENCE:g} s: {what}\n{last_words()}")
            seen, end = now, time.monotonic() + PATIENCE
        time.sleep(0.1)
    return found


def last_words() -> str:
    """Return when the servers ended, and what they wrote last."""
    found = []
    for log in sorted(Path(os.environ["SLOTWISE_TEST_KUBERNETES"]).glob("*.log")):
        lines = log.read_text(errors="replace").splitlines()
        found += [f"{log.name}: {line}" for line in lines if line.startswith("keep: ")]
        found += [f"{log.name}: {line[:300]}" for line in lines[-10:] if not line.startswith("keep: ")]
    return "\n".join(found)


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

    def __init__(self, api: RealKubernetes) -> None:
        self.api = api
        self.events: list[tuple[str, Object]] = []
        self.times: dict[str, dict[str, float]] = {}  # by uid: created, bound, ended
        found = api.call("GET", "/api/v1/pods?limit=100000")
        self._version = found["metadata"]["resourceVersion"]
        self._known: dict[str, Object] = {one["metadata"]["uid"]: one for one in found["items"]}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self._watch()
            except (OSError, http.client.HTTPException, ValueError):  # the server is away, or its answer broke off
                time.sleep(0.2)

    def _watch(self) -> None:
        query = urlencode({"watch": "true", "resourceVersion": self._version, "timeoutSeconds": WATCH_SECONDS})
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
        """Close the gap after a restart of the server: pods that ended, then pods that came and went, then the pods that are there."""
        found = self.api.call("GET", "/api/v1/pods?limit=100000")
        there = {one["metadata"]["uid"]: one for one in found["items"]}
        for uid in [uid for uid in self._known if uid not in there]:
            self._note("DELETED", self._known[uid])

        def order(one: Object) -> int:
            known = self._known.get(one["metadata"]["uid"], one)
            if one["status"].get("phase") not in ENDED:
                return 2
            return 0 if known["spec"].get("nodeName") and known is not one else 1

        for one in sorted(there.values(), key=order):
            self._note("MODIFIED", one)
        self._version = found["metadata"]["resourceVersion"]

    def _is_up_to_date(self) -> bool:
        there = self.api.pods("limit=100000")
        return versions(there) == versions(list(self._known.values()))

    def _note(self, kind: str, seen: Object) -> None:
        self._known[seen["metadata"]["uid"]] = seen
        if kind == "DELETED":
            del self._known[seen["metadata"]["uid"]]
        now = time.monotonic()
        times = self.times.setdefault(seen["metadata"]["uid"], {"created": now})
        if seen["spec"].get("nodeName"):
            times.setdefault("bound", now)
        if kind == "DELETED" or seen["status"].get("phase") in ENDED:
            times.setdefault("ended", now)
        self.events.append((kind, seen))

    def close(self) -> None:
        """End when everything that has happened is noted."""
        until(self._is_up_to_date, "the recorder has seen all pods as they are", lambda: len(self.events))
        self._ending.set()
        self._thread.join()


def versions(pods: Sequence[Object]) -> dict[str, str]:
    """Return the version of each pod, by uid."""
    return {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in pods}


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
        over = kind == "DELETED" or seen["status"].get("phase") in ENDED
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
