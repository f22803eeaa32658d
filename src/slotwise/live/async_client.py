"""The client for asyncio: `AsyncClient` has the methods of `Client`, with `await`. Requests are made in threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from slotwise.live.client import Client, Handle, Job
from slotwise.live.transport import Answer

T = TypeVar("T")
END = object()


async def in_threads(make: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
    """Yield what an iterator gives; each step runs in a thread."""
    iterator = make()
    while True:
        item = await asyncio.to_thread(next, iterator, END)
        if item is END:
            return
        yield item  # type: ignore[misc]


class AsyncHandle:
    """A submitted job."""

    def __init__(self, handle: Handle) -> None:
        self._handle, self.id = handle, handle.id

    def __repr__(self) -> str:
        return f"<job {self.id}>"

    async def status(self) -> Job:
        """Return the job as it is now."""
        return await asyncio.to_thread(self._handle.status)

    async def done(self) -> bool:
        """Return whether the job has ended."""
        return await asyncio.to_thread(self._handle.done)

    async def running(self) -> bool:
        """Return whether the job runs now."""
        return await asyncio.to_thread(self._handle.running)

    async def cancelled(self) -> bool:
        """Return whether the job was cancelled or stopped."""
        return await asyncio.to_thread(self._handle.cancelled)

    async def cancel(self) -> bool:
        """Cancel the job if it still waits."""
        return await asyncio.to_thread(self._handle.cancel)

    async def result(self, timeout: float | None = None) -> Job:
        """Wait until the job has ended."""
        return await asyncio.to_thread(self._handle.result, timeout)

    async def output(self) -> bytes:
        """Return everything that the job wrote."""
        return await asyncio.to_thread(self._handle.output)


class AsyncClient:
    """The client for asyncio."""

    def __init__(self, server: str | None = None, token: str | None = None, profile: str | None = None) -> None:
        self._client = Client(server, token, profile)
        self.address = self._client.address

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._client.close()

    async def call(self, method: str, path: str, **options: Any) -> Answer:
        """Make any request; an error of the service is raised in its own words."""
        return await asyncio.to_thread(self._client.call, method, path, **options)

    async def submit(self, argv: Sequence[str], **options: Any) -> AsyncHandle:
        """Submit a command; options are the keys of the API: needs, type, env, cwd, name, key, on_loss, array, after, retry, ..."""
        return AsyncHandle(await asyncio.to_thread(self._client.submit, argv, **options))

    async def submit_many(self, jobs: Sequence[dict[str, Any]]) -> list[AsyncHandle]:
        """Submit many jobs, each a mapping with `argv` and the other keys of the API: all or none."""
        return [AsyncHandle(handle) for handle in await asyncio.to_thread(self._client.submit_many, jobs)]

    async def job(self, number: int) -> Job:
        """Return one job."""
        return await asyncio.to_thread(self._client.job, number)

    async def cancel(self, number: int) -> Job:
        """Cancel a waiting job."""
        return await asyncio.to_thread(self._client.cancel, number)

    async def stop(self, number: int) -> Job:
        """Stop a running job."""
        return await asyncio.to_thread(self._client.stop, number)

    async def explain(self, what: int | str) -> str:
        """Return why a job runs or waits (by its number), or what a server does (by its name)."""
        return await asyncio.to_thread(self._client.explain, what)

    def jobs(self, *, limit: int | None = None, **conditions: Any) -> AsyncIterator[Job]:
        """Yield jobs that meet the conditions (state, type, server, array, name, tenant, id), page by page."""
        return in_threads(lambda: self._client.jobs(limit=limit, **conditions))

    def output(self, number: int, *, follow: bool = False) -> AsyncIterator[bytes]:
        """Yield what a job wrote, piece by piece; with `follow` until it has ended."""
        return in_threads(lambda: self._client.output(number, follow=follow))

    def as_completed(self, jobs: Iterable[int | AsyncHandle], timeout: float | None = None) -> AsyncIterator[Job]:
        """Yield jobs as they end."""
        numbers = [job.id if isinstance(job, AsyncHandle) else job for job in jobs]
        return in_threads(lambda: self._client.as_completed(numbers, timeout))

    async def wait(self, jobs: Iterable[int | AsyncHandle], timeout: float | None = None) -> list[Job]:
        """Wait for all jobs; return those that ended in time."""
        return [job async for job in self.as_completed(jobs, timeout)]

    async def servers(self) -> list[dict[str, Any]]:
        """Return all servers."""
        return await asyncio.to_thread(self._client.servers)

    async def drain(self, name: str, reason: str = "asked for") -> dict[str, Any]:
        """Drain a server."""
        return await asyncio.to_thread(self._client.drain, name, reason)

    async def resume(self, name: str) -> dict[str, Any]:
        """Let a drained server take jobs again."""
        return await asyncio.to_thread(self._client.resume, name)

    async def cluster(self) -> dict[str, Any]:
        """Return types, classes and policy."""
        return await asyncio.to_thread(self._client.cluster)

    async def change(self, **what: Any) -> dict[str, Any]:
        """Change the policy, types or classes while jobs run."""
        return await asyncio.to_thread(self._client.change, **what)

    def events(self, after: int | None = None, *, follow: bool = True) -> AsyncIterator[dict[str, Any]]:
        """Yield the journal, row by row; each row has `seq`."""
        return in_threads(lambda: self._client.events(after, follow=follow))
