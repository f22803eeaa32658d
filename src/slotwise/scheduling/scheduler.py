"""`Scheduler`, the core for people's own programs: it decides, the program acts.

State is a value, change is a value: `apply(event)` gives an `Outcome`, `situation()` all that is known, `from_situation` goes on from
it. Nothing is started, timed or stored here. The decisions are those of the simulator: both call `slotwise.core.steps` and `server_steps`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from slotwise.core import chance, steps
from slotwise.core import state as st
from slotwise.core.contract.policy import Policy
from slotwise.core.contract.reasons import Explanation
from slotwise.display.schedulers import scheduler_html, scheduler_line
from slotwise.model import Cluster, JobType, Scenario, ServerClass, Shares
from slotwise.model.checks import check_cluster, check_types
from slotwise.policies import make_policy
from slotwise.scheduling.capture import capture
from slotwise.scheduling.events import Join, Outcome, Submit
from slotwise.scheduling.explain import explain_job, explain_server
from slotwise.scheduling.rebuild import rebuild
from slotwise.scheduling.situation import Situation
from slotwise.scheduling.verbs import NOTHING, Verbs


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
        shares: Shares | None = None,
        **options: Any,
    ) -> None:
        """Let the servers of the cluster's classes join at once, as many as their `count`, named class-0, class-1,
        ...

        `digits` keeps that many digits behind the point of actual demands, where they are finer than the types'. With
        `shares`, types belong to tenants, and every event needs its time.
        """
        check_cluster(cluster, may_be_empty=True)
        check_types(cluster, types)
        made = policy if isinstance(policy, Policy) else make_policy(policy, **options)
        self._lay_out(cluster, types, made, digits, chance.words_of(seed), cluster.n_servers, 1024, shares)
        for server in cluster.servers:
            for n in range(server.count):
                self.apply(Join(f"{server.name}-{n}", server.name, 0.0))

    @classmethod
    def from_scenario(cls, scenario: Scenario, *, seed: int = 1) -> Scheduler:
        """Return a scheduler with the cluster, types and policy of a scenario."""
        policy = make_policy(scenario.policy.name, **scenario.policy.options)
        return cls(scenario.cluster, scenario.types, policy, seed=seed, shares=scenario.shares)

    def arrivals(
        self, job_type: str, now: float, demand: Mapping[str, Any] | None = None, duration: float | None = None
    ) -> Callable[[Hashable], Outcome]:
        """Return a function of a job for jobs that are alike.

        A call with a job is `apply(Submit(job, ...))`. If neither demand nor duration is given, it takes half the time.
        """
        jobs, job_of, submitted, hook = self._jobs, self._job_of, self._submitted, self._arrive
        j = self._type.get(job_type, -1)
        like_its_type = demand is None and duration is None and not self._clairvoyant and not self._keeps_times

        def arrive(job: Hashable) -> Outcome:
            i = self._free_job.value
            if self._time != now or i < 0 or j < 0 or job in jobs or not like_its_type:
                return self.apply(Submit(job, job_type, now, demand, duration))
            jobs[job], job_of[i], submitted[i] = i, job, now
            n = steps.submit(self._at, j, hook, True)
            return self._outcome(n) if n else NOTHING

        return arrive

    def solve(self) -> None:
        """Find the configurations of every class now. Otherwise that happens when they are first asked for, and takes up to a tenth of a second for a class."""
        for c in sorted(self._store.unsolved):
            self._store.solve_class(c)

    def situation(self) -> Situation:
        """Return all that the scheduler knows, as plain data."""
        return capture(self._store, self._register, self.cluster, self.types, self._time, self.shares)

    @classmethod
    def from_situation(
        cls,
        situation: Situation,
        *,
        types: Sequence[JobType] | None = None,
        classes: Sequence[ServerClass] | None = None,
        policy: str | Policy | None = None,
        takes_over: bool = False,
        shares: Shares | None = None,
        **options: Any,
    ) -> Scheduler:
        """Go on from a situation.

        Types, server classes and the policy may be other ones. Types and classes are known by their names; those of present jobs and servers must be
        there. If policy and options are the same, the policy goes on as if nothing had happened. Another policy takes over: the jobs that it starts
        at once are in `opening`. With `takes_over` the same policy takes over, too, because what it has learnt does not hold any more.
        Tenants keep their use. `shares` replaces their shares; shares without tenants remove them.
        """
        before = situation.policy
        if isinstance(policy, Policy):
            made = policy
        elif policy is None:
            made = make_policy(before.name, **(options or before.options))
        else:
            made = make_policy(policy, **options)
        continues = (
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
            situation.shares if shares is None else shares,
        )
        scheduler._time = situation.now
        rebuild(scheduler._store, scheduler._register, situation, new_types, new_classes, continues=continues)
        if not continues:
            n, failed = int(scheduler._state.n_placed), scheduler._state.failed
            scheduler.opening = scheduler._outcome(-1 - n if failed else n)
        return scheduler

    @property
    def now(self) -> float:
        """The time of the last event."""
        return self._time

    # -- what is known -------------------------------------------------------------------------------------------

    def __contains__(self, job: object) -> bool:
        """Return whether a job of this name waits or runs."""
        return job in self._jobs

    @property
    def waiting(self) -> dict[str, int]:
        """The number of waiting jobs of each type."""
        return {name: int(self._store.arrays["queue_length"][j]) for name, j in self._type.items()}

    @property
    def jobs_by_type(self) -> dict[str, int]:
        """How many jobs of each type wait or run."""
        arrays = self._store.arrays
        there = (arrays["queue_length"] + arrays["running_by_type"]).tolist()
        return {name: there[j] for name, j in self._type.items()}

    @property
    def running(self) -> dict[Hashable, Hashable]:
        """The server of each running job."""
        on = self._store.arrays["jobs"][:, st.SERVER]
        return {job: self._server_of[int(on[i])] for job, i in self._jobs.items() if on[i] >= 0}

    @property
    def servers(self) -> list[Hashable]:
        """The present servers, draining ones included."""
        rows = self._store.arrays["servers"]
        return [server for server, number in self._servers.items() if rows[number, st.STATUS] != st.ABSENT]

    def __repr__(self) -> str:
        return scheduler_line(self)

    def _repr_html_(self) -> str:
        return scheduler_html(self)

    def attempt(self, job: Hashable) -> int:
        """Return how often the job was placed, its present placement included."""
        i = self._lookup(self._jobs, job, "job")
        return self._register.earlier(i) + int(self._store.arrays["jobs"][i, st.SERVER] != st.WAITING)

    def explain(self, job: Hashable) -> Explanation:
        """Return why the job runs or waits."""
        return explain_job(self._view(), job, self._lookup(self._jobs, job, "job"))

    def explain_server(self, server: Hashable) -> Explanation:
        """Return what the server does, and why."""
        return explain_server(self._view(), server, self._lookup(self._servers, server, "server"))

    @property
    def tick_rate(self) -> float:
        """The rate of the policy's own clock (sampling policies only), in the types' unit of time."""
        return float(self._state.tick_rate)
