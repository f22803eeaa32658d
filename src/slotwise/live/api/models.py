"""What the API takes and gives, beside `JobSpec`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from slotwise.live.after import ONE
from slotwise.live.spec import Amount, Short
from slotwise.live.store.records import DependencyRow, Job, Server


class Model(BaseModel):
    """Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")


class Submitted(Model):
    """The numbers of new jobs; `id` is the first."""

    id: int
    ids: list[int]
    warnings: list[str] = Field([], description="of jobs whose deadlines will probably be missed")


class JobView(Model):
    """A job."""

    id: int
    state: str = Field(description="held, waiting, placed, running, done, failed, cancelled or lost")
    type: str
    name: str
    tenant: str
    server: str | None
    attempt: int
    exit_code: int | None = Field(description="as of a process; minus the signal's number where it was killed")
    reason: str | None
    submitted: float = Field(description="seconds since 1970, like all times")
    placed: float | None
    started: float | None
    ended: float | None
    array: int | None = Field(description="the first job of its array")
    array_index: int | None
    key: str | None = Field(description="its idempotency key")
    retries: int = Field(description="how often it was executed again because it had failed")
    due: float | None = Field(description="of a held job that has failed: when its back-off is over")

    @classmethod
    def of(cls, job: Job) -> JobView:
        """From the read model."""
        return cls.model_construct(**view(job))


def view(job: Job) -> dict[str, Any]:
    """A job as plain data."""
    return {
        "id": job.id,
        "state": job.state,
        "type": job.type,
        "name": job.name,
        "tenant": job.tenant,
        "server": job.server,
        "attempt": job.attempt,
        "exit_code": job.exit_code,
        "reason": job.reason,
        "submitted": job.submitted,
        "placed": job.placed,
        "started": job.started,
        "ended": job.ended,
        "array": job.array_id,
        "array_index": job.array_index,
        "key": job.key,
        "retries": job.retries,
        "due": job.due,
    }


class ConsolePlace(BaseModel):
    """Where the console of a virtual machine is: for `virsh -c URI console DOMAIN`."""

    uri: str
    domain: str


class JobDetail(JobView):
    """A job with what it executes. The values of its environment are not shown: they may be secrets."""

    argv: list[str]
    vm: dict[str, Any] | None = Field(description="of a virtual machine; its user data are not shown")
    cwd: str | None
    env: list[str] = Field(description="names only")
    needs: dict[str, float]
    requires: dict[str, list[str]]
    labels: dict[str, str]
    duration: float | None
    time: float | None = Field(description="time limit in seconds")
    deadline: float | None = Field(description="when it is to have ended")
    warn: dict[str, Any] | None
    grace: float | None
    stdin: str | None
    stdout: str | None
    stderr: str | None
    append: bool = Field(description="whether it appends to these files")
    on_loss: str
    after: dict[str, list[int]] = Field(description="jobs and arrays after which it starts, by how they end")
    retry: int
    backoff: float | None
    retry_on: list[int] | None

    @classmethod
    def of_spec(cls, job: Job, spec: dict[str, Any], needs: Sequence[DependencyRow]) -> JobDetail:
        """From the read model, and what is kept of the submission."""
        after: dict[str, list[int]] = {}
        for need in needs:
            after.setdefault(need.kind.removeprefix(ONE), []).append(need.other)
        return cls.model_construct(
            **view(job),
            argv=spec.get("argv", []),
            vm={key: one for key, one in spec["vm"].items() if key != "user_data"} if "vm" in spec else None,
            cwd=spec.get("cwd"),
            env=sorted(spec.get("env", {})),
            needs=spec.get("needs", {}),
            requires=spec.get("requires", {}),
            labels=spec.get("labels", {}),
            duration=spec.get("duration"),
            time=spec.get("time"),
            deadline=spec.get("deadline"),
            warn=spec.get("warn"),
            grace=spec.get("grace"),
            stdin=spec.get("stdin"),
            stdout=spec.get("stdout"),
            stderr=spec.get("stderr"),
            append=spec.get("append", False),
            on_loss=spec.get("on_loss", "fail"),
            after=after,
            retry=spec.get("retry", 0),
            backoff=spec.get("backoff"),
            retry_on=spec.get("retry_on"),
        )


class JobPage(Model):
    """A page of jobs; `next` is the `after` of the next one."""

    jobs: list[JobView]
    next: int | None


class ServerView(Model):
    """A server."""

    name: str
    server_class: str
    status: str = Field(description="up, draining, drained (it takes no jobs and holds none) or lost")
    reason: str | None
    jobs: int = Field(description="that are placed or run on it")


def shown_status(server: Server, jobs: int) -> ServerView:
    """Return a server with the number of its jobs. A draining server without jobs is drained."""
    status = "drained" if server.status == "draining" and not jobs else server.status
    return ServerView(
        name=server.name, server_class=server.server_class, status=status, reason=server.reason, jobs=jobs
    )


class NewServer(Model):
    """A server to add; its class is the named one, or one of the same capacity and labels."""

    name: Annotated[Short, StringConstraints(pattern=r"^[^/\x00-\x1f\x7f]*$")] = Field(
        description="without slashes"
    )
    server_class: Short | None = None
    capacity: dict[Short, Amount] = {}
    labels: dict[Short, Short] = {}


class Drain(Model):
    """Why a server is drained."""

    reason: str = Field("asked for", max_length=500)


class ClusterView(Model):
    """Types, classes and the policy."""

    resources: list[str]
    types: list[dict[str, Any]]
    classes: list[dict[str, Any]]
    policy: str
    options: dict[str, Any]
    engine: str
    waiting: dict[str, int]
    live: int
    fault: str | None = Field(description="the last thing that the policy did wrong")


class PolicyView(Model):
    """A policy by name."""

    name: str
    summary: str


class Change(Model):
    """What to change while jobs run; what is left out stays."""

    policy: Short | None = None
    options: dict[Short, Any] | None = None
    types: list[dict[str, Any]] | None = None
    classes: list[dict[str, Any]] | None = None


class NewToken(Model):
    """A token to make."""

    role: str = Field(description="read, submit or operate")
    tenant: str | None = Field(
        None, description="whose jobs it sees; by default a tenant of its own (submit) or all"
    )
    user: str | None = Field(
        None, description="the account that executes its jobs, where the service may change users"
    )


class MadeToken(Model):
    """The token, with its secret: this is the only time that it is shown."""

    id: str
    role: str
    tenant: str
    user: str | None
    token: str


class TokenView(Model):
    """A token, without its secret."""

    id: str
    role: str
    tenant: str
    user: str | None
    created: float


class Explained(Model):
    """Why."""

    text: str


class Problem(BaseModel):
    """An error (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
