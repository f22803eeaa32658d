"""The engine `kubernetes`. An event loop in a thread of its own talks to the API server; the service's thread only hands over placements.

Pods are known by their uid. A binding names the uid, a second binding is refused, and the service journals a placement before it is bound. So a
pod is bound at most once, and after any crash the pod itself says whether it was. Nothing is ever evicted or deleted.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import random
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from slotwise.errors import InputError, SlotwiseError
from slotwise.live.classes import wanted_kind
from slotwise.live.engines.kubernetes.access import find_access
from slotwise.live.engines.kubernetes.http import Access, ApiClient, StatusError
from slotwise.live.engines.kubernetes.lease import DURATION, Lease
from slotwise.live.engines.kubernetes.mirror import ALWAYS, Mirror
from slotwise.live.engines.kubernetes.nodes import read_node
from slotwise.live.engines.kubernetes.pods import Pod, machine_size, read_pod
from slotwise.live.engines.kubernetes.reports import Reports
from slotwise.live.engines.kubernetes.selectors import NONE, TAINTS
from slotwise.live.engines.kubernetes.watch import RELIST_SECONDS, Object, Reflector
from slotwise.live.engines.protocol import (
    Attempt,
    Deposed,
    Ended,
    Fact,
    Known,
    ServersChanged,
    ServerUp,
    Start,
    Tell,
    UnknownAttempt,
)
from slotwise.model import Cluster, ServerClass

log = logging.getLogger(__name__)
T = TypeVar("T")
SCHEDULER = "slotwise"
BINDERS = 24  # bindings under way at the same time
PUMP_SECONDS = 0.02  # events of the API server are gathered for so long
CHANGE_SECONDS = 2.0  # least time between two changes of capacities, each of which costs the service a new plan
BIND_SECONDS = 60.0  # after which a placement that the API server does not take is given back
LONGEST_PAUSE = 5.0
AGAIN_SECONDS = 0.2  # until tasks that missed a cancellation are cancelled again
RETELL_SECONDS = 300.0  # between two full reports, about, in case a fact was lost
NO_NODE = {"cpu": 1.0, "memory": 1024.0, "pods": 110.0}  # stands for the servers of a cluster that has no node yet
USE_KUBECTL = {
    "submit": "pods are jobs of this cluster: `kubectl apply` a pod with schedulerName {scheduler}",
    "cancel": "delete the pod instead: `kubectl delete pod`",
    "stop": "delete the pod instead: `kubectl delete pod`",
}


class KubernetesEngine:
    """See `Engine`."""

    name = "kubernetes"

    def __init__(
        self,
        folder: Path,
        *,
        kubeconfig: Path | None = None,
        context: str | None = None,
        scheduler: str = SCHEDULER,
        lease: str | None = None,
        access: tuple[Access, str] | None = None,
        lease_seconds: float = DURATION,
        relist: float = RELIST_SECONDS,
        explain_after: float | None = None,
    ) -> None:
        self.folder, self.scheduler = folder, scheduler
        self.refuses = {what: text.format(scheduler=scheduler) for what, text in USE_KUBECTL.items()}
        self._access, namespace = access or find_access(kubeconfig, context)
        space, _, name = (lease or f"{namespace}/{scheduler}").rpartition("/")
        self._lease_at = space or namespace, name
        self._lease_seconds, self._relist, self._explain_after = lease_seconds, relist, explain_after
        self.mirror = Mirror(scheduler)
        self._why: Callable[[str, str], Future[str | None]] | None = None
        self._tell: Tell | None = None
        self._troubles: dict[str, str] = {}  # with the API server, by what is watched
        self._machines: dict[str, dict[str, Decimal]] = {}  # sizes of virtual machines, by uid of their pods
        self._thread: threading.Thread | None = None
        self._lock: Any = None
        self._closed = False
        self._expects = False  # whether placements of an earlier service are yet to come

    # -- the protocol -------------------------------------------------------------------------------------------

    def attach(self, resources: Sequence[str], why: Callable[[str, str], Future[str | None]]) -> None:
        """Take what the service offers: the resources it counts, and explanations of why jobs wait."""
        self.mirror.resources, self._why = tuple(resources), why

    def open(self, tell: Tell, epoch: int) -> None:
        self._begin()
        self._run(self._take_over())
        self._tell = tell

    def servers(self) -> list[ServerUp]:
        found = self._run(self._servers())
        if not self._expects:
            self._loop.call_soon_threadsafe(self._start_pump)
        return found

    def cluster(self) -> Cluster:
        """Return the cluster that a new service begins with: the kinds of nodes there are, and the resources that some node offers."""
        self._begin()
        return self._run(self._cluster())

    def start(self, starts: Sequence[Start]) -> None:
        self._loop.call_soon_threadsafe(self._place, list(starts))
        if self._expects:
            self._expects = False
            self._loop.call_soon_threadsafe(self._start_pump)

    def stop(self, job: int, attempt: int) -> None:
        log.warning("job %d is asked to stop, but pods are not deleted here; %s", job, self.refuses["stop"])

    def known(self, attempts: Sequence[tuple[int, int, str]]) -> dict[Attempt, Known]:
        # Whether a pod was bound is found out by its uid, which comes with the placement: see `_place`. Until these placements have come,
        # pods that an earlier service bound look like pods of others, so nothing is told before.
        self._expects = bool(attempts)
        return {(job, attempt): UnknownAttempt() for job, attempt, _ in attempts}

    def settled(self, attempts: Sequence[Attempt]) -> None:
        pass  # the mirror forgets a placement when it tells the end

    def output(self, job: int, attempt: int, offset: int, limit: int) -> tuple[bytes, int] | None:
        return None

    def troubles(self) -> list[str]:
        """Return what is wrong with the API server, and how many pods the scheduler does not get, with the reason of one of them."""
        found = [f"the API server: {trouble}" for trouble in dict.fromkeys(list(self._troubles.values()))]
        outside = [(self.mirror.pods.get(uid), reason) for uid, reason in list(self.mirror.reasons.items())]
        named = sorted((pod.full_name, reason) for pod, reason in outside if pod is not None and not pod.gates)
        if named:
            found.append(f"pods that cannot be scheduled: {len(named)}, such as {named[0][0]}: {named[0][1]}")
        return found

    def _note_trouble(self, what: str, trouble: str | None) -> None:
        if trouble is None:
            self._troubles.pop(what, None)
        else:
            self._troubles[what] = trouble

    def close(self) -> None:
        if self._thread is not None and not self._closed:
            self._closed = True
            self._run(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
        if self._lock is not None:
            self._lock.close()

    # -- beginning and ending -----------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Start the thread, and wait until pods and nodes are known."""
        if self._thread is not None:
            return
        identity = self._identity()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="slotwise-kubernetes", daemon=True)
        self._thread.start()
        self._run(self._connect(identity))

    def _identity(self) -> str:
        """Return the name of this service, the same after a restart. No two processes use it at a time."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = open(self.folder / "identity", "a+")  # noqa: SIM115
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return f"{socket.gethostname()}-{uuid4().hex[:8]}"  # a standby in the same folder
        self._lock.seek(0)
        text = str(self._lock.read()).strip()
        if not text:
            text = f"{socket.gethostname()}-{uuid4().hex[:8]}"
            self._lock.write(text)
            self._lock.flush()
        return text

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _connect(self, identity: str) -> None:
        self._client = ApiClient(self._access)
        self._dirty = asyncio.Event()
        self._to_bind: asyncio.Queue[str] = asyncio.Queue()
        self._tasks: list[asyncio.Task[Any]] = []
        self._lease = Lease(self._client, *self._lease_at, identity, duration=self._lease_seconds)
        self._changed_at = float("-inf")
        own = {"fieldSelector": f"spec.schedulerName={self.scheduler}"}
        others = {
            "fieldSelector": f"spec.schedulerName!={self.scheduler},spec.nodeName!=,"
            "status.phase!=Succeeded,status.phase!=Failed"
        }
        self._reflectors = [
            Reflector(
                self._client,
                "/api/v1/nodes",
                listed=self._nodes_listed,
                changed=self._node,
                relist=self._relist,
                on_trouble=lambda trouble: self._note_trouble("nodes", trouble),
            ),
            *(
                Reflector(
                    self._client,
                    "/api/v1/pods",
                    listed=lambda pods, own=mine: self._pods_listed(pods, own),  # type: ignore[misc]
                    changed=self._pod,
                    params=params,
                    relist=self._relist,
                    on_trouble=lambda trouble, own=mine: self._note_trouble(f"pods {own}", trouble),  # type: ignore[misc]
                )
                for mine, params in ((True, own), (False, others))
            ),
        ]
        await self._check()
        for one in self._reflectors:
            self._go(one.run())
        for one in self._reflectors:
            await one.synced.wait()

    async def _check(self) -> None:
        """Find mistakes in what the user said before anything is tried for long."""
        said, pause = 0.0, 0.05
        while True:
            try:
                await self._client.call("GET", "/api/v1/nodes", params={"limit": 1})
                return
            except StatusError as error:
                if error.status == 401:
                    raise InputError(
                        f"the API server does not accept the credentials: {error}",
                        where="--kubeconfig",
                        remedy="`kubectl get nodes` with the same file shows whether they are valid",
                    ) from None
                trouble: SlotwiseError = error
            except InputError:
                raise
            except SlotwiseError as error:
                trouble = error
            if time.monotonic() - said > 10:
                said = time.monotonic()
                log.warning("waiting for the API server: %s", trouble)
            await asyncio.sleep(pause)
            pause = min(1.0, pause * 2)

    async def _take_over(self) -> None:
        """Become the one that schedules: hold the lease, then look anew at what an earlier service may have done last."""
        await self._lease.acquire()
        self._go(self._keep_lease())
        await asyncio.gather(*(one.refresh() for one in self._reflectors))

    async def _keep_lease(self) -> None:
        reason = await self._lease.keep()
        log.critical("%s", reason)
        if self._tell is not None:
            self._tell([Deposed(reason)])

    async def _end(self) -> None:
        pending = {task for task in self._tasks if not task.done()}
        while pending:  # a task may miss a cancellation that comes with an answer
            for task in pending:
                task.cancel()
            _, pending = await asyncio.wait(pending, timeout=AGAIN_SECONDS)
        try:
            await self._lease.leave()
        except SlotwiseError as error:
            log.warning("the lease is not given back, and runs out: %s", error)
        self._client.close()
        await asyncio.sleep(0)

    def _go(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a task until the end, and say so if it fails."""
        task = self._loop.create_task(work)
        task.add_done_callback(self._failed)
        self._tasks.append(task)

    def _failed(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.critical("the engine failed", exc_info=task.exception())
            if self._tell is not None:
                self._tell([Deposed(f"the engine failed: {task.exception()}")])

    # -- what the API server tells ------------------------------------------------------------------------------

    def _nodes_listed(self, nodes: Sequence[Object]) -> None:
        self.mirror.list_nodes(map(read_node, nodes))
        self._dirty.set()

    def _node(self, kind: str, node: Object) -> None:
        if kind == "DELETED":
            self.mirror.drop_node(node["metadata"]["name"])
        else:
            self.mirror.see_node(read_node(node))
        self._dirty.set()

    def _pods_listed(self, pods: Sequence[Object], own: bool) -> None:
        self.mirror.list_pods([self._read(pod) for pod in pods], own)
        self._dirty.set()

    def _pod(self, kind: str, pod: Object) -> None:
        found = self._read(pod)
        if kind == "DELETED":
            self.mirror.drop_pod(found.uid, found)
            self._machines.pop(found.uid, None)
        else:
            self.mirror.see_pod(found)
        self._dirty.set()

    def _read(self, pod: Object) -> Pod:
        found = read_pod(pod, self.scheduler)
        if found.vmi and found.scheduler == self.scheduler and not found.ended:
            found = self._with_machine(found)
        return found

    def _with_machine(self, pod: Pod) -> Pod:
        """Return a pod of KubeVirt with the size of its virtual machine; while that is not known, the pod is not handed over."""
        size = self._machines.get(pod.uid)
        if size is None:
            self._go(self._read_machine(pod))
            unknown = f"the size of its virtual machine {pod.vmi} is not known yet"
            return replace(pod, unsupported=(*pod.unsupported, unknown))
        return replace(pod, demand={**pod.demand, **{k: max(v, pod.demand.get(k, v)) for k, v in size.items()}})

    async def _read_machine(self, pod: Pod) -> None:
        path = f"/apis/kubevirt.io/v1/namespaces/{pod.namespace}/virtualmachineinstances/{pod.vmi}"
        pause = 0.5
        while pod.uid not in self._machines and (pod.uid in self.mirror.pods or pause < 1):
            try:
                self._machines[pod.uid] = machine_size(await self._client.call("GET", path))
            except SlotwiseError as error:
                if isinstance(error, StatusError) and error.status == 404:
                    self._machines[pod.uid] = {}
                else:
                    log.warning("cannot read the virtual machine of pod %s: %s", pod.full_name, error)
                    pause = min(LONGEST_PAUSE * 6, pause * 2)
                    await asyncio.sleep(pause)
        known = self.mirror.pods.get(pod.uid)
        if known is not None:
            await self._look_at(known.namespace, known.name, known.uid)

    async def _look_at(self, namespace: str, name: str, uid: str) -> None:
        """Read one pod."""
        try:
            pod = await self._client.call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
        except StatusError as error:
            if error.status != 404:
                raise
            self.mirror.drop_pod(uid)
        else:
            if pod["metadata"]["uid"] == uid:
                self.mirror.see_pod(self._read(pod))
            else:
                self.mirror.drop_pod(uid)
        self._dirty.set()

    # -- what is told to the service ----------------------------------------------------------------------------

    async def _servers(self) -> list[ServerUp]:
        return self.mirror.servers()

    async def _cluster(self) -> Cluster:
        offered = {name for node in self.mirror.nodes.values() for name, value in node.allocatable.items() if value}
        self.mirror.resources = resources = (*ALWAYS, *sorted(offered - set(ALWAYS)))
        servers = [one for one in self.mirror.shape() if all(one.capacity[name] for name in ALWAYS)]
        servers = servers or [ServerUp("none", NO_NODE, {TAINTS: NONE})]
        kinds = {wanted_kind(one, resources): None for one in servers}
        classes = tuple(
            ServerClass(name=f"class-{n}", count=1, capacity=capacity, labels=dict(labels))
            for n, (capacity, labels) in enumerate(kinds, start=1)
        )
        return Cluster(resources=resources, servers=classes)

    def _start_pump(self) -> None:
        self._emit([ServersChanged(tuple(self.mirror.servers()))])
        why = self._ask_why
        first = {} if self._explain_after is None else {"first": self._explain_after}
        self._reports = Reports(self._client, self.mirror, why, **first)
        for work in (self._pump(), self._reports.run(), self._reports.write_events(), self._retell()):
            self._go(work)
        for _ in range(BINDERS):
            self._go(self._bind_on())

    async def _ask_why(self, namespace: str, uid: str) -> str | None:
        if self._why is None:
            return None
        return await asyncio.wrap_future(self._why(namespace, uid))

    async def _pump(self) -> None:
        """Tell the service what is new."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            now = time.monotonic()
            patient = now - self._changed_at < CHANGE_SECONDS
            facts = self.mirror.facts(patient=patient)
            if any(isinstance(fact, ServersChanged) for fact in facts):
                self._changed_at = now
            self._emit(facts)
            if patient:
                self._loop.call_later(CHANGE_SECONDS, self._dirty.set)
            await asyncio.sleep(PUMP_SECONDS)

    async def _retell(self) -> None:
        while True:
            await asyncio.sleep(RETELL_SECONDS * random.uniform(0.9, 1.1))
            self.mirror.retell()
            self._dirty.set()

    def _emit(self, facts: Sequence[Fact]) -> None:
        now = time.time()
        if facts and self._tell is not None:
            self._tell([fact._replace(at=now) if isinstance(fact, Ended) else fact for fact in facts])

    # -- binding ------------------------------------------------------------------------------------------------

    def _place(self, starts: Sequence[Start]) -> None:
        """Take placements of the service: bind the pods, or tell what has become of them."""
        facts: list[Fact] = []
        for start in starts:
            key, pod = (start.job, start.attempt), start.spec.get("kubernetes")
            if pod is None:
                facts.append(Ended(*key, 1, 0.0, self.refuses["submit"]))
                continue
            needs: Mapping[str, Any] = start.spec.get("needs", {})
            demand = {name: Decimal(repr(value)) for name, value in needs.items()}
            found = self.mirror.place(key, pod["uid"], start.server, demand)
            if not isinstance(found, Pod):
                facts.append(found)
            elif not found.node:
                facts += self._admit(found, start.server)
        self._emit(facts)
        self._dirty.set()

    def _admit(self, pod: Pod, server: str) -> list[Fact]:
        reason = self.mirror.why_not(pod, server)
        if reason:
            return self.mirror.refuse(pod.uid, reason)
        reason = self.mirror.kept_out(pod, server)
        if reason:
            return self.mirror.hold(pod.uid, reason)
        self._to_bind.put_nowait(pod.uid)
        return []

    async def _bind_on(self) -> None:
        while True:
            uid = await self._to_bind.get()
            await self._bind(uid)

    async def _bind(self, uid: str) -> None:
        """Bind a pod to the node that it is placed on, as long as it is placed there."""
        began, pause = time.monotonic(), 0.1
        while True:
            held, pod = self.mirror.live.get(uid), self.mirror.pods.get(uid)
            if held is None or pod is None or pod.node:
                return
            if not self._lease.held:  # a process that was stopped for a while renews it soon, or ends
                await asyncio.sleep(pause)
                continue
            try:
                await self._client.call(
                    "POST", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/binding", binding(pod, held.server)
                )
            except SlotwiseError as error:
                status = error.status if isinstance(error, StatusError) else 0
                try:
                    if status in (404, 409):
                        await self._look_at(pod.namespace, pod.name, uid)
                except SlotwiseError as another:
                    log.debug("cannot look at pod %s: %s", pod.full_name, another)
                if status in (400, 422) or time.monotonic() - began > BIND_SECONDS:
                    self._emit(self.mirror.hold(uid, f"the binding to {held.server} was refused: {error}"))
                    self._dirty.set()
                    return
                if status not in (404, 409):
                    log.warning("cannot bind pod %s, trying on: %s", pod.full_name, error)
                await asyncio.sleep(pause * random.uniform(0.5, 1))
                pause = min(LONGEST_PAUSE, pause * 2)
                continue
            self._reports.bound(pod, held.server)
            return


def binding(pod: Pod, node: str) -> dict[str, Any]:
    """Return the binding of a pod, which the API server refuses for another pod of the same name."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
