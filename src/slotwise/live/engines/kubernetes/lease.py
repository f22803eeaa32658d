"""One service schedules at a time: a Lease of Kubernetes, held by renewing it.

Times in the Lease are written for people and never compared with this machine's clock. A Lease counts as left when it
has not changed for its duration, by the clock of the machine that watches it. The holder stops acting before that,
after `DEADLINE` seconds without a renewal.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import Any

from slotwise.errors import SlotwiseError
from slotwise.live.engines.kubernetes.http import ApiClient, StatusError

log = logging.getLogger(__name__)
DURATION = 15.0  # seconds without a change after which a Lease counts as left
DEADLINE = 8.0  # seconds after the last renewal in which the holder may act; requests end within 5 s more
RENEW = 2.0
REQUEST = 5.0  # seconds for a request, well below DEADLINE
SAY_SECONDS = 30.0  # between two lines of the log while another service holds the Lease
GROUP = "/apis/coordination.k8s.io/v1"


def timestamp() -> str:
    """Return the time as Kubernetes writes it, with microseconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Lease:
    """The Lease NAME in NAMESPACE. `identity` names this service, also after a restart: it takes its own Lease back at once."""

    def __init__(
        self, client: ApiClient, namespace: str, name: str, identity: str, *, duration: float = DURATION
    ) -> None:
        self.client, self.namespace, self.name, self.identity = client, namespace, name, identity
        self.duration = duration
        self.deadline, self.renew_every = duration * DEADLINE / DURATION, duration * RENEW / DURATION
        self._path = f"{GROUP}/namespaces/{namespace}/leases"
        self._seen: tuple[str, float] | None = None  # version, and when it was first seen
        self._renewed = float("-inf")
        self._taken = False

    @property
    def held(self) -> bool:
        """Return whether this service may act."""
        return self._taken and time.monotonic() - self._renewed < self.deadline

    async def acquire(self) -> None:
        """Wait until the Lease is this service's."""
        said = float("-inf")
        while True:
            try:
                holder = await self._try()
                if holder is None:
                    return
                told = f"held by {holder}"
            except SlotwiseError as error:
                told = str(error)
            if time.monotonic() - said > SAY_SECONDS:
                said = time.monotonic()
                log.info("waiting for the lease %s/%s: %s", self.namespace, self.name, told)
            await asyncio.sleep(self.renew_every)

    async def keep(self) -> str:
        """Renew the Lease as long as that is possible; return why it is not any more."""
        while True:
            await asyncio.sleep(self.renew_every)
            try:
                holder = await self._try()
                if holder is not None:
                    self._taken = False
                    return f"{holder} holds the lease {self.namespace}/{self.name} now"
            except SlotwiseError as error:
                if not self.held:
                    self._taken = False
                    return f"the lease {self.namespace}/{self.name} could not be renewed: {error}"

    async def leave(self) -> None:
        """Let another service take over at once."""
        if self._taken:
            self._taken = False
            found = await self.client.call("GET", f"{self._path}/{self.name}", timeout=REQUEST)
            if found["spec"].get("holderIdentity") == self.identity:
                del found["spec"]["holderIdentity"]  # the API server refuses an empty one
                await self.client.call("PUT", f"{self._path}/{self.name}", found, timeout=REQUEST)

    async def _try(self) -> str | None:
        """Take or renew the Lease; return its holder if that is another service."""
        began = time.monotonic()
        try:
            found = await self.client.call("GET", f"{self._path}/{self.name}", timeout=REQUEST)
        except StatusError as error:
            if error.status != 404:
                raise
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self.name, "namespace": self.namespace},
                "spec": self._spec({}),
            }
            await self.client.call("POST", self._path, body, timeout=REQUEST)
        else:
            spec, version = found.get("spec") or {}, found["metadata"]["resourceVersion"]
            holder = spec.get("holderIdentity") or ""
            if holder not in ("", self.identity):
                if self._seen is None or self._seen[0] != version:
                    self._seen = version, began
                if began - self._seen[1] < float(spec.get("leaseDurationSeconds") or self.duration):
                    return holder
            found["spec"] = self._spec(spec)
            try:  # with the version that was read: 409 if another service was faster
                await self.client.call("PUT", f"{self._path}/{self.name}", found, timeout=REQUEST)
            except StatusError as error:
                if error.status == 409:
                    return "another service"
                raise
        self._renewed, self._taken = began, True
        return None

    def _spec(self, old: dict[str, Any]) -> dict[str, Any]:
        mine, now = old.get("holderIdentity") == self.identity, timestamp()
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self.duration)),
            "acquireTime": old.get("acquireTime") or now if mine else now,
            "renewTime": now,
            "leaseTransitions": int(old.get("leaseTransitions") or 0) + (not mine),
        }
