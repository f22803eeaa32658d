"""The books: the core, the journal rows and read-model changes that each event makes, and what is to be done once they are durable.

No thread, no clock, no disk: every method is told the time, and gathers rows in `batch` and effects in `effects`. A
method either does all of what it is asked, or raises an InputError and does nothing. The loop takes both away with
`take`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from slotwise.errors import InputError
from slotwise.live.bookkeeping import Live
from slotwise.live.deadlines import DeadlineBooks
from slotwise.live.engines.protocol import Ended, Lost, Refused, ServerLost, Started
from slotwise.live.held_books import ALONE
from slotwise.live.newjob import NewJob, wish_of
from slotwise.live.replay import encode
from slotwise.live.server_books import AWAY, UP
from slotwise.live.store.records import CANCELLED, DONE, FAILED, LOST, PLACED, RUNNING, WAITING, Entry
from slotwise.live.windows import PlacementKey
from slotwise.scheduling.events import Cancel, Complete, Drain, Fail, Outcome, Requeue, Stop, Submit
from slotwise.scheduling.verbs import NOTHING

# Placements refused in a row after which a server is drained: it would refuse every other placement, too.
REFUSALS = 3
REMEMBERED = 10_000  # ends that are kept, to tell a late report from a wrong one; the oldest is forgotten first
# For jobs that are alike: type, journal row before and after the number, and the call that submits a job to the core.
Arrival = tuple[str, str, str, Callable[[Hashable], Outcome]]


class Ledger(DeadlineBooks):
    """The core with its books."""

    # -- what users ask for -------------------------------------------------------------------------------------

    def submit(self, jobs: Sequence[NewJob], now: float, *, is_there: bool = False) -> list[int]:
        """Submit jobs, all or none, and return their numbers. An array is numbered in the order of its indices, and is named by its first job.

        `is_there`: the engine has the jobs already, such as pods. Quotas hold them, and refuse none.
        """
        if self.quotas and not is_there:
            self.check_quotas(jobs)
        wishes = list(map(wish_of, jobs))
        types = self._types_for(dict(zip(wishes, jobs, strict=True)), jobs, now)
        specs: dict[str, int] = {}
        charged: dict[Any, str] = {}
        alike: dict[tuple[Any, float | None], Arrival] = {}
        begun = self.next_job
        for wish, job in zip(wishes, jobs, strict=True):
            if wish not in charged:
                charged[wish] = self._charged(*types[wish])
            spec = specs.get(job.body)
            if spec is None:
                spec = specs[job.body] = self.next_spec
                self.next_spec += 1
                self.batch.specs.append((spec, job.body))
                self.batch.demands[spec] = charged[wish]
            begin = self.next_job
            size = len(ALONE if job.array is None else job.array)
            if self.quotas.of(job.tenant) is not None:
                charge = self.charge_of(job)
                for number in range(begin, begin + size):
                    self.quotas.submitted(number, job.tenant, charge)
            if job.after or job.at_once is not None or self.quotas.limits_active(job.tenant):
                self._hold(job, types[wish][0], spec, now)
            else:
                known = alike.get((wish, job.duration))
                if known is None:  # the same for all but the number: there may be 10,000 of them
                    known = alike[wish, job.duration] = self._arrival(job, *types[wish], now)
                self._expect(
                    range(begin, begin + size), job, PlacementKey(types[wish][0], charged[wish], job.tenant), now
                )
                self._admit(job, known, spec, now)
            numbers = range(begin, self.next_job)
            if job.retry is not None:
                self.retrying.update(dict.fromkeys(numbers, job))
            if job.key is not None:
                self.keys[job.tenant, job.key] = numbers
        return list(range(begun, self.next_job))

    def _arrival(self, job: NewJob, name: str, demand: dict[str, str] | None, now: float) -> Arrival:
        before, _, after = encode(Submit(0, name, now, demand, job.duration)).partition('"job":0')
        return name, f'{before}"job":', after, self.core.arrivals(name, now, demand, job.duration)

    def _admit(self, job: NewJob, arrival: Arrival, spec: int, now: float) -> None:
        """Submit a job, or all jobs of an array, to the core."""
        name, before, after, arrive = arrival
        tenant, label, key, array, part_of = job.tenant, job.name, job.key, job.array, job.part_of
        rows, entries, number = self.batch.jobs, self.batch.entries, self.next_job
        first = number if part_of is None else part_of
        for index in ALONE if array is None else array:
            rows[number] = [
                number, tenant, name, label, WAITING, None, 0, None, None, 0, now, None, None, None,
                None if index is None else first, index, key if number == first else None, spec, 0, None, None,
            ]  # fmt: skip
            self.next_job = number + 1
            event, outcome = f"{before}{number}{after}", arrive(number)
            if outcome is NOTHING:  # most submissions to a busy cluster
                self.seq += 1
                entries.append(Entry(self.seq, now, event, "[]", None))
            else:
                self._write(event, outcome, now)
            number += 1

    def cancel(self, number: int, now: float) -> None:
        """Withdraw a waiting or held job."""
        if number in self.live:
            raise InputError(f"job {number} runs", remedy="a running job is not cancelled but stopped")
        if number in self.holds:
            self._drop(number, CANCELLED, None, now)
            return
        if number not in self.core:
            raise InputError(has_ended(number))
        self._apply(Cancel(number, now))
        self.batch.change(number, state=CANCELLED, ended=now)
        self._is_over(number, CANCELLED)

    def end(self, number: int, now: float) -> None:
        """Cancel a waiting job; stop one that is placed or runs."""
        if number in self.live:
            self.stop(number, now)
        else:
            self.cancel(number, now)

    def stop(self, number: int, now: float) -> None:
        """Ask the engine to end a running job. The engine tells when the job has ended."""
        live = self.live.get(number)
        if live is None:
            if number not in self.core and number not in self.holds:
                raise InputError(has_ended(number))
            raise InputError(f"job {number} does not run", remedy="a waiting job is not stopped but cancelled")
        if not live.stop_asked:
            live.stop_asked = True
            self._note({"event": "stop-asked", "job": number, "attempt": live.attempt, "now": now}, now)
            self.batch.change(number, stop_asked=1)
        self.effects.stops.append((number, live.attempt))

    # -- what engines tell --------------------------------------------------------------------------------------

    def started(self, fact: Started, now: float) -> None:
        """Note that an attempt runs."""
        live = self._meant(fact.job, fact.attempt, "started")
        if live is not None and live.state == PLACED:
            live.state = RUNNING
            self._refusals.pop(live.server, None)
            self._note({"event": "started", "job": fact.job, "attempt": fact.attempt, "now": now}, now)
            self.batch.change(fact.job, state=RUNNING, started=live.when(fact.at, now))

    def ended(self, fact: Ended, now: float) -> None:
        """Note that an attempt has ended, and complete, stop or retry its job."""
        self.effects.settled.append((fact.job, fact.attempt))
        if self._ends.get((fact.job, fact.attempt)) == fact.exit_code:
            return  # told again, as engines may
        live = self._meant(fact.job, fact.attempt, "ended")
        if live is None:
            return
        self.remember_end(fact.job, fact.attempt, fact.exit_code)
        stopped = (live.stop_asked or fact.by_user) and fact.exit_code != 0
        state = CANCELLED if stopped else FAILED if fact.exit_code or fact.over_time else DONE
        del self.live[fact.job]
        self._refusals.pop(live.server, None)
        note: dict[str, Any] = {"state": state, "exit_code": fact.exit_code}
        ended = live.when(fact.at, now)  # before now if the service was away
        if ended < now:
            note["ended"] = ended
        if fact.reason:
            note["reason"] = fact.reason
        event = Stop(fact.job, now, live.attempt) if stopped else Complete(fact.job, now, live.attempt)
        if state == FAILED and self._is_retried(fact.job, fact.exit_code):
            self._retry(event, live, fact.exit_code, ended, note)
            return
        columns: dict[str, Any] = {"state": state, "exit_code": fact.exit_code, "ended": ended}
        if live.state == PLACED:  # so short that its start was not told
            columns["started"] = live.when(fact.started, ended)
        made = self.retried.get(fact.job)
        if fact.reason or made:
            columns["reason"] = fact.reason or (
                f"after {made} {'retry' if made == 1 else 'retries'}" if state == FAILED else None
            )
        self.batch.change(fact.job, **columns)
        self._apply(event, note)
        self._is_over(fact.job, state)

    def remember_end(self, job: int, attempt: int, exit_code: int) -> None:
        """Take the same end as nothing new if an engine tells it again."""
        self._ends[job, attempt] = exit_code
        if len(self._ends) > REMEMBERED:
            del self._ends[next(iter(self._ends))]

    def refused(self, fact: Refused, now: float) -> None:
        """Take back a placement that was not carried out. Drain a server that refuses every placement."""
        live = self._meant(fact.job, fact.attempt, "refused")
        if live is None:
            return
        self._refusals[live.server] += 1
        if self._refusals[live.server] >= REFUSALS and self.servers[live.server].status == UP:
            self.drain(live.server, now, f"refused {REFUSALS} jobs in a row: {fact.reason}")
        self._back(fact.job, live, now, fact.reason)

    def lost(self, fact: Lost, now: float) -> None:
        """Requeue or give up a job whose attempt was lost: its end is not known."""
        self.effects.settled.append((fact.job, fact.attempt))
        live = self._meant(fact.job, fact.attempt, "lost")
        if live is None:
            return
        if live.on_loss == "requeue" and not live.stop_asked:
            self._back(fact.job, live, now, fact.reason)
        else:
            self._give_up(fact.job, live, now, fact.reason)

    def server_lost(self, fact: ServerLost, now: float) -> None:
        """Take away a server that was lost with all jobs on it. Jobs that must not run twice end as lost; all other jobs go back to
        their queues."""
        server = self.servers.get(fact.name)
        if server is None or server.status == AWAY:
            return
        if server.status == UP:
            self._apply(Drain(fact.name, now))
        reason = f"server {fact.name} was lost: {fact.reason}"
        for job, live in [(job, live) for job, live in self.live.items() if live.server == fact.name]:
            if live.on_loss == "fail" or live.stop_asked:
                self._give_up(job, live, now, reason)
        self._apply(Fail(fact.name, now), {"reason": fact.reason})
        self._put(server._replace(status=AWAY, reason=fact.reason))

    # -- inside -------------------------------------------------------------------------------------------------

    def _back(self, job: int, live: Live, now: float, reason: str) -> None:
        """Requeue a job whose placement came to nothing, unless it was asked to end."""
        if live.stop_asked:
            self._give_up(job, live, now, reason)
        else:
            self._apply(Requeue(job, now, live.attempt), {"reason": reason})

    def _give_up(self, job: int, live: Live, now: float, reason: str) -> None:
        """Take a job from its server for good."""
        del self.live[job]
        state = CANCELLED if live.stop_asked else LOST
        self.batch.change(job, state=state, ended=now, reason=reason)
        self._apply(Stop(job, now, live.attempt), {"state": state, "reason": reason})
        self._is_over(job, state)

    def _meant(self, job: int, attempt: int, what: str) -> Live | None:
        """Return the live job that a fact is about. Count a fact about anything else, which changes nothing."""
        live = self.live.get(job)
        if live is None or live.attempt != attempt:
            self.lies["stale attempt" if live is not None else f"{what}: unknown job"] += 1
            return None
        return live


def has_ended(number: int) -> str:
    """Return what is said of a job that cannot be ended any more."""
    return f"job {number} has ended"
