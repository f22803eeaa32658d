"""The client: `Client` for programs, `AsyncClient` for asyncio; both speak the public API and nothing else.

>>> with Client() as client:                                        # doctest: +SKIP
...     job = client.submit(["python", "train.py"], needs={"cpu": 2})
...     print(job.result().exit_code)
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import tomllib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx

from slotwise.errors import InputError, SlotwiseError
from slotwise.live.auth import token_file

DEFAULT = "http://127.0.0.1:8700"
ENDED = ("done", "failed", "cancelled", "lost")
TIMEOUT = 60.0


class ServiceError(SlotwiseError):
    """The service said no, or is not there."""

    def __init__(self, message: str, status: int = 0) -> None:
        self.status = status
        super().__init__(message)


class Job(NamedTuple):
    """A job as the service tells it."""

    id: int
    state: str
    type: str
    name: str
    tenant: str
    server: str | None
    attempt: int
    exit_code: int | None
    reason: str | None
    submitted: float
    placed: float | None
    started: float | None
    ended: float | None
    array: int | None
    array_index: int | None
    key: str | None

    @property
    def has_ended(self) -> bool:
        """Whether it is over."""
        return self.state in ENDED


class Address(NamedTuple):
    """Where the service is and how to be let in."""

    url: str
    token: str | None


def config_file() -> Path:
    """Where profiles are written down."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base) / "slotwise" / "profiles.toml"


def find_address(server: str | None = None, token: str | None = None, profile: str | None = None) -> Address:
    """What was said, then the environment, then the profile, then the service on this machine with the token that it left here."""
    profile = profile or os.environ.get("SLOTWISE_PROFILE")
    kept: dict[str, Any] = {}
    if profile is not None:
        path = config_file()
        try:
            kept = tomllib.loads(path.read_text())[profile]
        except FileNotFoundError:
            raise InputError(
                "no such file", where=str(path), remedy=f"write [{profile}] with server and token in it"
            ) from None
        except (KeyError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"has no profile {profile!r} ({error})", where=str(path)) from None
    url = (server or os.environ.get("SLOTWISE_SERVER") or kept.get("server") or DEFAULT).rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise InputError(f"{url!r} is no address", where="--server", remedy=f"write it like {DEFAULT}")
    found = token or os.environ.get("SLOTWISE_TOKEN") or kept.get("token")
    if found is None:
        parts = urlsplit(url)
        try:
            found = token_file(parts.hostname or "", parts.port or 80).read_text().strip()
        except OSError:
            found = None
    return Address(url, found)


def submission(argv: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
    """A job as the API wants it."""
    return {"argv": list(argv), **{name: value for name, value in options.items() if value is not None}}


def raise_for(answer: httpx.Response, text: str | None = None) -> None:
    """An error of the service, in its own words."""
    if answer.is_success:
        return
    try:
        detail = str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        detail = (text or answer.reason_phrase).strip()
    if answer.status_code == 401:
        detail += "; set SLOTWISE_TOKEN, or use a profile"
    raise ServiceError(detail, answer.status_code)


def gone(url: str, error: httpx.HTTPError) -> ServiceError:
    """Nobody answers."""
    return ServiceError(
        f"{url}: no service answers ({error or type(error).__name__}); is `slotwise serve` running?"
    )


class Handle:
    """A submitted job: like a future of concurrent.futures, with `result` and `done`."""

    def __init__(self, client: Client, number: int) -> None:
        self.client, self.id = client, number

    def __repr__(self) -> str:
        return f"<job {self.id}>"

    def status(self) -> Job:
        """As it is now."""
        return self.client.job(self.id)

    def done(self) -> bool:
        """Whether it is over."""
        return self.status().has_ended

    def cancel(self) -> bool:
        """Withdraw it if it still waits."""
        try:
            self.client.cancel(self.id)
        except ServiceError as error:
            if error.status == 409:
                return False
            raise
        return True

    def result(self, timeout: float | None = None) -> Job:
        """Wait until it is over."""
        for job in self.client.as_completed([self.id], timeout):
            return job
        raise TimeoutError(f"job {self.id} has not ended")

    def output(self) -> bytes:
        """All that it wrote."""
        return b"".join(self.client.output(self.id))


class Client:
    """Blocking. Finds the service on this machine by itself."""

    def __init__(self, server: str | None = None, token: str | None = None, profile: str | None = None) -> None:
        self.address = find_address(server, token, profile)
        headers = {"Authorization": f"Bearer {self.address.token}"} if self.address.token else {}
        self._http = httpx.Client(base_url=self.address.url, headers=headers, timeout=TIMEOUT)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Any request; an error of the service is raised in its own words."""
        try:
            answer = self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise gone(self.address.url, error) from None
        raise_for(answer)
        return answer

    def submit(self, argv: Sequence[str], **options: Any) -> Handle:
        """Submit a command; options are the keys of the API: needs, type, env, cwd, name, key, on_loss, array, ..."""
        return Handle(self, self.call("POST", "/v1/jobs", json=submission(argv, options)).json()["id"])

    def submit_many(self, jobs: Sequence[dict[str, Any]]) -> list[Handle]:
        """Submit many, each a mapping with `argv` and the other keys of the API: all or none."""
        return [
            Handle(self, number) for number in self.call("POST", "/v1/jobs/bulk", json=list(jobs)).json()["ids"]
        ]

    def job(self, number: int) -> Job:
        """One job."""
        return Job(**self.call("GET", f"/v1/jobs/{number}").json())

    def jobs(self, *, limit: int | None = None, **conditions: Any) -> Iterator[Job]:
        """Jobs that meet the conditions (state, type, server, array, name, tenant, id), page by page."""
        after = None
        while limit is None or limit > 0:
            size = 1000 if limit is None else min(limit, 1000)
            asked = {name: value for name, value in conditions.items() if value is not None} | {"limit": size}
            if after is not None:
                asked["after"] = after
            page = self.call("GET", "/v1/jobs", params=asked).json()
            yield from (Job(**one) for one in page["jobs"])
            limit = None if limit is None else limit - len(page["jobs"])
            after = page["next"]
            if after is None:
                return

    def cancel(self, number: int) -> Job:
        """Withdraw a waiting job."""
        return Job(**self.call("POST", f"/v1/jobs/{number}/cancel").json())

    def stop(self, number: int) -> Job:
        """End a running job."""
        return Job(**self.call("POST", f"/v1/jobs/{number}/stop").json())

    def explain(self, number: int) -> str:
        """Why a job runs or waits."""
        return str(self.call("GET", f"/v1/jobs/{number}/explain").json()["text"])

    def output(self, number: int, *, follow: bool = False) -> Iterator[bytes]:
        """What a job wrote, piece by piece; with `follow` until it has ended."""
        offset = 0
        while True:
            answer = self.call("GET", f"/v1/jobs/{number}/output", params={"offset": offset})
            if answer.content:
                yield answer.content
                offset = int(answer.headers["x-next-offset"])
            elif not follow or answer.headers["x-state"] in ENDED:
                return
            else:
                time.sleep(0.2)

    def as_completed(self, jobs: Iterable[int | Handle], timeout: float | None = None) -> Iterator[Job]:
        """Jobs as they end."""
        left = {job.id if isinstance(job, Handle) else job for job in jobs}
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.02
        while left:
            ended = 0
            numbers = sorted(left)
            for at in range(0, len(numbers), 500):
                for job in self.jobs(id=numbers[at : at + 500], state=list(ENDED)):
                    left.discard(job.id)
                    ended += 1
                    yield job
            if deadline is not None and left and time.monotonic() >= deadline:
                return
            pause = 0.02 if ended else min(1.0, pause * 1.5)
            if left:
                time.sleep(pause if deadline is None else max(0.0, min(pause, deadline - time.monotonic())))

    def wait(self, jobs: Iterable[int | Handle], timeout: float | None = None) -> list[Job]:
        """Wait for all of them; those that ended in time."""
        return list(self.as_completed(jobs, timeout))

    def servers(self) -> list[dict[str, Any]]:
        """All servers."""
        found: list[dict[str, Any]] = self.call("GET", "/v1/servers").json()
        return found

    def drain(self, name: str, reason: str = "asked for") -> dict[str, Any]:
        """The server takes no more jobs."""
        answer: dict[str, Any] = self.call("POST", f"/v1/servers/{name}/drain", json={"reason": reason}).json()
        return answer

    def resume(self, name: str) -> dict[str, Any]:
        """It takes jobs again."""
        answer: dict[str, Any] = self.call("POST", f"/v1/servers/{name}/resume").json()
        return answer

    def cluster(self) -> dict[str, Any]:
        """Types, classes, policy."""
        answer: dict[str, Any] = self.call("GET", "/v1/cluster").json()
        return answer

    def change(self, **what: Any) -> dict[str, Any]:
        """Another policy, other types or classes, while jobs run."""
        answer: dict[str, Any] = self.call("PATCH", "/v1/cluster", json=what).json()
        return answer

    def events(self, after: int | None = None, *, follow: bool = True) -> Iterator[dict[str, Any]]:
        """The journal, row by row; each has `seq`."""
        asked: dict[str, Any] = {"follow": follow} | ({} if after is None else {"after": after})
        try:
            with self._http.stream(
                "GET", "/v1/events", params=asked, timeout=httpx.Timeout(TIMEOUT, read=None)
            ) as answer:
                if not answer.is_success:
                    answer.read()
                raise_for(answer)
                yield from _events(answer.iter_lines())
        except httpx.HTTPError as error:
            raise gone(self.address.url, error) from None


def _events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Server-sent events as mappings."""
    seq = 0
    for line in lines:
        if line.startswith("id: "):
            seq = int(line[4:])
        elif line.startswith("data: "):
            yield {"seq": seq, **json.loads(line[6:])}


class AsyncClient:
    """The same for asyncio."""

    def __init__(self, server: str | None = None, token: str | None = None, profile: str | None = None) -> None:
        self.address = find_address(server, token, profile)
        headers = {"Authorization": f"Bearer {self.address.token}"} if self.address.token else {}
        self._http = httpx.AsyncClient(base_url=self.address.url, headers=headers, timeout=TIMEOUT)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Any request; an error of the service is raised in its own words."""
        try:
            answer = await self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise gone(self.address.url, error) from None
        raise_for(answer)
        return answer

    async def submit(self, argv: Sequence[str], **options: Any) -> int:
        """Submit a command; the job's number."""
        answer = await self.call("POST", "/v1/jobs", json=submission(argv, options))
        return int(answer.json()["id"])

    async def submit_many(self, jobs: Sequence[dict[str, Any]]) -> list[int]:
        """Submit many: all or none."""
        answer = await self.call("POST", "/v1/jobs/bulk", json=list(jobs))
        return [int(number) for number in answer.json()["ids"]]

    async def job(self, number: int) -> Job:
        """One job."""
        return Job(**(await self.call("GET", f"/v1/jobs/{number}")).json())

    async def cancel(self, number: int) -> Job:
        """Withdraw a waiting job."""
        return Job(**(await self.call("POST", f"/v1/jobs/{number}/cancel")).json())

    async def stop(self, number: int) -> Job:
        """End a running job."""
        return Job(**(await self.call("POST", f"/v1/jobs/{number}/stop")).json())

    async def as_completed(self, jobs: Iterable[int]) -> AsyncIterator[Job]:
        """Jobs as they end."""
        left, pause = set(jobs), 0.02
        while left:
            numbers = sorted(left)
            ended = 0
            for at in range(0, len(numbers), 500):
                asked = {"id": numbers[at : at + 500], "state": list(ENDED), "limit": 500}
                for one in (await self.call("GET", "/v1/jobs", params=asked)).json()["jobs"]:
                    left.discard(one["id"])
                    ended += 1
                    yield Job(**one)
            pause = 0.02 if ended else min(1.0, pause * 1.5)
            if left:
                await asyncio.sleep(pause)

    async def wait(self, jobs: Iterable[int]) -> list[Job]:
        """Wait for all of them."""
        return [job async for job in self.as_completed(jobs)]
