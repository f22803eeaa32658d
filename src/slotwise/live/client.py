"""The client: `Client` for programs; it speaks the public API and nothing else. `AsyncClient` beside it is for asyncio.

>>> with Client() as client:                                        # doctest: +SKIP
...     job = client.submit(["python", "train.py"], needs={"cpu": 2})
...     print(job.result().exit_code)
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from slotwise.errors import InputError
from slotwise.live.addresses import find_address
from slotwise.live.after import after_of
from slotwise.live.transport import Answer, ServiceError, Transport

ENDED = ("done", "failed", "cancelled", "lost")
# Seconds that a caller that waits for jobs goes on waiting for a service that is away.
PATIENCE = 600.0
PAGE = 1000  # jobs in one request
# Jobs in one request for their states.
PIECE = 500


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
    retries: int
    due: float | None

    @property
    def has_ended(self) -> bool:
        """Return whether the job has ended."""
        return self.state in ENDED


def job_of(values: dict[str, Any]) -> Job:
    """Of an answer, which may say more."""
    return Job(**{name: values[name] for name in Job._fields})


def submission(argv: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
    """Return a job as the API takes it. The working directory is made absolute: the service does not know the caller's."""
    if isinstance(argv, str | bytes) or not isinstance(argv, Iterable):
        raise InputError(
            f"{argv!r} is {'one text' if isinstance(argv, str | bytes) else 'no command'}",
            where="argv",
            remedy="give a list, such as ['echo', 'hi'] or ['sh', '-c', '...']",
        )
    given = {name: value for name, value in options.items() if value is not None}
    for name in ("cwd", "stdin", "stdout", "stderr"):
        if name in given:
            given[name] = os.path.abspath(given[name])
    if "after" in given:
        given["after"] = dependencies(given["after"])
    return {"argv": list(argv), **given}


def dependencies(after: Any) -> dict[str, list[Any]]:
    """Return dependencies as the API takes them, from jobs, numbers, texts such as "any:7", lists of these, or a mapping from kinds to lists."""
    if isinstance(after, Mapping):
        return {kind: [number_of(one) for one in listed(some)] for kind, some in after.items()}
    found: dict[str, list[Any]] = {}
    for one in listed(after):
        if isinstance(one, str):
            try:
                read = after_of([one])
            except ValueError as error:
                raise InputError(f"{one!r} {error}", where="after") from None
        else:
            read = {"ok": [number_of(one)]}
        for kind, ids in read.items():
            found.setdefault(kind, []).extend(ids)
    return found


def listed(some: Any) -> list[Any]:
    """Return a list as it is, and anything else as a list with one item."""
    return list(some) if isinstance(some, list | tuple | set) else [some]


def number_of(job: Any) -> Any:
    """Return the number of a handle; numbers and texts are returned as they are."""
    return getattr(job, "id", job)


def place_of(what: int | str) -> str:
    """Return the path of a job by its number, or of a server by its name."""
    return f"/v1/jobs/{what}" if isinstance(what, int) else f"/v1/servers/{quote(what, '')}"


def first_page(limit: int | None, conditions: dict[str, Any]) -> dict[str, Any]:
    """Return the question for the first page."""
    asked = {name: value for name, value in conditions.items() if value is not None}
    return asked | {"limit": min(limit or PAGE, PAGE)}


def next_page(asked: dict[str, Any], page: dict[str, Any], limit: int | None) -> dict[str, Any] | None:
    """Return the question for the next page; None after the last."""
    left = PAGE if limit is None else limit - len(page["jobs"])
    if page["next"] is None or left <= 0:
        return None
    by_number = asked.get("sort") in (None, "id")
    after = {"after": page["next"]} if by_number else {"skip": asked.get("skip", 0) + len(page["jobs"])}
    return asked | after | {"limit": min(left, PAGE)}


class Rhythm:
    """How often to ask: soon after something has happened, then less and less often, until the timeout."""

    def __init__(self, timeout: float | None, patience: float | None = None) -> None:
        self._patience = PATIENCE if patience is None else patience
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._pause = 0.02
        self._away: float | None = None

    @property
    def over(self) -> bool:
        """Return whether the time is up."""
        return self._deadline is not None and time.monotonic() >= self._deadline

    def bear(self, error: ServiceError) -> bool:
        """Raise the error unless the service may come back soon; return whether it has just gone."""
        now, first = time.monotonic(), self._away is None
        self._away = self._away or now
        if not error.passing or now - self._away > self._patience:
            raise error
        return first

    def answered(self) -> None:
        """Note that the service is there."""
        self._away = None

    def pause(self, something: bool) -> float:
        """Return how long to sleep now."""
        if something:
            self.answered()
        self._pause = 0.02 if something else min(1.0, self._pause * 1.5)
        left = self._pause if self._deadline is None else self._deadline - time.monotonic()
        return max(0.0, min(self._pause, left))


class Handle:
    """A submitted job: like a future of concurrent.futures, with `result` and `done`."""

    def __init__(self, client: Client, number: int) -> None:
        self.client, self.id = client, number

    def __repr__(self) -> str:
        return f"<job {self.id}>"

    def status(self) -> Job:
        """Return the job as it is now."""
        return self.client.job(self.id)

    def done(self) -> bool:
        """Return whether the job has ended."""
        return self.status().has_ended

    def running(self) -> bool:
        """Return whether the job runs now."""
        return self.status().state in ("placed", "running")

    def cancelled(self) -> bool:
        """Return whether the job was withdrawn or stopped."""
        return self.status().state == "cancelled"

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
        """Return all that the job wrote."""
        return b"".join(self.client.output(self.id))


class Client:
    """Blocking. Finds the service on this machine by itself."""

    def __init__(self, server: str | None = None, token: str | None = None, profile: str | None = None) -> None:
        self.address = find_address(server, token, profile)
        self._http = Transport(self.address)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def call(self, method: str, path: str, *, params: Mapping[str, Any] | None = None, json: Any = None) -> Answer:
        """Return the answer to any request. Raise ServiceError, in the words of the service, where it refuses."""
        return self._http.call(method, path, params=params, json=json)

    def submit(self, argv: Sequence[str], **options: Any) -> Handle:
        """Submit a command; options are the keys of the API: needs, type, env, cwd, name, key, on_loss, array, after, retry, ..."""
        return Handle(self, self.call("POST", "/v1/jobs", json=submission(argv, options)).json()["id"])

    def submit_many(self, jobs: Sequence[dict[str, Any]]) -> list[Handle]:
        """Submit many, each a mapping with `argv` and the other keys of the API: all or none."""
        return [
            Handle(self, number) for number in self.call("POST", "/v1/jobs/bulk", json=list(jobs)).json()["ids"]
        ]

    def job(self, number: int) -> Job:
        """Return a job."""
        return job_of(self.call("GET", f"/v1/jobs/{number}").json())

    def detail(self, number: int) -> dict[str, Any]:
        """Return a job with what it executes: argv, cwd, needs, requires, labels, ..."""
        answer: dict[str, Any] = self.call("GET", f"/v1/jobs/{number}").json()
        return answer

    def jobs(self, *, limit: int | None = None, **conditions: Any) -> Iterator[Job]:
        """Yield the jobs that meet the conditions (state, type, server, array, name, tenant, id), page by page."""
        asked: dict[str, Any] | None = first_page(limit, conditions)
        while asked is not None:
            page = self.call("GET", "/v1/jobs", params=asked).json()
            yield from (job_of(one) for one in page["jobs"])
            asked = next_page(asked, page, limit)
            limit = None if limit is None else limit - len(page["jobs"])

    def cancel(self, number: int) -> Job:
        """Withdraw a waiting job."""
        return job_of(self.call("POST", f"/v1/jobs/{number}/cancel").json())

    def stop(self, number: int) -> Job:
        """End a running job."""
        return job_of(self.call("POST", f"/v1/jobs/{number}/stop").json())

    def explain(self, what: int | str) -> str:
        """Say why a job runs or waits (by its number), or what a server does (by its name)."""
        return str(self.call("GET", f"{place_of(what)}/explain").json()["text"])

    def output(
        self,
        number: int,
        *,
        follow: bool = False,
        attempt: int | None = None,
        on_state: Callable[[str, str | None], None] | None = None,
        on_away: Callable[[ServiceError], None] | None = None,
    ) -> Iterator[bytes]:
        """Yield what a job wrote, piece by piece; with `follow`, until it has ended, also if the service restarts meanwhile.

        `on_state` is called with the state and the server of the job, `on_away` when the service stops answering.
        """
        offset, heard, rhythm = 0, False, Rhythm(None)
        newest = attempt is None
        while True:
            try:
                answer = self.call(
                    "GET", f"/v1/jobs/{number}/output", params={"offset": offset, "attempt": attempt}
                )
            except ServiceError as error:
                if not (follow and heard):
                    raise
                if rhythm.bear(error) and on_away is not None:
                    on_away(error)
                time.sleep(rhythm.pause(False))
                continue
            heard = True
            rhythm.answered()
            if on_state is not None:
                on_state(answer.headers["x-state"], unquote(answer.headers.get("x-server", "")) or None)
            last = int(answer.headers.get("x-attempt", 0))
            if answer.content:
                yield answer.content
                offset = int(answer.headers["x-next-offset"])
            elif (
                newest and follow and last > (attempt or 0)
            ):  # the job is executed again: go on with the next attempt
                offset, attempt = (0 if attempt else offset), last
            elif not follow or answer.headers["x-state"] in ENDED:
                return
            else:
                time.sleep(rhythm.pause(False))

    def as_completed(self, jobs: Iterable[int | Handle], timeout: float | None = None) -> Iterator[Job]:
        """Yield jobs as they end."""
        left = {job.id if isinstance(job, Handle) else job for job in jobs}
        rhythm = Rhythm(timeout)
        while left:
            ended: list[Job] = []
            numbers = sorted(left)
            try:
                for at in range(0, len(numbers), PIECE):
                    ended += self.jobs(id=numbers[at : at + PIECE], state=list(ENDED))
            except ServiceError as error:
                rhythm.bear(error)
            left -= {job.id for job in ended}
            yield from ended
            if left:
                if rhythm.over:
                    return
                time.sleep(rhythm.pause(bool(ended)))

    def wait(self, jobs: Iterable[int | Handle], timeout: float | None = None) -> list[Job]:
        """Wait for all of them; those that ended in time."""
        return list(self.as_completed(jobs, timeout))

    def servers(self) -> list[dict[str, Any]]:
        """Return all servers."""
        found: list[dict[str, Any]] = self.call("GET", "/v1/servers").json()
        return found

    def drain(self, name: str, reason: str = "asked for") -> dict[str, Any]:
        """Let a server take no more jobs."""
        answer: dict[str, Any] = self.call(
            "POST", f"/v1/servers/{quote(name, '')}/drain", json={"reason": reason}
        ).json()
        return answer

    def resume(self, name: str) -> dict[str, Any]:
        """Let a drained server take jobs again."""
        answer: dict[str, Any] = self.call("POST", f"/v1/servers/{quote(name, '')}/resume").json()
        return answer

    def cluster(self) -> dict[str, Any]:
        """Types, classes, policy."""
        answer: dict[str, Any] = self.call("GET", "/v1/cluster").json()
        return answer

    def change(self, **what: Any) -> dict[str, Any]:
        """Another policy, other types or classes, while jobs run."""
        answer: dict[str, Any] = self.call("PATCH", "/v1/cluster", json=what).json()
        return answer

    def events(
        self,
        after: int | None = None,
        *,
        follow: bool = True,
        on_away: Callable[[ServiceError], None] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield the journal, row by row; each has `seq`. With `follow`, go on after the last row if the service restarts."""
        rhythm = Rhythm(None)
        heard = False
        while True:
            asked: dict[str, Any] = {"follow": follow} | ({} if after is None else {"after": after})
            try:
                for line in self._http.lines("/v1/events", asked):
                    heard = True
                    rhythm.answered()
                    if line.startswith("id: "):
                        after = int(line[4:])
                    elif line.startswith(": from ") and after is None:
                        after = int(line[7:])
                    elif line.startswith("data: "):
                        yield {"seq": after, **json.loads(line[6:])}
                if not follow:
                    return
                raise ServiceError("the service has ended the stream")
            except ServiceError as error:
                if not (follow and heard):
                    raise
                if rhythm.bear(error) and on_away is not None:
                    on_away(error)
                time.sleep(rhythm.pause(False))
