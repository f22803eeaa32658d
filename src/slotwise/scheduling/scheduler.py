"""`Scheduler`, the core for people's own programs: it decides, the program acts.

State is a value, change is a value: `apply(event)` gives an `Outcome`, `situation()` all that is known, `from_situation` goes on from
it. Nothing is started, timed or stored here. The decisions are those of the simulator: both call `slotwise.core.steps`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from slotwise.core import chance
from slotwise.core import state as st
from slotwise.core.contract.policy import Policy
from slotwise.core.contract.reasons import Explanation
from slotwise.core.contract.view import View
from slotwise.core.moves import FINE
from slotwise.core.store import Store
from slotwise.display.schedulers import scheduler_html, scheduler_line
from slotwise.errors import InputError
from slotwise.model import Cluster, JobType, Scenario, ServerClass, integers
from slotwise.model.checks import check_cluster, check_types
from slotwise.packing import spaces_of
from slotwise.policies import make_policy
from slotwise.scheduling import calls
from slotwise.scheduling.capture import capture
from slotwise.scheduling.events import (
    Cancel,
    Complete,
    Drain,
    Event,
    Fail,
    Join,
    Outcome,
    Placement,
    Remove,
    Requeue,
    Resume,
    StaleReportError,
    Stop,
    Submit,
    Tick,
)
from slotwise.scheduling.explain import explain_job, explain_server
from slotwise.scheduling.faults import fault_of, refuse_waiting, refuse_without_duration
from slotwise.scheduling.rebuild import rebuild
from slotwise.scheduling.register import Register
from slotwise.scheduling.situation import Situation
from slotwise.scheduling.verbs import Verbs

NOTHING = Outcome()


class Scheduler(Verbs):
    """Places jobs on servers by a policy.

    >>> from slotwise.model import load_scenario
    >>> scheduler = Scheduler.from_scenario(load_scenario("example1"))
    >>> scheduler.submit("a", "large")
    [Placement(job='a', server='server-0', attempt=1)]
    >>> scheduler.submit("b", "large"), scheduler.complete("a")
    ([], [Placement(job='b', server='server-0', attempt=1)])
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
        check_cluster(cluster, may_be_empty=True)
        check_types(cluster, types)
        made = policy if isinstance(policy, Policy) else make_policy(policy, **options)
        self._lay_out(cluster, types, made, digits, chance.words_of(seed), cluster.n_servers, 1024)
        for server in cluster.servers:
            for n in range(server.count):
                self.apply(Join(f"{server.name}-{n}", server.name, 0.0))

    @classmethod
    def from_scenario(cls, scenario: Scenario, *, seed: int = 1) -> Scheduler:
        """With the cluster, types and policy of a scenario."""
        policy = make_policy(scenario.policy.name, **scenario.policy.options)
        return cls(scenario.cluster, scenario.types, policy, seed=seed)

    def _lay_out(
        self,
        cluster: Cluster,
        types: Sequence[JobType],
        policy: Policy,
        digits: int | Sequence[int],
        random: chance.Words,
        n_servers: int,
        n_jobs: int,
    ) -> None:
        """An empty state, and tables of names beside it."""
        self.cluster, self.types, self.policy = cluster, tuple(types), policy
        self.opening = NOTHING
        self.sizes = integers(cluster, types, digits)
        self._store = Store(
            self.sizes,
            policy,
            max_servers=max(64, n_servers),
            spaces=spaces_of(cluster.servers, self.sizes),
            random=random,
            mean_service=np.array([job_type.mean_service for job_type in types]),
            rates=np.array([job_type.rate or 0.0 for job_type in types]),
            counts=[server.count for server in cluster.servers],
            max_jobs=n_jobs,
            servers_change=True,
        )
        self._state: Any = self._store.state
        self._hooks: dict[str, Any] = {}
        self._reached: dict[str, int] = {}
        # what every event needs, at hand: reading a record's fields one by one is slow
        self._at = int(self._store.record.ctypes.data)
        self._arrive, self._complete, self._join = (self._reach(name) for name in ("arrive", "complete", "join"))
        self._keeps_demands, self._keeps_times = bool(self._state.actual), bool(self._state.keeps_times)
        self._clairvoyant = policy.needs_durations
        self._time = 0.0
        self._register = Register()
        self._jobs, self._job_of = self._register.jobs, self._register.job_of
        self._servers, self._server_of = self._register.servers, self._register.server_of
        self._submitted, self._started = self._register.submitted, self._register.started
        self._extras = self._register.extras
        self._find()
        self._type = {job_type.name: j for j, job_type in enumerate(types)}
        self._class = {server.name: c for c, server in enumerate(cluster.servers)}
        self._apply: dict[type[Any], Callable[[Any], Outcome]] = {
            Submit: self._on_submit,
            Complete: self._on_end,
            Stop: self._on_end,
            Requeue: self._on_requeue,
            Cancel: self._on_cancel,
            Join: self._on_join,
            Resume: self._on_resume,
            Drain: self._on_drain,
            Remove: self._on_remove,
            Fail: self._on_fail,
            Tick: self._on_tick,
        }

    def _find(self) -> None:
        """Where the number of the next job, and the first placement, are: a number read so takes half the time."""
        self._register.make_room(self._state.max_jobs)
        fields: Any = st.DTYPE.fields
        self._free_job, self._n_moved = (
            ctypes.c_int64.from_address(self._at + fields[name][1]) for name in ("free_job", "n_moved")
        )
        self._placed = (ctypes.c_int64 * 2).from_address(int(self._state.at_placed))

    # -- state and change are values --------------------------------------------------------------------------------

    def apply(self, event: Event) -> Outcome:
        """Let it happen. An event that cannot be raises an `InputError` and changes nothing."""
        now, before = event.now, self._time
        if not now >= before:
            self._refuse_time(now)
        self._time = now
        if self._clairvoyant:
            self._state.now = now
        try:
            return self._apply[event.__class__](event)
        except InputError:
            self._time = before
            raise

    def arrivals(
        self, job_type: str, now: float, demand: Mapping[str, Any] | None = None, duration: float | None = None
    ) -> Callable[[Hashable], Outcome]:
        """How jobs that are alike arrive: a call with a job is `apply(Submit(job, ...))`, and takes half the time where neither demand nor duration is given."""
        jobs, job_of, submitted, hook = self._jobs, self._job_of, self._submitted, self._arrive
        j = self._type.get(job_type, -1)
        like_its_type = demand is None and duration is None and not self._clairvoyant and not self._keeps_times

        def arrive(job: Hashable) -> Outcome:
            i = self._free_job.value
            if self._time != now or i < 0 or j < 0 or job in jobs or not like_its_type:
                return self.apply(Submit(job, job_type, now, demand, duration))
            jobs[job], job_of[i], submitted[i] = i, job, now
            n = calls.submit(self._at, hook, j, False)
            return self._outcome(n) if n else NOTHING

        return arrive

    def situation(self) -> Situation:
        """All that the scheduler knows, as plain data."""
        return capture(self._store, self._register, self.cluster, self.types, self._time)

    @classmethod
    def from_situation(
        cls,
        situation: Situation,
        *,
        types: Sequence[JobType] | None = None,
        classes: Sequence[ServerClass] | None = None,
        policy: str | Policy | None = None,
        takes_over: bool = False,
        **options: Any,
    ) -> Scheduler:
        """Go on from a situation, perhaps with other types, server classes or another policy.

        With the policy and the options that it had, the policy goes on as if nothing had happened. Another one takes over: what it starts at
        once is in `opening`. With `takes_over` the same policy does so too, because what it knew does not hold any more. Types and classes are
        known by their names; those that jobs and servers have must be there.
        """
        before = situation.policy
        if isinstance(policy, Policy):
            made = policy
        elif policy is None:
            made = make_policy(before.name, **(options or before.options))
        else:
            made = make_policy(policy, **options)
        goes_on = (
            not takes_over
            and before.name in (made.called, made.label)
            and made.options == type(made)(**before.options).options
        )
        new_types = list(types) if types is not None else situation.types
        new_classes = list(classes) if classes is not None else situation.classes
        cluster = Cluster(resources=tuple(situation.resources), servers=tuple(new_classes))
        check_cluster(cluster, may_be_empty=True)
        check_types(cluster, new_types)
        x, y, z, w = before.random
        n_jobs = situation.n_jobs
        scheduler = cls.__new__(cls)
        scheduler._lay_out(
            cluster,
            new_types,
            made,
            situation.digits,
            (x, y, z, w),
            situation.places,
            max(1024, n_jobs + n_jobs // 4),
        )
        scheduler._time = situation.now
        rebuild(scheduler._store, scheduler._register, situation, new_types, new_classes, goes_on=goes_on)
        if not goes_on:
            n, failed = int(scheduler._state.n_placed), scheduler._state.failed
            scheduler.opening = scheduler._outcome(-1 - n if failed else n)
        return scheduler

    @property
    def now(self) -> float:
        """The time of the last event."""
        return self._time

    # -- looking ----------------------------------------------------------------------------------------------------

    def __contains__(self, job: object) -> bool:
        """Return whether a job of this name waits or runs."""
        return job in self._jobs

    @property
    def waiting(self) -> dict[str, int]:
        """How many jobs of each type wait."""
        return {name: int(self._store.arrays["queue_length"][j]) for name, j in self._type.items()}

    @property
    def running(self) -> dict[Hashable, Hashable]:
        """Which job runs on which server."""
        on = self._store.arrays["jobs"][:, st.SERVER]
        return {job: self._server_of[int(on[i])] for job, i in self._jobs.items() if on[i] >= 0}

    @property
    def servers(self) -> list[Hashable]:
        """The servers that are here, draining ones included."""
        rows = self._store.arrays["servers"]
        return [server for server, number in self._servers.items() if rows[number, st.STATUS] != st.ABSENT]

    def __repr__(self) -> str:
        return scheduler_line(self)

    def _repr_html_(self) -> str:
        return scheduler_html(self)

    def attempt(self, job: Hashable) -> int:
        """How often the job was placed, the present time included where it runs."""
        i = self._lookup(self._jobs, job, "job")
        return self._register.earlier(i) + int(self._store.arrays["jobs"][i, st.SERVER] != st.WAITING)

    def explain(self, job: Hashable) -> Explanation:
        """Why the job runs or waits."""
        return explain_job(self._view(), job, self._lookup(self._jobs, job, "job"))

    def explain_server(self, server: Hashable) -> Explanation:
        """What the server does, and why."""
        return explain_server(self._view(), server, self._lookup(self._servers, server, "server"))

    @property
    def tick_rate(self) -> float:
        """The rate of the policy's own clock (sampling policies only), in the types' unit of time."""
        return float(self._state.tick_rate)

    # -- what happens at each event ---------------------------------------------------------------------------------

    def _on_submit(self, event: Submit) -> Outcome:
        job, job_type, now, demand, duration = event
        if job in self._jobs:
            raise InputError(f"job {job!r} is here already", remedy="give every job a name of its own")
        j = self._type.get(job_type)
        if j is None:
            j = self._lookup(self._type, job_type, "type")
        if duration is None:
            if self._clairvoyant:
                refuse_without_duration(job, self.policy)
        elif not duration >= 0:
            raise InputError(f"lasts {duration}", where=f"job {job!r}", remedy="give a duration of 0 or more")
        own = None if demand is None else self._actual(job, j, demand)
        i = self._free_job.value
        if i < 0:
            self._store.grow_jobs(2 * self._state.max_jobs)
            self._find()
            i = self._free_job.value
        if own is not None:
            if self._keeps_demands:
                self._store.arrays["job_demand"][i] = own
            else:
                self._register.extra(i).demand = own
        if self._keeps_times:
            self._store.arrays["job_times"][i] = (duration if duration is not None else np.inf, 0.0)
        elif duration is not None:
            self._register.extra(i).duration = duration
        self._jobs[job] = i
        self._job_of[i] = job
        self._submitted[i] = now
        n = calls.submit(self._at, self._arrive, j, own is not None)
        return self._outcome(n) if n else NOTHING

    def _on_end(self, event: Complete | Stop) -> Outcome:
        job, _, attempt = event
        hook = self._complete if event.__class__ is Complete else self._reach("stop")
        i = self._meant(job, attempt)
        n = calls.complete(self._at, hook, i)
        if n == calls.NOT_RUNNING:
            refuse_waiting(job)
        del self._jobs[job], self._job_of[i]
        if self._extras:
            self._extras.pop(i, None)
        return self._outcome(n) if n else NOTHING

    def _on_requeue(self, event: Requeue) -> Outcome:
        job, _, attempt = event
        i = self._meant(job, attempt)
        if self._store.arrays["jobs"][i, st.SERVER] == st.WAITING:
            refuse_waiting(job)
        self._register.extra(i).earlier += 1
        n = calls.requeue(self._at, self._reach("stop"), self._arrive, i)
        return self._outcome(n)._replace(requeued=(job,))

    def _on_cancel(self, event: Cancel) -> Outcome:
        i = self._lookup(self._jobs, event.job, "job")
        if self._store.arrays["jobs"][i, st.SERVER] != st.WAITING:
            raise InputError(
                f"job {event.job!r} runs", remedy="only waiting jobs can be cancelled; complete it when it ends"
            )
        self._register.forget_job(event.job)
        return self._outcome(calls.cancel(self._at, self._reach("cancel"), i))

    def _on_tick(self, event: Tick) -> Outcome:
        return self._outcome(calls.tick(self._at, self._reach("tick")))

    def _on_join(self, event: Join) -> Outcome:
        server, server_class, _ = event
        c = self._lookup(self._class, server_class, "server class")
        number = self._servers.get(server)
        if number is None:
            places = int(self._state.n_places)
            number = self._register.number_for(server, places)
            if number >= self._state.max_servers:
                self._store.grow_servers(2 * self._state.max_servers)
        else:
            row = self._store.arrays["servers"][number]
            if row[st.STATUS] == st.PRESENT:
                raise InputError(f"server {server!r} is here already", remedy="give every server a name of its own")
            if row[st.COUNT] > 0:
                raise InputError(
                    f"server {server!r} drains and holds {row[st.COUNT]} jobs", remedy="resume it, with its jobs"
                )
        return self._outcome(calls.join(self._at, self._join, number, c))

    def _on_resume(self, event: Resume) -> Outcome:
        number = self._lookup(self._servers, event.server, "server")
        status = self._store.arrays["servers"][number, st.STATUS]
        if status == st.ABSENT:
            raise InputError(f"server {event.server!r} is not there", remedy="let it join again")
        if status == st.PRESENT:
            return NOTHING
        return self._outcome(calls.resume(self._at, self._reach("resume"), number))

    def _on_drain(self, event: Drain) -> Outcome:
        number = self._lookup(self._servers, event.server, "server")
        if self._store.arrays["servers"][number, st.STATUS] != st.PRESENT:
            return NOTHING
        return self._outcome(calls.drain(self._at, self._reach("leave"), self._arrive, number))

    def _on_remove(self, event: Remove) -> Outcome:
        number = self._lookup(self._servers, event.server, "server")
        row = self._store.arrays["servers"][number]
        if row[st.COUNT] > 0:
            raise InputError(
                f"server {event.server!r} holds {row[st.COUNT]} jobs",
                remedy="drain it first, or use fail_server if it is lost",
            )
        outcome = self._on_drain(Drain(event.server, event.now))
        calls.remove(self._at, number)
        self._register.forget_server(event.server)
        return outcome

    def _on_fail(self, event: Fail) -> Outcome:
        number = self._lookup(self._servers, event.server, "server")
        if self._store.arrays["servers"][number, st.STATUS] == st.ABSENT:
            raise InputError(f"server {event.server!r} is not there", remedy="only servers that are there can fail")
        n = calls.fail(self._at, self._reach("leave"), self._arrive, number)
        lost = self._store.arrays["moved"][: self._n_moved.value].tolist()
        for i in lost:
            self._register.extra(i).earlier += 1
        requeued = tuple(self._job_of[i] for i in reversed(lost))
        return self._outcome(n)._replace(requeued=requeued)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _outcome(self, n: int) -> Outcome:
        """Of n placements; n < 0: of -1 - n placements and a fault."""
        if n == 0:
            return NOTHING
        fault = None
        if n < 0:
            n = -1 - n
            failed, self._state.failed = self._state.failed, FINE
            fault = fault_of(self.policy, list(self._hooks.values()), failed)
        pairs = (self._placed,) if n == 1 else self._store.arrays["placed"][:n].tolist()
        placements = []
        for i, server in pairs:
            self._started[i] = self._time
            attempt = 1 + self._register.earlier(i) if self._extras else 1
            placements.append(Placement(self._job_of[i], self._server_of[server], attempt))
        return Outcome(tuple(placements), (), fault)

    def _when(self, now: float | None) -> float:
        if now is None:
            if self._clairvoyant:
                raise InputError(
                    "no time is given", where="now", remedy=f"{self.policy.label} is clairvoyant: say when it is"
                )
            return self._time
        return now

    def _hook(self, name: str) -> Any:
        """A function of the policy; compiled, where it is, when it is first asked for."""
        if name not in self._hooks:
            self._hooks[name] = self.policy.hook(name)
        return self._hooks[name]

    def _reach(self, name: str) -> int:
        """Where it is."""
        if name not in self._reached:
            self._reached[name] = calls.reach(self._hook(name))
        return self._reached[name]

    def _actual(self, job: Hashable, j: int, demand: Mapping[str, Any]) -> NDArray[np.int64]:
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

    def _meant(self, job: Hashable, attempt: int | None) -> int:
        """The number of a job, of which the present attempt is meant."""
        i = self._jobs.get(job)
        if i is None:
            return self._lookup(self._jobs, job, "job")
        earlier = self._register.earlier(i) if self._extras else 0
        if attempt is None and earlier:
            raise InputError(
                f"job {job!r} was placed {earlier + 1} times",
                where="attempt",
                remedy="say which of them the report is about",
            )
        if attempt is not None and attempt != earlier + 1:
            raise StaleReportError(
                f"the report is of attempt {attempt} of job {job!r}, which is not its last", remedy="ignore it"
            )
        return i

    def _refuse_time(self, now: float) -> NoReturn:
        raise InputError(
            f"goes back from {self._time!r} to {now!r}",
            where="now",
            remedy="give events in the order of their times",
        )

    def _view(self) -> View:
        return View(self._store, self.cluster, self.types, self._job_of, self._server_of)

    @staticmethod
    def _lookup(table: Mapping[Any, int], name: Any, kind: str) -> int:
        number = table.get(name)
        if number is None:
            known = ", ".join(map(str, list(table)[:8])) or "none"
            raise InputError(f"no {kind} is called {name!r}", remedy=f"there are: {known}")
        return number
