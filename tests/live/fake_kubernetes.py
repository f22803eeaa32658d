"""A small API server of Kubernetes in a thread: lists, watches, bindings, patches, leases; and everything that may go wrong, on demand.

It does what tests need of the real one, which tests/live/test_kubernetes_real.py use; the same checks run against both.
"""

from __future__ import annotations

import copy
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
KEPT_EVENTS = 100_000
PAGE = 3  # objects of one answer to a list: small, so that tests go through several


class RefusalError(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


class FakeKubernetes:
    """Objects by path, such as /api/v1/namespaces/default/pods/a; every change is an event that watches send on."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.version = 100
        self.oldest = 0  # watches from an older version are refused with 410
        self.log: list[
            tuple[int, str, str, Object, Object | None]
        ] = []  # version, kind of event, path, object, before
        self.changed = threading.Condition()
        self.bindings: list[tuple[str, str]] = []  # uid and node of each binding that was carried out
        self.calls: list[tuple[str, str]] = []
        self.fault: Callable[[str, str], int | None] = lambda method, path: None  # a status for a request, or None
        self.lose_answers = False  # carry out bindings, but break the connection instead of answering
        self.twice = False  # send every event twice
        self.mute = False  # watches go on and tell nothing
        self.cut = 0  # watches end when this number grows
        self.error_in_watch = False  # tell 410 as an event inside a 200, as the real server does
        self._uids = itertools.count(1)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._closing = False
        self._thread.start()

    @property
    def url(self) -> str:
        """Return where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """End all watches and the server."""
        with self.changed:
            self._closing = True
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # -- objects ----------------------------------------------------------------------------------------------------

    def put(self, path: str, value: Object) -> Object:
        """Create or replace an object."""
        with self.changed:
            before = self.objects.get(path)
            self.version += 1
            meta = value.setdefault("metadata", {})
            meta["resourceVersion"] = str(self.version)
            meta.setdefault("uid", f"uid-{next(self._uids)}")
            meta.setdefault("creationTimestamp", f"2026-01-01T00:00:{next(self._uids) % 60:02d}Z")
            self.objects[path] = value
            kind = "ADDED" if before is None else "MODIFIED"
            self.log.append((self.version, kind, path, copy.deepcopy(value), before))
            self.changed.notify_all()
            return copy.deepcopy(value)

    def delete(self, path: str) -> None:
        """Delete an object at once."""
        with self.changed:
            before = self.objects.pop(path)
            self.version += 1
            last = copy.deepcopy(before)
            last["metadata"]["resourceVersion"] = str(self.version)
            self.log.append((self.version, "DELETED", path, last, before))
            self.changed.notify_all()

    def update(self, path: str, change: Callable[[Object], None]) -> Object:
        """Change an object."""
        with self.changed:
            value = copy.deepcopy(self.objects[path])
            change(value)
            return self.put(path, value)

    def node(self, name: str, cpu: float | str = 4, memory: str = "8Gi", *, pods: int = 110, **more: Any) -> str:
        """Create a node; `labels`, `taints`, `extra` (resources), `unschedulable`."""
        spec: Object = {"taints": more.get("taints", [])}
        if more.get("unschedulable"):
            spec["unschedulable"] = True
        self.put(
            f"/api/v1/nodes/{name}",
            {
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **more.get("labels", {})}},
                "spec": spec,
                "status": {
                    "allocatable": {"cpu": str(cpu), "memory": memory, "pods": str(pods), **more.get("extra", {})},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            },
        )
        return name

    def pod(self, name: str, cpu: str = "1", *, namespace: str = "default", **more: Any) -> str:
        """Create a pod and return its path; `memory`, `scheduler`, `node`, `spec` (further fields), `labels`, `owners`."""
        requests = {"cpu": cpu, **({"memory": more["memory"]} if "memory" in more else {})}
        spec = {
            "schedulerName": more.get("scheduler", "slotwise"),
            "containers": [{"name": "c", "resources": {"requests": requests}}],
            **more.get("spec", {}),
        }
        if "node" in more:
            spec["nodeName"] = more["node"]
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        meta = {"name": name, "namespace": namespace, "labels": more.get("labels", {})}
        if "owners" in more:
            meta["ownerReferences"] = more["owners"]
        self.put(path, {"metadata": meta, "spec": spec, "status": {"phase": more.get("phase", "Pending")}})
        return path

    def phase(self, path: str, phase: str, code: int = 0) -> None:
        """Let a pod run or end, as its kubelet would."""

        def change(pod: Object) -> None:
            pod["status"] |= {"phase": phase, "startTime": "2026-01-01T00:01:00Z"}
            if phase in ("Succeeded", "Failed"):
                end = {"exitCode": code, "reason": "Error" if code else "Completed"}
                pod["status"]["containerStatuses"] = [{"name": "c", "state": {"terminated": end}}]

        self.update(path, change)

    def node_of(self, path: str) -> str:
        """Return the node that a pod is bound to; "" if there is none."""
        with self.changed:
            pod = self.objects.get(path)
            return str(pod["spec"].get("nodeName") or "") if pod else ""

    def condition(self, path: str) -> str:
        """Return the message of the condition PodScheduled=False."""
        with self.changed:
            found = (self.objects.get(path) or {}).get("status", {}).get("conditions") or []
            return next((one["message"] for one in found if one["type"] == "PodScheduled"), "")

    def events_of(self, path: str) -> list[str]:
        """Return the notes of events about a pod."""
        name = path.rpartition("/")[2]
        with self.changed:
            return [
                one["note"]
                for at, one in self.objects.items()
                if "/events/" in at and one["regarding"]["name"] == name
            ]

    def cut_watches(self) -> None:
        """End all watches, as a server that restarts."""
        with self.changed:
            self.cut += 1
            self.changed.notify_all()

    def forget_history(self) -> None:
        """Make every version before now too old to watch from, and end the watches."""
        with self.changed:
            self.version += 1
            self.oldest = self.version
            self.cut += 1
            self.changed.notify_all()

    @contextmanager
    def failing(self, status: int, method: str = "", part: str = "", times: int = 10**9) -> Iterator[None]:
        """Answer requests with this status; 0: break the connection."""
        left = itertools.count(times, -1)

        def fault(asked: str, path: str) -> int | None:
            return status if asked.startswith(method) and part in path and next(left) > 0 else None

        self.fault = fault
        try:
            yield
        finally:
            self.fault = lambda method, path: None

    # -- requests ---------------------------------------------------------------------------------------------------

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Object:
        """Return the answer to a request that is no watch."""
        with self.changed:
            if method == "GET":
                return self._get(path, query)
            if method == "POST" and path.endswith("/binding"):
                return self._bind(path.removesuffix("/binding"), body)
            if method == "POST":
                at = f"{path}/{body['metadata']['name']}"
                if at in self.objects:
                    raise RefusalError(409, "exists", "AlreadyExists")
                return self.put(at, body)
            found = self.objects.get(path.removesuffix("/status"))
            if found is None:
                raise RefusalError(404, "not found", "NotFound")
            if method == "PUT":
                if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
                    raise RefusalError(409, "the object has been modified", "Conflict")
                if body["spec"].get("holderIdentity") == "":
                    raise RefusalError(422, "spec.holderIdentity: must not be empty", "Invalid")
                return self.put(path, body)
            if body["metadata"]["uid"] != found["metadata"]["uid"]:
                raise RefusalError(409, "the uid is another", "Conflict")
            kinds = {one["type"] for one in body["status"]["conditions"]}
            value = copy.deepcopy(found)
            kept = [one for one in value["status"].get("conditions") or [] if one["type"] not in kinds]
            value["status"]["conditions"] = kept + body["status"]["conditions"]
            return self.put(path.removesuffix("/status"), value)

    def _get(self, path: str, query: dict[str, str]) -> Object:
        if path in self.objects:
            return copy.deepcopy(self.objects[path])
        kind = path.rpartition("/")[2]
        if kind not in ("pods", "nodes"):
            raise RefusalError(404, f"{path} not found", "NotFound")
        found = sorted(at for at in self.objects if self._is_under(at, kind) and selected(self.objects[at], query))
        first = int(query.get("continue", "0").split(":")[0])
        version = query["continue"].split(":")[1] if "continue" in query else str(self.version)
        if int(version) < self.oldest:
            raise RefusalError(410, "the continue parameter is too old", "Expired")
        meta = {"resourceVersion": version}
        if first + PAGE < len(found):
            meta["continue"] = f"{first + PAGE}:{version}"
        return {"metadata": meta, "items": [copy.deepcopy(self.objects[at]) for at in found[first : first + PAGE]]}

    @staticmethod
    def _is_under(path: str, kind: str) -> bool:
        parts = path.split("/")
        return parts[-2] == kind

    def _bind(self, path: str, body: Object) -> Object:
        pod = self.objects.get(path)
        if pod is None:
            raise RefusalError(404, f"{path} not found", "NotFound")
        if body["metadata"].get("uid") not in (None, pod["metadata"]["uid"]):
            raise RefusalError(409, "Precondition failed: UID in precondition", "Conflict")
        if pod["metadata"].get("deletionTimestamp"):
            raise RefusalError(409, "pod is being deleted, cannot be assigned to a host", "Conflict")
        if pod["spec"].get("nodeName"):
            raise RefusalError(409, f"pod is already assigned to node {pod['spec']['nodeName']!r}", "Conflict")
        node = body["target"]["name"]  # the real server does not look whether the node exists either
        self.bindings.append((pod["metadata"]["uid"], node))
        value = copy.deepcopy(pod)
        value["spec"]["nodeName"] = node
        kept = [one for one in value["status"].get("conditions") or [] if one["type"] != "PodScheduled"]
        value["status"]["conditions"] = kept
        self.put(path, value)
        return {"kind": "Status", "status": "Success"}

    def watch(
        self, path: str, query: dict[str, str], begin: Callable[[], None], send: Callable[[Object], None]
    ) -> None:
        """Send events until the watch ends."""
        kind = path.rpartition("/")[2]
        with self.changed:
            at, cut = int(query["resourceVersion"]), self.cut
            if at < self.oldest:
                told = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
                if not self.error_in_watch:
                    raise RefusalError(410, "too old resource version", "Expired")
                begin()
                send({"type": "ERROR", "object": told})
                return
        begin()
        place, end = 0, time.monotonic() + float(query.get("timeoutSeconds", 3600))
        while True:
            with self.changed:
                while place >= len(self.log) and self.cut == cut and not self._closing and time.monotonic() < end:
                    self.changed.wait(end - time.monotonic())
                if self.cut != cut or self._closing or time.monotonic() >= end:
                    return
                news, place = self.log[place:], len(self.log)
            for version, told_kind, where, value, before in news:
                if self.mute or version <= at or not self._is_under(where, kind):
                    continue
                now, then = selected(value, query), before is not None and selected(before, query)
                event = told_kind if now and (then or told_kind != "MODIFIED") else "ADDED" if now else "DELETED"
                if told_kind == "DELETED":
                    event = "DELETED"
                if now or then:
                    for _ in range(2 if self.twice else 1):
                        send({"type": event, "object": value})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                parts = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                fake.calls.append((self.command, parts.path))
                fault = fake.fault(self.command, parts.path)
                if fault == 0:
                    self.close_connection = True
                    return
                try:
                    if fault is not None:
                        raise RefusalError(fault, "as the test wants", "Fault")
                    if query.get("watch"):
                        self.stream(parts.path, query)
                        return
                    found = fake.answer(self.command, parts.path, query, body)
                except RefusalError as error:
                    self.send(
                        error.status,
                        {"kind": "Status", "code": error.status, "reason": error.reason, "message": str(error)},
                    )
                    return
                if fake.lose_answers and parts.path.endswith("/binding"):
                    self.close_connection = True
                    return
                self.send(201 if self.command == "POST" else 200, found)

            do_GET = do_POST = do_PUT = do_PATCH = handle_any  # noqa: N815

            def send(self, status: int, body: Object) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def stream(self, path: str, query: dict[str, str]) -> None:
                def begin() -> None:
                    self.send_response(200)
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    self.wfile.flush()

                def send(event: Object) -> None:
                    data = json.dumps(event).encode() + b"\n"
                    half = len(data) // 2  # chunks need not be lines
                    for piece in (data[:half], data[half:]):
                        self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                    self.wfile.flush()

                try:
                    fake.watch(path, query, begin, send)
                    self.wfile.write(b"0\r\n\r\n")
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the client has gone
                self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        return Handler


def selected(value: Object, query: dict[str, str]) -> bool:
    """Return whether a field selector selects an object."""
    for part in filter(None, query.get("fieldSelector", "").split(",")):
        name, _, wanted = part.replace("!=", "=").partition("=")
        table, field = name.split(".")
        if ((value.get(table, {}).get(field) or "") == wanted) == ("!=" in part):
            return False
    return True
