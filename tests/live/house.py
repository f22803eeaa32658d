"""A service with its application, on the simulated engine, and a token for each role."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
from fastapi.testclient import TestClient

from slotwise.live.api.app import make_app
from slotwise.live.api.limits import Limits
from slotwise.live.auth import Guard
from slotwise.live.engines.protocol import ServerUp
from slotwise.live.engines.simulated import SimulatedEngine, exponential
from slotwise.live.restart import Setup
from slotwise.live.service import Service
from slotwise.live.store import open_store
from slotwise.live.time_limits import TimeLimits
from slotwise.model import Cluster, JobType, ServerClass

SETUP = Setup(
    Cluster(resources=("cpu", "memory"), servers=(ServerClass(name="a", count=1, capacity=("4", "1000")),)),  # type: ignore[arg-type]
    (JobType(name="one", demand=("1", "0")),),  # type: ignore[arg-type]
    policy="best-fit",
)
SLOW = 1000.0


class NoForecasts:
    """A desk without a worker: a process of its own for each house would take longer than its tests."""

    is_ready = False

    def ask(self, kind: str, **request: Any) -> dict[str, Any]:
        return {"reason": f"no {kind} here"}

    def written(self, kind: str, **request: Any) -> bytes:
        return json.dumps(self.ask(kind, **request)).encode()

    def close(self) -> None:
        """Nothing is open."""


class House:
    """See above."""

    def __init__(self, folder: Path, name: str = "x", times: TimeLimits | None = None, **limits: Any) -> None:
        engine = SimulatedEngine(
            [ServerUp("s", {"cpu": 4, "memory": 1000}, server_class="a")], exponential(1, 0.001)
        )
        self.service = Service(open_store(f"sqlite:///{folder}/{name}.db"), engine, SETUP)
        self.service.forecasts = NoForecasts()  # type: ignore[assignment]
        self.guard = Guard(self.service.store)
        self.limits = Limits(self.service.store.waiting_of, **{"pause": 0.0, **limits})
        self.app = make_app(self.service, self.guard, limits=self.limits, times=times)
        self.tokens = {role: self.guard.create(role)[1] for role in ("read", "submit", "operate")}
        self.http = TestClient(self.app, base_url="http://127.0.0.1:8700", raise_server_exceptions=False)

    def call(self, method: str, path: str, role: str | None = "operate", **options: Any) -> httpx.Response:
        headers = options.pop("headers", {})
        if role is not None:
            headers = {"Authorization": f"Bearer {self.tokens.get(role, role)}", **headers}
        return self.http.request(method, path, headers=headers, **options)

    def submit(self, role: str = "submit", **spec: Any) -> int:
        answer = self.call("POST", "/v1/jobs", role, json={"argv": ["x"], **spec})
        assert answer.status_code == 201, answer.text
        return int(answer.json()["id"])

    def until_placed(self, number: int) -> None:
        """Wait until a job has room: those of the tests before may still run."""
        while self.call("GET", f"/v1/jobs/{number}").json()["state"] == "waiting":
            pass


class Exchange:
    """One request, spoken to the application itself: shows what is read of a body, and follows a stream."""

    def __init__(
        self,
        app: Any,
        method: str,
        path: str,
        token: str | None = None,
        *,
        body: list[bytes] | None = None,
        **options: Any,
    ) -> None:
        headers = {"host": "127.0.0.1:8700", **options.get("headers", {})}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        self.read = 0
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self._body, self._gone = list(body or []), asyncio.Event()
        self._said: asyncio.Queue[bytes] = asyncio.Queue()
        path, _, query = path.partition("?")
        scope = {
            "type": "http", "method": method, "path": path, "query_string": query.encode(), "scheme": "http", "http_version": "1.1",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()], "state": options.get("state", {}),
        }  # fmt: skip
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._body:
            self.read += len(self._body[0])
            return {"type": "http.request", "body": self._body.pop(0), "more_body": bool(self._body)}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self._said.put_nowait(message.get("body", b""))

    async def next(self) -> bytes:
        """What the application says next."""
        return await self._said.get()

    async def until(self, text: bytes) -> bytes:
        """The first piece with this text."""
        while text not in (piece := await self.next()):
            pass
        return piece

    async def ended(self) -> None:
        """Until the answer is complete."""
        await self.task

    async def hang_up(self) -> None:
        """The client goes."""
        self._gone.set()
        await self.task
