"""What users of Kubernetes see: the condition PodScheduled=False with the reason why a pod waits, and events.

Conditions and events are written behind everything else and not too often: a pod that goes on waiting is explained again after
pauses that double. Nothing here decides anything, and what cannot be written is tried again with the next change.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

from slotwise.errors import SlotwiseError
from slotwise.live.engines.kubernetes.http import ApiClient
from slotwise.live.engines.kubernetes.lease import timestamp
from slotwise.live.engines.kubernetes.mirror import Mirror
from slotwise.live.engines.kubernetes.pods import Pod

log = logging.getLogger(__name__)
FIRST_SECONDS = 3.0  # a pod that waits for less is not explained
LONGEST_SECONDS = 600.0
SCAN_SECONDS = 0.5  # between two looks for pods to explain
AT_ONCE = 10  # pods explained in one scan
BACKLOG = 2_000  # events that wait to be written; older ones are dropped
LONGEST_NOTE = 1_000  # characters; the API server refuses more than 1,024
PATCH = "application/strategic-merge-patch+json"
UNSCHEDULABLE, GATED = "Unschedulable", "SchedulingGated"

Why = Callable[[str, str], Awaitable[str | None]]


class Reports:
    """Writes conditions and events for the pods of a mirror."""

    def __init__(self, client: ApiClient, mirror: Mirror, why: Why, *, first: float = FIRST_SECONDS) -> None:
        self.client, self.mirror, self.why, self.first = client, mirror, why, first
        self._due: dict[str, tuple[float, float]] = {}  # when a pod is explained next, and the pause before that
        self._said: dict[str, str] = {}
        self._events: deque[dict[str, Any]] = deque(maxlen=BACKLOG)
        self._wake = asyncio.Event()

    def bound(self, pod: Pod, node: str) -> None:
        """A pod was bound."""
        self._due.pop(pod.uid, None)
        self._said.pop(pod.uid, None)
        self._event(pod, "Normal", "Scheduled", "Binding", f"Successfully assigned {pod.full_name} to {node}")

    async def run(self) -> None:
        """Explain pods that wait, until cancelled."""
        while True:
            await asyncio.sleep(SCAN_SECONDS)
            for pod in self._waiting(time.monotonic()):
                await self._explain(pod)

    async def write_events(self) -> None:
        """Write events, until cancelled."""
        while True:
            while self._events:
                event = self._events.popleft()
                space = event["metadata"]["namespace"]
                try:
                    await self.client.call("POST", f"/apis/events.k8s.io/v1/namespaces/{space}/events", event)
                except SlotwiseError as error:
                    log.debug("cannot write an event: %s", error)
                    await asyncio.sleep(SCAN_SECONDS)
            self._wake.clear()
            await self._wake.wait()

    def _waiting(self, now: float) -> list[Pod]:
        """Return pods that are due to be explained, the longest overdue first."""
        mirror = self.mirror
        waiting = {*mirror.reasons, *mirror.handed} - mirror.live.keys()
        self._due = {uid: due for uid, due in self._due.items() if uid in waiting}
        self._said = {uid: text for uid, text in self._said.items() if uid in waiting}
        for uid in waiting - self._due.keys():
            self._due[uid] = now + (0.0 if uid in mirror.reasons else self.first), self.first
        due = sorted((at, uid) for uid, (at, _) in self._due.items() if at <= now)
        found = []
        for _, uid in due[:AT_ONCE]:
            pause = min(LONGEST_SECONDS, self._due[uid][1] * 2)
            self._due[uid] = now + pause, pause
            pod = mirror.pods.get(uid)
            if pod is not None and not pod.gates and not pod.node:
                found.append(pod)
        return found

    async def _explain(self, pod: Pod) -> None:
        reason = self.mirror.reasons.get(pod.uid)
        try:
            if reason is None:
                reason = await self.why(pod.namespace, pod.uid)
            if not reason or self._said.get(pod.uid) == reason or pod.uid in self.mirror.live:
                return
            note = reason if len(reason) <= LONGEST_NOTE else f"{reason[: LONGEST_NOTE - 4]} ..."
            if pod.told != note:
                await self.client.call(
                    "PATCH",
                    f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status",
                    condition(pod, note),
                    content=PATCH,
                )
            self._said[pod.uid] = reason
            self._event(pod, "Warning", "FailedScheduling", "Scheduling", note)
        except SlotwiseError as error:
            log.debug("cannot explain pod %s: %s", pod.full_name, error)

    def _event(self, pod: Pod, kind: str, reason: str, action: str, note: str) -> None:
        self._events.append(
            {
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": {"name": f"{pod.name[:200]}.{uuid4().hex[:16]}", "namespace": pod.namespace},
                "eventTime": timestamp(),
                "reportingController": self.mirror.scheduler,
                "reportingInstance": f"{self.mirror.scheduler}-{socket.gethostname()}"[:128],
                "action": action,
                "reason": reason,
                "type": kind,
                "note": note,
                "regarding": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "namespace": pod.namespace,
                    "name": pod.name,
                    "uid": pod.uid,
                },
            }
        )
        self._wake.set()


def condition(pod: Pod, message: str) -> dict[str, Any]:
    """Return the patch that tells why a pod is not scheduled. The uid keeps it from another pod of the same name."""
    now = timestamp()
    return {
        "metadata": {"uid": pod.uid},
        "status": {
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": UNSCHEDULABLE,
                    "message": message,
                    "lastProbeTime": None,
                    "lastTransitionTime": now[:19] + "Z",
                }
            ]
        },
    }
