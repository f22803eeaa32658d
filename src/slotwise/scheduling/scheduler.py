"""`Scheduler`, the core for people's own programs: it decides, the program acts.

Every call returns the placements that it caused, as values; nothing is started, timed or stored. The decisions are those of
the simulator: both call `slotwise.scheduling.drive`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any, NamedTuple

import numpy as np

from slotwise.errors import InputError, SlotwiseError
from slotwise.model import Cluster, JobType, Scenario, integers
from slotwise.model.checks import check_cluster, check_types
from slotwise.packing import spaces_of
from slotwise.scheduling import calls, drive
from slotwise.scheduling.explain import View, explain_job, explain_server
from slotwise.scheduling.hooks import PythonHook
from slotwise.scheduling.moves import FINE, NO_ROOM, NOBODY_WAITS, NOT_THERE, RAISED
from slotwise.scheduling.policies import make_policy
from slotwise.scheduling.policy import Policy
from slotwise.scheduling.reasons import Explanation
from slotwise.scheduling.state import COUNT, DRAINING, PRESENT, SERVER, STATUS, WAITING
from slotwise.scheduling.store import Store

FAULTS = {
    NOBODY_WAITS: "wanted to start a job of a type of which nobody waits",
    NOT_THERE: "wanted to start a job on a server that takes no jobs",
    NO_ROOM: "wanted to start a job on a server that has no room for it",
    RAISED: "raised an exception in a compiled hook; take @njit away to see it",
}


class Placement(NamedTuple):
    """Start this job on this server."""

    job: Hashable
    server: Hashable


class Event(NamedTuple):
    """What a failure of a server leads to."""

    requeued: list[Hashable]
    placements: list[Placement]


@dataclass(frozen=True)
class Snapshot:
    """A copy of everything that a scheduler knows; picklable, and independent of the scheduler it came from."""

    store: dict[str, Any]
    jobs: dict[Hashable, int]
    servers: dict[Hashable, int]


def raise_fault(policy: Policy, hooks: Sequence[Any], failed: int) -> None:
    """Raise what a policy did wrong, if it did."""
    if failed == FINE:
        return
    for hook in hooks:
        if isinstance(hook, PythonHook) and hook.error is not None:
            error, hook.error = hook.error, None
            raise error
    raise SlotwiseError(f"policy {policy.name or type(policy).__name__} {FAULTS.get(failed, 'failed')}")


class Scheduler:
    """Places jobs on servers by a policy.

    >>> from slotwise.model import load_scenario
    >>> scheduler = Scheduler.from_scenario(load_scenario("example1"))
    >>> scheduler.submit("a", "large")
    [Placement(job='a', server='server-0')]
    >>> scheduler.submit("b", "large"), scheduler.complete("a")
    ([], [Placement(job='b', server='server-0')])
    """

    def __init__(
        self,
        cluster: Cluster,
        types: Sequence[JobType],
        policy: str | Policy = "guarded",
        *,
        seed: int = 1,
        digits: int = 0,
        **options: Any,
    ) -> None:
        """Servers of the cluster's classes join at once, as many as their `count`, named class-0, class-1, ...

        `digits` keeps that many digits behind the point of actual demands, where they are finer than the types'.
        """
        check_cluster(cluster)
        check_types(cluster, types)
        self.cluster, self.types = cluster, tuple(types)
        self.policy = policy if isinstance(policy, Policy) else make_policy(policy, **options)
        self.sizes = integers(cluster, types, digits)
        self._store = Store(
            self.sizes,
            self.policy,
            max_servers=max(64, cluster.n_servers),
            spaces=spaces_of(cluster.servers, self.sizes),
            seed=np.random.SeedSequence(seed),
            mean_service=np.array([job_type.mean_service for job_type in types]),
        )
        self._state: Any = self._store.state
        self._hooks = self.policy.hooks()
        # what every event needs, at hand: reading a record's fields one by one is slow
        self._at = int(self._store.record.ctypes.data)
        self._arrive, self._complete, self._join = (
            calls.reach(getattr(self._hooks, name)) for name in ("arrive", "complete", "join")
        )
        self._now, self._free_job = self._store.record["now"], self._store.record["free_job"]
        self._keeps_demands, self._keeps_times = bool(self._state.actual), bool(self._state.keeps_lists)
        self._jobs: dict[Hashable, int] = {}
        self._job_of: dict[int, Hashable] = {}
        self._servers: dict[Hashable, int] = {}
        self._server_of: dict[int, Hashable] = {}
        self._type = {job_type.name: j for j, job_type in enumerate(types)}
        self._class = {server.name: c for c, server in enumerate(cluster.servers)}
        for server in cluster.servers:
            for n in range(server.count):
                self.add_server(f"{server.name}-{n}", server.name)

    @classmethod
    def from_scenario(cls, scenario: Scenario, *, seed: int = 1) -> Scheduler:
        """With the cluster, types and policy of a scenario."""
        policy = make_policy(scenario.policy.name, **scenario.policy.options)
        return cls(scenario.cluster, scenario.types, policy, seed=seed)

    # -- jobs ---------------------------------------------------------------------------------------------------

    def submit(
        self,
        job: Hashable,
        job_type: str,
        *,
        demand: Mapping[str, float | Decimal | str] | None = None,
        duration: float | None = None,
        now: float = 0.0,
    ) -> list[Placement]:
        """A job arrives. `demand` is what it really asks for, where that is less than its type's; `duration` and `now` are for
        clairvoyant policies."""
        if job in self._jobs:
            raise InputError(f"job {job!r} is here already", remedy="give every job a name of its own")
        j = self._lookup(self._type, job_type, "type")
        if self.policy.needs_durations and duration is None:
            raise InputError(
                "has no duration", where=f"job {job!r}", remedy=f"{self.policy.name} is clairvoyant: give duration"
            )
        if duration is not None and not duration >= 0:
            raise InputError(f"lasts {duration}", where=f"job {job!r}", remedy="give a duration of 0 or more")
        actual = self.sizes.demand[j] if demand is None else self._actual(job, j, demand)
        if self._free_job[0] < 0:
            self._store.grow_jobs(2 * self._state.max_jobs)
        i = int(self._free_job[0])
        if self._keeps_demands:
            self._store.arrays["job_demand"][i] = actual
        if self._keeps_times:
            self._store.arrays["job_times"][i] = (duration if duration is not None else np.inf, 0.0)
        self._jobs[job], self._job_of[i] = i, job
        self._now[0] = now
        return self._placed(calls.submit(self._at, self._arrive, j))

    def complete(self, job: Hashable, *, now: float = 0.0) -> list[Placement]:
        """A running job has ended."""
        i = self._running(job)
        self._forget(job)
        self._now[0] = now
        return self._placed(calls.complete(self._at, self._complete, i))

    def cancel(self, job: Hashable, *, now: float = 0.0) -> list[Placement]:
        """A waiting job is withdrawn; a running one cannot be, since nothing here is interrupted."""
        i = self._lookup(self._jobs, job, "job")
        if self._store.arrays["jobs"][i, SERVER] != WAITING:
            raise InputError(
                f"job {job!r} runs", remedy="only waiting jobs can be cancelled; complete it when it ends"
            )
        self._forget(job)
        self._now[0] = now
        drive.cancel(self._state, i, self._hooks.cancel)
        return self._placements()

    def tick(self, *, now: float = 0.0) -> list[Placement]:
        """The policy's own clock has rung; call it after exponential times of rate `tick_rate` where that is above 0."""
        self._now[0] = now
        drive.tick(self._state, self._hooks.tick)
        return self._placements()

    @property
    def tick_rate(self) -> float:
        """The rate of the policy's own clock (sampling policies only), in the types' unit of time."""
        return float(self._state.tick_rate)

    # -- servers ------------------------------------------------------------------------------------------------

    def add_server(self, server: Hashable, server_class: str) -> list[Placement]:
        """A server of a class joins; one that was drained and is empty comes back."""
        c = self._lookup(self._class, server_class, "server class")
        rows = self._store.arrays["servers"]
        if server in self._servers:
            number = self._servers[server]
            if rows[number, STATUS] == PRESENT:
                raise InputError(f"server {server!r} is here already", remedy="give every server a name of its own")
            if rows[number, COUNT] > 0:
                raise InputError(f"server {server!r} still drains", remedy="add it again when it is empty")
        else:
            number = self._new_number()
            self._servers[server], self._server_of[number] = number, server
        return self._placed(calls.join(self._at, self._join, number, c))

    def drain_server(self, server: Hashable) -> list[Placement]:
        """The server takes no more jobs; those on it run to their end."""
        number = self._lookup(self._servers, server, "server")
        if self._store.arrays["servers"][number, STATUS] == DRAINING:
            return []
        drive.drain(self._state, number, self._hooks.leave, self._hooks.arrive)
        return self._placements()

    def remove_server(self, server: Hashable) -> list[Placement]:
        """An empty server leaves."""
        number = self._lookup(self._servers, server, "server")
        row = self._store.arrays["servers"][number]
        if row[COUNT] > 0:
            raise InputError(
                f"server {server!r} holds {row[COUNT]} jobs",
                remedy="drain it first, or use fail_server if it is lost",
            )
        placements = self.drain_server(server)
        drive.remove(self._state, number)
        self._forget_server(server)
        return placements

    def fail_server(self, server: Hashable) -> Event:
        """The server is lost; its jobs are back at the front of their queues, and may start elsewhere."""
        number = self._lookup(self._servers, server, "server")
        drive.fail(self._state, number, self._hooks.leave, self._hooks.arrive)
        self._forget_server(server)
        lost = self._store.arrays["moved"][: self._state.n_moved]
        return Event([self._job_of[int(i)] for i in lost[::-1]], self._placements())

    # -- looking ------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> dict[str, int]:
        """How many jobs of each type wait."""
        return {name: int(self._store.arrays["queue_length"][j]) for name, j in self._type.items()}

    @property
    def running(self) -> dict[Hashable, Hashable]:
        """Which job runs on which server."""
        on = self._store.arrays["jobs"][:, SERVER]
        return {job: self._server_of[int(on[i])] for job, i in self._jobs.items() if on[i] >= 0}

    @property
    def servers(self) -> list[Hashable]:
        """The servers that are here, draining ones included."""
        return list(self._servers)

    def explain(self, job: Hashable) -> Explanation:
        """Why the job runs or waits."""
        i = self._lookup(self._jobs, job, "job")
        return explain_job(self._view(), job, i)

    def explain_server(self, server: Hashable) -> Explanation:
        """What the server does, and why."""
        number = self._lookup(self._servers, server, "server")
        return explain_server(self._view(), server, number)

    # -- copies -------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """A copy of everything."""
        return Snapshot(self._store.copy_out(), dict(self._jobs), dict(self._servers))

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot of a scheduler with the same cluster, types and policy."""
        self._store.copy_in(snapshot.store)
        self._jobs, self._servers = dict(snapshot.jobs), dict(snapshot.servers)
        self._job_of = {i: job for job, i in self._jobs.items()}
        self._server_of = {number: server for server, number in self._servers.items()}

    # -- inside -------------------------------------------------------------------------------------------------

    def _placements(self) -> list[Placement]:
        state = self._state
        failed, state.failed = state.failed, FINE
        raise_fault(self.policy, self._hooks, failed)
        return self._placed(int(state.n_placed))

    def _placed(self, n: int) -> list[Placement]:
        """The first n placements of the event."""
        if n == calls.FAILED:
            return self._placements()
        rows = self._store.arrays["placed"][:n].tolist() if n else ()
        return [Placement(self._job_of[i], self._server_of[server]) for i, server in rows]

    def _actual(self, job: Hashable, j: int, demand: Mapping[str, Any]) -> Any:
        """The integer demand of a job: its type's, or less."""
        size = self.sizes.demand[j].copy()
        for resource, amount in demand.items():
            if resource not in self.cluster.resources:
                raise InputError(
                    f"no resource is called {resource!r}",
                    where=f"job {job!r}",
                    remedy=f"use one of: {', '.join(self.cluster.resources)}",
                )
            r = self.cluster.resources.index(resource)
            try:
                exact = Decimal(str(amount)).scaleb(self.sizes.digits[r])
                value = int(exact.to_integral_value(ROUND_CEILING))
            except (ArithmeticError, ValueError):
                remedy = "give a number"
            else:
                if exact >= 0 and value <= size[r]:
                    size[r] = value
                    continue
                remedy = "give 0 or more" if exact < 0 else f"at most its type's demand, {self.types[j].demand[r]}"
            raise InputError(f"asks for {amount} of {resource}", where=f"job {job!r}", remedy=remedy)
        return size

    def _running(self, job: Hashable) -> int:
        i = self._lookup(self._jobs, job, "job")
        if self._store.arrays["jobs"][i, SERVER] == WAITING:
            raise InputError(f"job {job!r} has not started", remedy="only running jobs end; cancel a waiting one")
        return i

    def _new_number(self) -> int:
        for number in range(len(self._servers), self._state.max_servers):
            if number not in self._server_of:
                return number
        for number in range(self._state.max_servers):
            if number not in self._server_of:
                return number
        number = int(self._state.max_servers)
        self._store.grow_servers(2 * number)
        return number

    def _forget(self, job: Hashable) -> None:
        del self._job_of[self._jobs.pop(job)]

    def _forget_server(self, server: Hashable) -> None:
        del self._server_of[self._servers.pop(server)]

    def _view(self) -> View:
        return View(self._store, self.cluster, self.types, self._job_of, self._server_of)

    @staticmethod
    def _lookup(table: Mapping[Any, int], name: Any, kind: str) -> int:
        if name not in table:
            known = ", ".join(map(str, list(table)[:8])) or "none"
            raise InputError(f"no {kind} is called {name!r}", remedy=f"there are: {known}")
        return table[name]
