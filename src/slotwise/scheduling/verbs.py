"""The verbs of a scheduler, each written once: the call for programs, and below it the handler of the event.

A handler has the event's name, such as `_on_submit`. It checks the event, turns names into numbers and calls the kernel of that name in `core.steps` or
`core.server_steps`; `_outcome` turns numbers back into names.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from slotwise.core import chance, server_steps, steps
from slotwise.core import state as st
from slotwise.core.contract.hooks import address_of
from slotwise.core.contract.policy import Policy
from slotwise.core.contract.view import View
from slotwise.core.steps import FINE
from slotwise.core.store import Store
from slotwise.core.tenants import Sharing
from slotwise.errors import InputError
from slotwise.model import Cluster, JobType, Shares, integers
from slotwise.model.shares import check_shares
from slotwise.packing import spaces_of
from slotwise.scheduling.events import (
    KINDS,
    Amount,
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
from slotwise.scheduling.faults import fault_of, refuse_waiting, refuse_without_duration, telling
from slotwise.scheduling.register import Register

NOTHING = Outcome()


class Verbs:
    """The state of a scheduler, its tables of names, and what can happen to them."""

    def _lay_out(
        self,
        cluster: Cluster,
        types: Sequence[JobType],
        policy: Policy,
        digits: int | Sequence[int],
        random: chance.Words,
        n_servers: int,
        n_jobs: int,
        shares: Shares | None = None,
    ) -> None:
        """Make an empty state, and tables of names beside it."""
        self.cluster, self.types, self.policy = cluster, tuple(types), policy
        self.opening = NOTHING
        self.shares = shares if shares is not None and shares.tenants else None
        if self.shares is not None:
            check_shares(self.shares)
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
            sharing=Sharing.of(self.shares, self.types),
            solves_late=policy.solves_late,
        )
        self._state: Any = self._store.state
        self._hooks: dict[str, Any] = {}
        self._reached: dict[str, int] = {}
        # what every event needs, at hand: reading a record's fields one by one is slow
        self._at = int(self._store.record.ctypes.data)
        self._arrive, self._complete, self._join = (self._reach(name) for name in ("arrive", "complete", "join"))
        self._keeps_demands, self._keeps_times = bool(self._state.actual), bool(self._state.keeps_times)
        self._clairvoyant = policy.needs_durations
        self._keeps_clock = policy.needs_durations or policy.keeps_clock or self.shares is not None
        self._time = 0.0
        self._register = Register()
        self._jobs, self._job_of = self._register.jobs, self._register.job_of
        self._servers, self._server_of = self._register.servers, self._register.server_of
        self._submitted, self._started = self._register.submitted, self._register.started
        self._extras = self._register.extras
        self._find()
        self._type = {job_type.name: j for j, job_type in enumerate(types)}
        self._class = {server.name: c for c, server in enumerate(cluster.servers)}
        self._handlers: dict[type[Any], Callable[[Any], Outcome]] = {
            kind: getattr(self, f"_on_{name}") for name, kind in KINDS.items()
        }

    def _find(self) -> None:
        """Find the addresses of the next job's number and of the first placement. To read a number by its address takes half the time."""
        self._register.make_room(self._state.max_jobs)
        fields: Any = st.DTYPE.fields
        self._free_job, self._n_moved = (
            ctypes.c_int64.from_address(self._at + fields[name][1]) for name in ("free_job", "n_moved")
        )
        self._placed = (ctypes.c_int64 * 2).from_address(int(self._state.at_placed))

    def apply(self, event: Event) -> Outcome:
        """Apply an event. Raise an `InputError`, and change nothing, if the event is not possible."""
        now, before = event.now, self._time
        if not now >= before:
            self._refuse_time(now)
        self._time = now
        if self._keeps_clock:
            self._state.now = now
        try:
            return self._handlers[event.__class__](event)
        except InputError:
            self._time = before
            raise

    # -- jobs ------------------------------------------------------------------------------------------------------

    def submit(
        self,
        job: Hashable,
        job_type: str,
        *,
        demand: Mapping[str, Amount] | None = None,
        duration: float | None = None,
        now: float | None = None,
    ) -> list[Placement]:
        """Submit a job.

        `demand` is what it requests, if that is less than its type's demand. Clairvoyant policies need `duration` and `now`. For other policies
        `now` is the time of the last event if it is not given.
        """
        return self._placements(Submit(job, job_type, self._when(now), demand, duration))

    def _on_submit(self, event: Submit) -> Outcome:
        job, job_type, now, demand, duration, attempts = event
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
        if attempts is not None and attempts < 0:
            raise InputError(f"has {attempts} attempts", where=f"job {job!r}", remedy="give 0 or more")
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
        if attempts:
            self._register.extra(i).earlier = attempts
        self._jobs[job] = i
        self._job_of[i] = job
        self._submitted[i] = now
        n = steps.submit(self._at, j, self._arrive, own is None)
        return self._outcome(n) if n else NOTHING

    def complete(self, job: Hashable, *, now: float | None = None, attempt: int | None = None) -> list[Placement]:
        """Complete a running job. If it was placed more than once, `attempt` says which placement has ended."""
        return self._placements(Complete(job, self._when(now), attempt))

    def _on_complete(self, event: Complete | Stop) -> Outcome:
        job, _, attempt = event
        hook = self._complete if event.__class__ is Complete else self._reach("stop")
        i = self._attempted(job, attempt)
        if self._store.unsolved and self._state.n_waiting:
            self._store.solve_for(i)
        n = steps.complete(self._at, i, hook)
        if n == steps.NOT_RUNNING:
            refuse_waiting(job)
        del self._jobs[job], self._job_of[i]
        if self._extras:
            self._extras.pop(i, None)
        return self._outcome(n) if n else NOTHING

    def stop(self, job: Hashable, *, now: float | None = None, attempt: int | None = None) -> list[Placement]:
        """Stop a running job as its user wishes. Nothing is learnt from how long it ran."""
        return self._placements(Stop(job, self._when(now), attempt))

    _on_stop = _on_complete

    def requeue(self, job: Hashable, *, now: float | None = None, attempt: int | None = None) -> list[Placement]:
        """Take back a placement that could not be carried out. The job waits again, in its old place in the queue."""
        return self._placements(Requeue(job, self._when(now), attempt))

    def _on_requeue(self, event: Requeue) -> Outcome:
        job, _, attempt = event
        i = self._attempted(job, attempt)
        if self._store.arrays["jobs"][i, st.SERVER] == st.WAITING:
            refuse_waiting(job)
        self._register.extra(i).earlier += 1
        if self._store.unsolved:
            self._store.solve_for(i)
        n = steps.requeue(self._at, i, self._reach("stop"), self._arrive)
        return self._outcome(n)._replace(requeued=(job,))

    def cancel(self, job: Hashable, *, now: float | None = None) -> list[Placement]:
        """Cancel a waiting job. Running jobs are not interrupted."""
        return self._placements(Cancel(job, self._when(now)))

    def _on_cancel(self, event: Cancel) -> Outcome:
        i = self._lookup(self._jobs, event.job, "job")
        if self._store.arrays["jobs"][i, st.SERVER] != st.WAITING:
            raise InputError(
                f"job {event.job!r} runs", remedy="only waiting jobs can be cancelled; complete it when it ends"
            )
        self._register.forget_job(event.job)
        return self._outcome(steps.cancel(self._at, i, self._reach("cancel")))

    def tick(self, *, now: float | None = None) -> list[Placement]:
        """Tell the policy that its clock has rung. If `tick_rate` is above 0, call this after exponential times of that rate."""
        return self._placements(Tick(self._when(now)))

    def _on_tick(self, event: Tick) -> Outcome:
        return self._outcome(steps.tick(self._at, self._reach("tick")))

    def _actual(self, job: Hashable, j: int, demand: Mapping[str, Any]) -> NDArray[np.int64]:
        """Return the demand of a job in whole units: its type's, or less."""
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

    def _attempted(self, job: Hashable, attempt: int | None) -> int:
        """Return the number of a job. Raise an error if `attempt` is not its present one."""
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

    # -- servers ---------------------------------------------------------------------------------------------------

    def add_server(self, server: Hashable, server_class: str, *, now: float | None = None) -> list[Placement]:
        """Add a server of a class: a new one, or one that failed, or was drained and is empty."""
        return self._placements(Join(server, server_class, self._when(now)))

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
        return self._outcome(server_steps.join(self._at, number, c, self._join))

    def resume_server(self, server: Hashable, *, now: float | None = None) -> list[Placement]:
        """Let a draining server take jobs again, whatever it holds."""
        return self._placements(Resume(server, self._when(now)))

    def _on_resume(self, event: Resume) -> Outcome:
        number = self._lookup(self._servers, event.server, "server")
        status = self._store.arrays["servers"][number, st.STATUS]
        if status == st.ABSENT:
            raise InputError(f"server {event.server!r} is not there", remedy="let it join again")
        if status == st.PRESENT:
            return NOTHING
        return self._outcome(server_steps.resume(self._at, number, self._reach("resume")))

    def drain_server(self, server: Hashable, *, now: float | None = None) -> list[Placement]:
        """Drain a server: it takes no more jobs, and its jobs run to their end."""
        return self._placements(Drain(server, self._when(now)))

    def _on_drain(self, event: Drain) -> Outcome:
        number = self._lookup(self._servers, event.server, "server")
        if self._store.arrays["servers"][number, st.STATUS] != st.PRESENT:
            return NOTHING
        return self._outcome(server_steps.drain(self._at, number, self._reach("leave"), self._arrive))

    def remove_server(self, server: Hashable, *, now: float | None = None) -> list[Placement]:
        """Remove a server that holds no jobs."""
        return self._placements(Remove(server, self._when(now)))

    def _on_remove(self, event: Remove) -> Outcome:
        number = self._lookup(self._servers, event.server, "server")
        row = self._store.arrays["servers"][number]
        if row[st.COUNT] > 0:
            raise InputError(
                f"server {event.server!r} holds {row[st.COUNT]} jobs",
                remedy="drain it first, or use fail_server if it is lost",
            )
        outcome = self._on_drain(Drain(event.server, event.now))
        server_steps.remove(self._at, number)
        self._register.forget_server(event.server)
        return outcome

    def fail_server(self, server: Hashable, *, now: float | None = None) -> Outcome:
        """Report a lost server. Its jobs wait again, in their old places in the queues, and may start on other servers."""
        outcome = self.apply(Fail(server, self._when(now)))
        if outcome.fault is not None:
            raise telling(outcome)
        return outcome

    def _on_fail(self, event: Fail) -> Outcome:
        number = self._lookup(self._servers, event.server, "server")
        if self._store.arrays["servers"][number, st.STATUS] == st.ABSENT:
            raise InputError(f"server {event.server!r} is not there", remedy="only servers that are there can fail")
        n = server_steps.fail(self._at, number, self._reach("leave"), self._arrive)
        lost = self._store.arrays["moved"][: self._n_moved.value].tolist()
        for i in lost:
            self._register.extra(i).earlier += 1
        requeued = tuple(self._job_of[i] for i in reversed(lost))
        return self._outcome(n)._replace(requeued=requeued)

    # -- numbers and names -----------------------------------------------------------------------------------------

    def _outcome(self, n: int) -> Outcome:
        """Return the outcome of n placements; if n < 0, of -1 - n placements and a fault."""
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
        """Return a hook of the policy. Compile or load it when it is first needed."""
        if name not in self._hooks:
            self._hooks[name] = self.policy.hook(name)
        return self._hooks[name]

    def _reach(self, name: str) -> int:
        """Return the address of a hook."""
        if name not in self._reached:
            self._reached[name] = address_of(self._hook(name))
        return self._reached[name]

    def _view(self) -> View:
        return View(self._store, self.cluster, self.types, self._job_of, self._server_of)

    @staticmethod
    def _lookup(table: Mapping[Any, int], name: Any, kind: str) -> int:
        number = table.get(name)
        if number is None:
            known = ", ".join(map(str, list(table)[:8])) or "none"
            raise InputError(f"no {kind} is called {name!r}", remedy=f"there are: {known}")
        return number

    def _placements(self, event: Event) -> list[Placement]:
        """Return the placements; raise a fault as an exception that holds them."""
        outcome = self.apply(event)
        if outcome.fault is not None:
            raise telling(outcome)
        return list(outcome.placements)

    def _refuse_time(self, now: float) -> NoReturn:
        raise InputError(
            f"goes back from {self._time!r} to {now!r}",
            where="now",
            remedy="give events in the order of their times",
        )
