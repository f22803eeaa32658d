"""Jobs with deadlines: a job that would otherwise be late goes first, within a budget.

| symbol | meaning | unit |
|---|---|---|
| D | deadline: when the job is to have ended | time |
| e | what the job is expected to take: its time limit, else its expected duration | s |
| D - e | latest start | time |
| w | in how long a server has room for the job if it takes no other job from now on | s |
| m | mean of what the running jobs are expected to take | s |

Until D - e - w - m the job is a job like any other, and most jobs with a deadline start by themselves before. From then on it may be late, because
jobs that start on a server put its next room off by about m. So the server with the least w is reserved: it is closed (drained) until the job
fits. Then the job is placed on it, and it is opened again. At most `BUDGET` of the servers are reserved at the same time, for the jobs with the
earliest latest starts. No server is reserved for a job that would be late even after `HOPE` times w. A job whose latest start is over gives its
reservation back. Both would cost other jobs without use.

A reservation is Drain and Resume of the core, and a placement is a row of the journal of its own. So any policy that goes by free capacity takes
part, and the journal replays.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from slotwise.live.durations import in_words
from slotwise.live.maintenance import MaintenanceBooks
from slotwise.live.newjob import NewJob
from slotwise.live.server_books import DRAINING, UP
from slotwise.live.spec import plain
from slotwise.live.store.protocol import Store
from slotwise.live.store.records import ASSUMED
from slotwise.live.windows import PlacementKey
from slotwise.scheduling import Scheduler
from slotwise.scheduling.earliest import EarliestStart, earliest, has_room, keeps_free

BUDGET = 0.05  # share of the servers that are reserved at the same time, at least one; what it costs: benchmarks/live/deadlines.py
CANDIDATES = 20  # jobs, most urgent first, that one look takes in
LOOK_SECONDS = 1.0  # between two looks, if a deadline is near
SAFETY = 1.25  # factor on w: running jobs may take longer than expected when they have no time limit
HOPE = 0.5  # share of w after which there may be room: time limits are often twice what jobs take
OVERDUE_SECONDS = 60.0  # what a running job is expected to take that has run for longer than expected
BY_DEADLINE = "reserved for job "  # the reason of a server begins so where it is closed for a job with a deadline


class DeadlineBooks(MaintenanceBooks):
    """Servers that are reserved for jobs with deadlines."""

    def __init__(self, core: Scheduler, **numbers: int) -> None:
        super().__init__(core, **numbers)
        self.deadlines: dict[int, float] = {}
        """of jobs that have not ended and that the core knows"""
        self.next_urge = float("inf")
        """when `urge` has something to do, whatever else happens"""
        self.budget = BUDGET
        self._reserved: dict[str, int] = {}

    def know_deadlines(self, deadlines: dict[int, float]) -> None:
        """Take in what the store says of waiting jobs and of reserved servers."""
        self.deadlines.update(deadlines)
        for name, server in self.servers.items():
            reason = server.reason or ""
            if server.status == DRAINING and reason.startswith(BY_DEADLINE):
                self._reserved[name] = int(reason.removeprefix(BY_DEADLINE).partition(",")[0])
        self.next_urge = 0.0 if self.deadlines or self._reserved else float("inf")

    def earliest_start(self, number: int, now: float) -> EarliestStart | None:
        """Return where and in how many seconds a waiting job could start if it went first; None: nowhere, or that cannot be said."""
        if not keeps_free(self.core):
            return None
        return earliest(self.core, number, lambda job: self._left(job, now))

    def late(self, numbers: Sequence[int], now: float) -> list[str]:
        """Return a warning for each of the first few jobs that would miss its deadline even if it went first."""
        found = []
        for number in numbers[:CANDIDATES]:
            start = self.earliest_start(number, now) if number in self.deadlines and self._waits(number) else None
            over = 0.0 if start is None else now + start.wait - self._latest(number)
            if start is not None and over > 0:
                found.append(
                    f"job {number} will probably end {in_words(over)} after its deadline: the first server has room for it in {in_words(start.wait)}"
                )
        return found

    # -- what happens ---------------------------------------------------------------------------------------------

    def urge(self, now: float) -> None:
        """Place jobs for which servers are reserved, give reservations back that are no use, and reserve servers for jobs that would be late."""
        for name, number in list(self._reserved.items()):
            self._settle_reservation(name, number, now)
        if not self.deadlines:
            self.next_urge = float("inf")
            return
        if now < self.next_urge:
            return
        waiting = sorted((self._latest(job), job) for job in self.deadlines if self._waits(job))
        urgent = [(latest, job) for latest, job in waiting if latest >= now and job not in self._reserved.values()]
        most = max(1, int(self.budget * len(self.servers))) if self.budget > 0 else 0
        self.next_urge = float("inf")
        mean = sum(self.expected_of(job, ASSUMED) for job in self.live) / max(1, len(self.live)) if urgent else 0.0
        for latest, job in urgent[:CANDIDATES]:
            start = self.earliest_start(job, now)
            if start is None:
                self.next_urge = min(self.next_urge, now + 60 * LOOK_SECONDS)
                continue
            spare = latest - now - SAFETY * start.wait - mean
            if spare > LOOK_SECONDS:
                self.next_urge = min(self.next_urge, now + max(LOOK_SECONDS, spare / 4))
            elif (
                now + HOPE * start.wait <= latest
                and len(self._reserved) < most
                and self._may_reserve(str(start.server))
            ):
                self._reserve(str(start.server), job, now)
                self._settle_reservation(str(start.server), job, now)
            if spare <= LOOK_SECONDS:
                self.next_urge = min(self.next_urge, now + LOOK_SECONDS)

    def _expect(self, numbers: range, job: NewJob, group: PlacementKey, now: float) -> None:
        if job.deadline is not None:
            self.follow_jobs()
            self.deadlines.update(dict.fromkeys(numbers, job.deadline))
            self.next_urge = now
        super()._expect(numbers, job, group, now)

    def _is_over(self, number: int, state: str) -> None:
        if self.deadlines.pop(number, None) is not None and not self.deadlines:
            self.stop_following()
        super()._is_over(number, state)

    def is_followed(self) -> bool:
        return bool(self.deadlines) or super().is_followed()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _waits(self, number: int) -> bool:
        return number in self.core and number not in self.live

    def _latest(self, number: int) -> float:
        """Return the latest start."""
        return self.deadlines[number] - self.expected_of(number, ASSUMED)

    def _left(self, job: Hashable, now: float) -> float:
        """Return the seconds that a running job is expected to take from now on."""
        live = self.live.get(job)  # type: ignore[call-overload]
        if live is None:
            return ASSUMED
        left = live.placed + self.expected_of(int(str(job)), ASSUMED) - now
        return left if left > 0 else OVERDUE_SECONDS

    def _may_reserve(self, name: str) -> bool:
        server = self.servers.get(name)
        return server is not None and server.status == UP and name not in self._reserved

    def _reserve(self, name: str, number: int, now: float) -> None:
        self._reserved[name] = number
        self.drain(name, now, f"{BY_DEADLINE}{number}, which would otherwise be late")

    def _settle_reservation(self, name: str, number: int, now: float) -> None:
        """Place the job if it fits; give the reservation back if the job needs it no longer, or can use it no longer."""
        server = self.servers.get(name)
        if server is None or server.status != DRAINING or not (server.reason or "").startswith(BY_DEADLINE):
            del self._reserved[name]  # an operator, an engine or a window has decided otherwise
        elif not self._waits(number) or now > self._latest(number):
            self._give_back(name, now)
        elif has_room(self.core, number, name):
            self._place([{"job": number, "server": name}], now)
            self._give_back(name, now)

    def _give_back(self, name: str, now: float) -> None:
        del self._reserved[name]
        self.resume(name, now)
        self.next_urge = min(self.next_urge, now)


def deadlines_of(store: Store) -> dict[int, float]:
    """Return the deadlines of the jobs that the core knows."""
    rows = store.ask(
        "SELECT job.id, body FROM job JOIN spec ON spec.id = job.spec"
        " WHERE state IN ('waiting', 'placed', 'running') AND body LIKE ?",
        ['%"deadline":%'],
    )
    found = {int(number): plain(body).get("deadline") for number, body in rows}
    return {number: float(at) for number, at in found.items() if at is not None}
