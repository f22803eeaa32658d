"""The client for asyncio: the same as `Client`, with `await`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any
from urllib.parse import quote

import httpx

from slotwise.live.addresses import find_address
from slotwise.live.client import (
    ENDED,
    PIECE,
    Job,
    Rhythm,
    events_in,
    first_page,
    job_of,
    next_page,
    place_of,
    submission,
)
from slotwise.live.transport import TIMEOUT, ServiceError, absent, problem_of


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
            raise absent(self.address.url, error) from None
        if not answer.is_success:
            raise problem_of(answer.status_code, answer.reason_phrase, answer.content)
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
        return job_of((await self.call("GET", f"/v1/jobs/{number}")).json())

    async def cancel(self, number: int) -> Job:
        """Withdraw a waiting job."""
        return job_of((await self.call("POST", f"/v1/jobs/{number}/cancel")).json())

    async def stop(self, number: int) -> Job:
        """End a running job."""
        return job_of((await self.call("POST", f"/v1/jobs/{number}/stop")).json())

    async def explain(self, what: int | str) -> str:
        """Why a job runs or waits (by its number), or what a server does (by its name)."""
        return str((await self.call("GET", f"{place_of(what)}/explain")).json()["text"])

    async def jobs(self, *, limit: int | None = None, **conditions: Any) -> AsyncIterator[Job]:
        """Jobs that meet the conditions (state, type, server, array, name, tenant, id), page by page."""
        asked: dict[str, Any] | None = first_page(limit, conditions)
        while asked is not None:
            page = (await self.call("GET", "/v1/jobs", params=asked)).json()
            for one in page["jobs"]:
                yield job_of(one)
            asked = next_page(asked, page, limit)
            limit = None if limit is None else limit - len(page["jobs"])

    async def output(self, number: int, *, follow: bool = False) -> AsyncIterator[bytes]:
        """What a job wrote, piece by piece; with `follow` until it has ended."""
        offset = 0
        while True:
            answer = await self.call("GET", f"/v1/jobs/{number}/output", params={"offset": offset})
            if answer.content:
                yield answer.content
                offset = int(answer.headers["x-next-offset"])
            elif not follow or answer.headers["x-state"] in ENDED:
                return
            else:
                await asyncio.sleep(0.2)

    async def as_completed(self, jobs: Iterable[int], timeout: float | None = None) -> AsyncIterator[Job]:
        """Jobs as they end."""
        left, rhythm = set(jobs), Rhythm(timeout)
        while left:
            ended: list[Job] = []
            numbers = sorted(left)
            try:
                for at in range(0, len(numbers), PIECE):
                    ended += [job async for job in self.jobs(id=numbers[at : at + PIECE], state=list(ENDED))]
            except ServiceError as error:
                rhythm.bear(error)
            left -= {job.id for job in ended}
            for job in ended:
                yield job
            if left:
                if rhythm.over:
                    return
                await asyncio.sleep(rhythm.pause(bool(ended)))

    async def wait(self, jobs: Iterable[int], timeout: float | None = None) -> list[Job]:
        """Wait for all of them; those that ended in time."""
        return [job async for job in self.as_completed(jobs, timeout)]

    async def servers(self) -> list[dict[str, Any]]:
        """All servers."""
        found: list[dict[str, Any]] = (await self.call("GET", "/v1/servers")).json()
        return found

    async def drain(self, name: str, reason: str = "asked for") -> dict[str, Any]:
        """The server takes no more jobs."""
        answer = await self.call("POST", f"/v1/servers/{quote(name, '')}/drain", json={"reason": reason})
        found: dict[str, Any] = answer.json()
        return found

    async def resume(self, name: str) -> dict[str, Any]:
        """It takes jobs again."""
        found: dict[str, Any] = (await self.call("POST", f"/v1/servers/{quote(name, '')}/resume")).json()
        return found

    async def cluster(self) -> dict[str, Any]:
        """Types, classes, policy."""
        found: dict[str, Any] = (await self.call("GET", "/v1/cluster")).json()
        return found

    async def change(self, **what: Any) -> dict[str, Any]:
        """Another policy, other types or classes, while jobs run."""
        found: dict[str, Any] = (await self.call("PATCH", "/v1/cluster", json=what)).json()
        return found

    async def events(self, after: int | None = None, *, follow: bool = True) -> AsyncIterator[dict[str, Any]]:
        """The journal, row by row; each has `seq`."""
        asked: dict[str, Any] = {"follow": follow} | ({} if after is None else {"after": after})
        seq = 0
        try:
            async with self._http.stream(
                "GET", "/v1/events", params=asked, timeout=httpx.Timeout(TIMEOUT, read=None)
            ) as answer:
                if not answer.is_success:
                    raise problem_of(answer.status_code, answer.reason_phrase, await answer.aread())
                async for line in answer.aiter_lines():
                    for event in events_in([f"id: {seq}", line]):
                        yield event
                    if line.startswith("id: "):
                        seq = int(line[4:])
        except httpx.HTTPError as error:
            raise absent(self.address.url, error) from None
