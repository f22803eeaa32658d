"""Large arrays, submitted in pieces: between two pieces the loop serves other requests, so that no caller waits for a whole array.

Each piece is a transaction of its own. The answer comes when the last piece is durable. If the service ends before, the array is incomplete and
its caller has no number: the caller repeats the submission with the same key, which submits the jobs that are missing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from slotwise.errors import InputError, SlotwiseError
from slotwise.live.inbox import FullError
from slotwise.live.ledger import Ledger
from slotwise.live.newjob import NewJob
from slotwise.live.resolving import Resolver
from slotwise.live.store.records import Query

if TYPE_CHECKING:
    from slotwise.live.loop import Loop

PIECE = 500  # jobs of one transaction: some 8 ms of the loop
SMALL_PIECE = (
    50  # while other callers are there, which wait for it: 1.5 ms, three times as long as for a single job
)


def is_large(array: Sequence[int] | None, at_once: int | None) -> bool:
    """Return whether an array is submitted in pieces. Jobs of a throttled array are held, which takes a fraction of the time."""
    return array is not None and at_once is None and len(array) > PIECE


class Growing:
    """Arrays of which pieces are still to come. `submit` may be called in any thread."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._keys: set[tuple[str, str | None]] = set()  # of arrays that grow; used in the loop's thread only
        self.numbers: set[int] = set()
        """arrays that grow: no job can wait for them yet"""

    def submit(self, job: NewJob, known: Callable[[Ledger], int | None]) -> Future[list[int]]:
        """Submit a large array. `known` returns the first job of an earlier submission with the same key."""
        array = Array(self, job, known)
        array.ask_for_piece()
        return array.whole

    def has(self, job: NewJob) -> bool:
        """Return whether an array with the key of this one still grows."""
        return job.key is not None and (job.tenant, job.key) in self._keys

    def begin(self, job: NewJob) -> None:
        """Remember that an array grows."""
        self._keys.add((job.tenant, job.key))

    def end(self, job: NewJob, first: int | None) -> None:
        """Forget an array that is complete, or that broke off."""
        self._keys.discard((job.tenant, job.key))
        self.numbers.discard(first or 0)


class Array:
    """One array on its way into the store. All methods but the first `ask_for_piece` run in the loop's thread, or in one of their own."""

    def __init__(self, growing: Growing, job: NewJob, known: Callable[[Ledger], int | None]) -> None:
        self._growing, self._loop = growing, growing._loop
        self._job, self._known = job, known
        self._indices = job.array or ()
        self._size = PIECE
        self._submitted = 0  # how many jobs of the array are in the store
        self._first: int | None = None
        self._numbers: list[int] = []
        self._is_begun = self._is_resumed = False
        self.whole: Future[list[int]] = Future()
        self.whole.set_running_or_notify_cancel()  # a client that leaves ends nothing: the first jobs may run already

    def ask_for_piece(self) -> None:
        """Ask the loop for the next piece."""
        self._size = PIECE if self._loop.inbox.is_quiet() else SMALL_PIECE
        weight = max(1, min(self._size, len(self._indices) - self._submitted))
        self._loop.ask(self._submit_piece, weight).add_done_callback(self._piece_is_durable)

    def _submit_piece(self, ledger: Ledger, now: float) -> list[int]:
        if not self._is_begun:
            self._begin(ledger)
        piece = self._indices[self._submitted : self._submitted + self._size]
        made = ledger.submit([self._job._replace(array=piece, part_of=self._first)], now) if piece else []
        if made and self._first is None:
            self._growing.numbers.add(made[0])
        return made

    def _begin(self, ledger: Ledger) -> None:
        """Find what an earlier submission with the same key has left. The store may no longer have all its jobs, but it has the order."""
        job = self._job
        first = self._known(ledger)
        if self._growing.has(job):
            raise FullError(f"the array with key {job.key!r} is still being submitted; try again in a moment")
        if first is not None:
            (last,) = self._loop.store.jobs(Query(array_id=first, limit=1))
            self._first, self._is_resumed = first, True
            self._submitted = self._indices.index(last.array_index or 0) + 1
            self._growing.numbers.add(first)
        if self._job.after:
            (self._job,) = Resolver(ledger, [self._job], {}, self._growing.numbers - {first or 0}).resolved()
        if not self._is_resumed:
            ledger.check_quotas([self._job])
        self._is_begun = True
        self._growing.begin(job)

    def _piece_is_durable(self, piece: Future[list[int]]) -> None:
        error = piece.exception()
        if error is None:
            numbers = piece.result()
            self._numbers += numbers
            self._submitted += len(numbers)
            self._first = self._numbers[0] if self._first is None else self._first
            if self._submitted < len(self._indices):
                try:
                    self.ask_for_piece()
                    return
                except SlotwiseError as refusal:
                    error = refusal
        if self._is_begun:
            self._growing.end(self._job, self._first)
        if error is not None:
            told = (
                error
                if self._first is None
                else incomplete(error, self._first, self._submitted, len(self._indices))
            )
            self.whole.set_exception(told)
        elif self._is_resumed:  # to read 100,000 rows takes a second
            threading.Thread(target=self._read_numbers, name="slotwise-array", daemon=True).start()
        else:
            self.whole.set_result(self._numbers)

    def _read_numbers(self) -> None:
        try:
            rows = self._loop.store.jobs(Query(array_id=self._first, limit=len(self._indices), ascending=True))
            self.whole.set_result([job.id for job in rows])
        except Exception as error:  # the caller waits for an answer, whatever it is
            self.whole.set_exception(error)


def incomplete(error: BaseException, first: int, submitted: int, total: int) -> BaseException:
    """Return an error of a later piece that also says what has happened already."""
    if not isinstance(error, SlotwiseError):
        return error
    told = f"{submitted:,} of {total:,} jobs were submitted, as array {first}: {error}"
    return InputError(told) if isinstance(error, InputError) else type(error)(told)
