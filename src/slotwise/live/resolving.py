"""Dependencies of a request, checked against what there is: places of the request become numbers, and every job that is waited for is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from slotwise.errors import InputError
from slotwise.live.after import EACH, ONE
from slotwise.live.held_books import HeldBooks
from slotwise.live.inbox import FullError
from slotwise.live.newjob import After, NewJob
from slotwise.live.store.records import Member

GONE = "it may have ended so long ago that its row was dropped"


class Resolver:
    """One request. `known` has the jobs of places that were submitted before, with the same key; `growing` are arrays that are not complete."""

    def __init__(
        self,
        ledger: HeldBooks,
        jobs: Sequence[NewJob],
        known: Mapping[int, Sequence[int] | None],
        growing: Set[int],
    ) -> None:
        self._ledger, self._jobs, self._known, self._growing = ledger, jobs, known, growing
        self._members: dict[int, list[Member]] = {}
        self._number: dict[int, int] = {}
        """the first job of each place"""
        following = ledger.next_job
        by_key: dict[tuple[str, str | None], int] = {}
        for at, job in enumerate(jobs):
            mine = known.get(at)
            if mine:
                self._number[at] = mine[0]
            elif at in known:  # the same key stands earlier in this request
                self._number[at] = by_key[job.tenant, job.key]
            else:
                self._number[at] = following
                following += 1 if job.array is None else len(job.array)
            by_key.setdefault((job.tenant, job.key), self._number[at])

    def resolved(self) -> list[NewJob]:
        """Return the jobs that are new. Raise InputError for a dependency on a job that is not there, or not of the same tenant."""
        found = []
        for at, job in enumerate(self._jobs):
            if at not in self._known:
                found.append(job._replace(after=[self._one(job, one) for one in job.after]) if job.after else job)
        return found

    def _one(self, job: NewJob, one: After) -> After:
        each = one.kind.startswith(EACH)
        if each and job.array is None:
            raise InputError(
                f"{one.kind} is for arrays", where="after", remedy=f"write {one.kind.removeprefix(EACH)}"
            )
        if one.is_place:
            return self._place(job, one, each=each)
        members = self._find(job, one.other)
        (array,) = {member.array_id for member in members if member.id == one.other} or {None}
        if array not in (None, one.other) and (each or one.at_index is not None):
            raise InputError(
                f"job {one.other} is a job of array {array}", where="after", remedy=f"name the array: {array}"
            )
        if each:
            self._check_indices(job, one, {member.array_index for member in members}, f"array {one.other}")
        if one.at_index is None:
            return After(one.kind, one.other)
        for member in members:
            if member.array_id == one.other and member.array_index == one.at_index:
                return After(ONE + one.kind, member.id)
        raise InputError(
            f"array {one.other} has no index {one.at_index}", where="after", remedy="use one that it has"
        )

    def _place(self, job: NewJob, one: After, *, each: bool) -> After:
        other = self._jobs[one.other]
        if other.tenant != job.tenant:
            raise InputError(f"{other.name!r} is a job of another tenant", where="after", remedy="leave it out")
        if each:
            self._check_indices(job, one, set(other.array or ()), f"{other.name!r}")
        if one.at_index is not None:
            return After(ONE + one.kind, self._number[one.other] + list(other.array or ()).index(one.at_index))
        return After(one.kind, self._number[one.other])

    def _find(self, job: NewJob, other: int) -> list[Member]:
        """Return the job or the array of a number, of the same tenant."""
        if other in self._growing:
            raise FullError(f"array {other} is still being submitted; try again in a moment")
        found = self._members.get(other)
        if found is None:
            found = self._members[other] = self._ledger.members(other)
        if not found or any(member.tenant != job.tenant for member in found):
            raise InputError(
                f"tenant {job.tenant!r} has no job {other}", where="after", remedy=f"name one that is there; {GONE}"
            )
        return found

    @staticmethod
    def _check_indices(job: NewJob, one: After, there: Set[int | None], name: str) -> None:
        missing = next((index for index in job.array or () if index not in there), None)
        if missing is not None:
            raise InputError(
                f"{one.kind}: {name} has no job with index {missing}",
                where="after",
                remedy=f"wait for an array that has the same indices; {GONE}" if there else "wait for an array",
            )
