"""The books of held jobs: how a job becomes held, and how it is released, dropped or executed again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from slotwise.errors import InputError
from slotwise.live.after import EACH, ONE
from slotwise.live.bookkeeping import Live
from slotwise.live.demands import checked, exact
from slotwise.live.holds import Held, Key
from slotwise.live.newjob import After, NewJob, wish_of
from slotwise.live.quotas import Charge, QuotaJob, Quotas, charge_of
from slotwise.live.retries import Retry
from slotwise.live.server_books import ServerBooks
from slotwise.live.store.records import CANCELLED, ENDED, FAILED, HELD, WAITING, Attempt, DependencyRow, Job, Member
from slotwise.live.windows import PlacementKey
from slotwise.model.quotas import Quota
from slotwise.scheduling.events import Cancel, Complete, Stop, Submit

ALONE = (None,)  # the index of a job that is of no array
AT_ONCE = 500  # held jobs that one transaction releases or drops: some 6 ms of the loop
AT = Job._fields.index


def unknown(number: int) -> tuple[NewJob, int | None, int]:
    """Stand for the store where there is none."""
    raise LookupError(f"no store knows job {number}")


class HeldBooks(ServerBooks):
    """Jobs that the store has and the core does not know yet."""

    look: Callable[[int, Sequence[int]], list[Member]] = staticmethod(lambda other, indices: [])
    """what the store knows of a job or an array that a new job waits for: set by the loop"""
    all_jobs: Callable[[], Iterable[QuotaJob]] = staticmethod(tuple)
    """what the store knows of all jobs that have not ended: set by the loop"""
    kept: Callable[[int], tuple[NewJob, int | None, int]] = staticmethod(unknown)
    """what the store knows of a job: its submission, its array and its attempts so far; set by the loop"""

    def members(self, other: int, indices: Sequence[int] = ()) -> list[Member]:
        """Return the job of a number, or the jobs of an array, as they are now: in the store, or in the batch that gathers."""
        is_new = other in self.batch.jobs  # then the store has none of them
        found = {} if is_new else {one.id: one for one in self.look(other, indices)}
        wanted, number = set(indices), other
        while (row := self.batch.jobs.get(number)) is not None and other in (number, row[AT("array_id")]):
            new = Member(number, row[1], row[4], row[AT("array_id")], row[AT("array_index")])
            if not wanted or new.array_index in wanted:
                found[number] = new
            number += 1
        changes = self.batch.changes
        return [
            one._replace(state=changes[number].get("state", one.state)) if number in changes else one
            for number, one in found.items()
        ]

    def _hold(self, job: NewJob, type_: str, spec: int, now: float) -> None:
        """Note a job, or the jobs of an array, as held until nothing holds them any more."""
        begin = self.next_job
        first = begin if job.part_of is None else job.part_of
        indices: Sequence[int | None] = ALONE if job.array is None else job.array
        array = None if job.array is None else first
        if job.at_once is not None:
            self.holds.throttle(first, job.at_once, ())
        needs, keys = self.watch(job.after, indices)
        for number, index in enumerate(indices, begin):
            self.batch.jobs[number] = [
                number, job.tenant, type_, job.name, HELD, None, 0, None, None, 0, now, None, None, None,
                array, index, job.key if number == first else None, spec, 0, None, None,
            ]  # fmt: skip
            self.holds.add(number, job, needs(index), array=array)
        self.next_job = begin + len(indices)
        self.holds.tidy(keys)
        if job.part_of is None:
            self.batch.needs += [DependencyRow(first, one.kind, one.other) for one in job.after]
        self._note({"event": "held", "job": begin, "jobs": len(indices), "now": now}, now)

    def watch(
        self, after: Sequence[After], indices: Sequence[int | None]
    ) -> tuple[Callable[[int | None], list[tuple[Key, str]]], list[Key]]:
        """Follow what jobs of these indices wait for; return what each index waits for, and all keys."""
        common: list[tuple[Key, str]] = []
        each: dict[int | None, list[tuple[Key, str]]] = {}
        for one in after:
            if one.kind.startswith(EACH):
                kind = one.kind.removeprefix(EACH)
                for member in self.members(one.other, [index for index in indices if index is not None]):
                    key = Key(member.id, False)
                    self._watch(key, [member])
                    each.setdefault(member.array_index, []).append((key, kind))
            else:
                kind = one.kind.removeprefix(ONE)
                key = Key(one.other, kind == one.kind)
                if not self.holds.knows(key):
                    found = self.members(one.other)
                    self._watch(key, found if key.whole else [one for one in found if one.id == key.number])
                common.append((key, kind))
        keys = [key for needs in (common, *each.values()) for key, _ in needs]
        if not each:
            return lambda index: common, keys
        return lambda index: common + each.get(index, []), keys

    def _watch(self, key: Key, members: Sequence[Member]) -> None:
        if not self.holds.knows(key):
            self.holds.watch(key, [(one.id, one.state, one.state in ENDED) for one in members])

    def _expect(self, numbers: range, job: NewJob, group: PlacementKey, now: float) -> None:
        """Jobs are about to be submitted to the core. See `slotwise.live.maintenance`."""

    # -- what becomes of held jobs --------------------------------------------------------------------------------

    @property
    def next_release(self) -> float:
        """When `release` has something to do, whatever else happens."""
        return 0.0 if self.quotas.is_due else self.holds.next_due

    def release(self, now: float) -> None:
        """Submit jobs to the core that nothing holds any more, and end those that can never start; a bounded number at once."""
        self.holds.wake(now)
        self._hold_beyond(now)
        for _ in range(AT_ONCE):
            doomed = self.holds.take_doomed()
            if doomed is not None:
                self._drop(doomed[0], CANCELLED, doomed[1], now)
                continue
            number = self.quotas.next_parked()
            if number is None:
                number = self.holds.next_ready()
                if number is None:
                    return
                if not self.quotas.admit(number):
                    continue
            self._release(number, self.holds.take(number), now)

    def _release(self, number: int, held: Held, now: float) -> None:
        job, wish = held.job, wish_of(held.job)
        try:
            name, demand = self._types_for({wish: job}, [job], now)[wish]
        except InputError as error:  # the cluster has changed since: no server can hold it any more
            self._drop(number, FAILED, str(error), now)
            return
        if held.attempts:
            self.batch.change(number, state=WAITING, type=name, due=None, exit_code=None, ready=now)
        else:
            self.batch.change(number, state=WAITING, type=name, ready=now)
        group = PlacementKey(name, self._charged(name, demand), job.tenant)
        self._expect(range(number, number + 1), job, group, now)
        self._apply(Submit(number, name, now, demand, job.duration, held.attempts or None))

    def _drop(self, number: int, state: str, reason: str | None, now: float) -> None:
        """End a job that the core does not know."""
        self.batch.change(number, state=state, ended=now, reason=reason, due=None)
        note = {"state": state} if reason is None else {"state": state, "reason": reason}
        self._note({"event": "dropped", "job": number, "now": now, **note}, now)
        self._is_over(number, state)

    def _is_over(self, number: int, state: str) -> None:
        """A job has ended for good: what waited for it may go, or never will."""
        self.retrying.pop(number, None)
        self.retried.pop(number, None)
        self.holds.ended(number, state)
        self.quotas.ended(number)

    # -- quotas ---------------------------------------------------------------------------------------------------

    def charge_of(self, job: NewJob) -> Charge:
        """Return what a new job counts against the quota of its tenant. Raise InputError if it names what is not there."""
        cluster = self.core.cluster
        if job.type is None:
            return charge_of(dict(zip(cluster.resources, exact(job.needs, cluster), strict=True)))
        size = next((one.demand for one in self.core.types if one.name == job.type), None)
        if size is None:
            return {}  # it is refused, because its type is not known
        return charge_of(dict(zip(cluster.resources, size, strict=True)) | checked(job.needs, cluster))

    def check_quotas(self, jobs: Sequence[NewJob]) -> None:
        """Refuse jobs that go beyond the quotas of their tenants."""
        wanted: dict[str, list[tuple[Charge, int]]] = {}
        for job in jobs:
            if self.quotas.of(job.tenant) is not None:
                wanted.setdefault(job.tenant, []).append((self.charge_of(job), len(job.array or ALONE)))
        self.quotas.check(wanted)

    def set_quotas(self, limits: Sequence[Quota]) -> None:
        """Let other quotas hold from now on. Waiting jobs beyond them are held again, the youngest first."""
        known = {}
        if limits:
            known = {one.number: one for one in self.all_jobs()}
            specs = self.batch.demands
            for number, row in self.batch.jobs.items():
                charge = charge_of(json.loads(specs[row[AT("spec")]]))
                known[number] = QuotaJob(number, row[AT("tenant")], row[AT("state")], charge)
            for number, columns in self.batch.changes.items():
                if number in known:
                    known[number] = known[number]._replace(state=columns.get("state", known[number].state))
        self.quotas = Quotas(limits, [one for one in known.values() if one.state not in ENDED])
        self.holds.offer_again()

    def _hold_beyond(self, now: float) -> None:
        """Take waiting jobs back from the core that are beyond a new quota; a bounded number at once."""
        for _ in range(AT_ONCE):
            number = self.quotas.next_beyond()
            if number is None:
                return
            if number in self.batch.jobs or number in self.batch.changes:
                self.quotas.not_yet(number)  # the store does not know it yet as it is now
                return
            job, array, attempts = self.kept(number)
            self._apply(Cancel(number, now), {"held": "quota"})
            self.batch.change(number, state=HELD)
            self.quotas.held(number)
            self.holds.add(number, job, array=array, attempts=attempts)

    # -- retries --------------------------------------------------------------------------------------------------

    def _is_retried(self, number: int, exit_code: int) -> bool:
        """Return whether a job that has failed is executed again."""
        job = self.retrying.get(number)
        return job is not None and job.retry is not None and job.retry.again(self.retried.get(number, 0), exit_code)

    def _retry(self, end: Complete | Stop, live: Live, exit_code: int, ended: float, note: dict[str, Any]) -> None:
        """Note the end of an attempt, and hold its job until the back-off is over."""
        number, now = int(str(end.job)), end.now
        job = self.retrying[number]
        retry: Retry = job.retry  # type: ignore[assignment]
        made = self.retried[number] = self.retried.get(number, 0) + 1
        due = now + retry.delay(made)
        reason = f"retry {made} of {retry.times}: attempt {live.attempt} ended with exit code {exit_code}"
        self.batch.change(
            number, state=HELD, server=None, placed=None, started=None, exit_code=exit_code, reason=reason,
            retries=made, due=due,
        )  # fmt: skip
        self.batch.attempts.append(Attempt(number, live.attempt, live.server, live.placed, ended, exit_code))
        self._apply(end, {**note, "retry": made, "due": due})
        self.quotas.held(number)
        self.holds.add(number, job, attempts=live.attempt, due=due)
