"""Large arrays are submitted in pieces: other callers get their turn, and a submission that broke off is completed by its key."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from house import House

from slotwise.live import loop as loop_module
from slotwise.live.inbox import LARGE, FullError, Inbox, Request
from slotwise.live.loop import KeyConflictError, Loop, NotReadyError, UnsureError
from slotwise.live.newjob import NewJob
from slotwise.live.pieces import PIECE, SMALL_PIECE
from slotwise.live.store import Query
from slotwise.live.store.records import Batch, StoreError

JOBS = 4 * PIECE


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.service.close()


def large(key: str | None = None, argv: str = "x") -> NewJob:
    body = json.dumps({"argv": [argv], "jobs": JOBS})
    return NewJob("t", "one", {}, {}, key=key, body=body, array=range(JOBS))


def held_up(loop: Loop) -> threading.Event:
    """Let the loop wait for an event, so that what follows is in its inbox together."""
    go = threading.Event()
    loop.ask(lambda ledger, now: go.wait())
    return go


def test_another_caller_comes_in_between(house: House) -> None:
    loop = house.service.loop
    go = held_up(loop)
    array, other = loop.submit([large()]), loop.submit([NewJob("u", "one", {}, {}, body='{"argv": ["x"]}')])
    go.set()
    (number,) = other.result()
    numbers = array.result()
    assert number == 1, "a small request passes the first piece"
    assert len(numbers) == JOBS
    assert number not in numbers
    jobs = house.service.store.jobs(Query(array_id=numbers[0], limit=JOBS + 1, ascending=True))
    assert [(job.id, job.array_index) for job in jobs] == list(zip(numbers, range(JOBS), strict=True))


def test_small_requests_pass_large_ones() -> None:
    """One large request at most in a round, and in every second round at least: none waits for ever."""
    inbox = Inbox(10**9, lambda: 0.0)
    large_ones = [Request(lambda ledger, now: None, LARGE + 1) for _ in range(3)]
    for one in large_ones:
        inbox.ask(one)
    rounds = []
    for _ in range(6):
        small = Request(lambda ledger, now: None)
        inbox.ask(small)
        taken = inbox.take(10_000, None)
        assert taken[0] is small
        rounds.append(taken[1:])
    assert rounds == [[], [large_ones[0]], [], [large_ones[1]], [], [large_ones[2]]]
    inbox.ask(large_ones[0])
    assert inbox.take(10_000, None) == [large_ones[0]]


def test_large_requests_rest_while_small_ones_come() -> None:
    """A large request that took 3 s is followed by none for 6 s, unless no small one has come for a second."""
    now = 100.0
    inbox = Inbox(10**9, lambda: now)
    first, second, third = (Request(lambda ledger, now: None, LARGE + 1) for _ in range(3))
    small = Request(lambda ledger, now: None)
    inbox.ask(first)
    assert inbox.take(10_000, None) == [first]
    now = 103.0
    for one in (second, third, small):
        inbox.ask(one)
    assert inbox.take(10_000, 0.0) == [small]
    now = 104.0
    assert inbox.take(10_000, 0.0) == []
    inbox.ask(small)
    assert inbox.take(10_000, 0.0) == [small]
    now = 105.5
    assert inbox.take(10_000, 0.0) == [second], "no small request has come for more than a second"
    inbox.ask(small)
    now = 106.0
    assert inbox.take(10_000, 0.0) == [small]
    now = 107.0
    assert inbox.take(10_000, None) == [third]


def test_pieces_are_small_while_other_callers_are_there(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = house.service.loop
    sizes: list[int] = []
    real = loop.ask

    def ask(act: Callable[..., Any], weight: int = 1) -> Future[Any]:
        sizes.append(weight)
        return real(act, weight)

    monkeypatch.setattr(loop, "ask", ask)
    loop.inbox.small_at = float("-inf")
    loop.submit([large()]).result()
    assert sizes == [PIECE] * (JOBS // PIECE)
    sizes.clear()
    loop.inbox.small_at = float("inf")
    loop.submit([large()]).result()
    assert sizes == [SMALL_PIECE] * (JOBS // SMALL_PIECE)


def broken_off(loop: Loop, job: NewJob, monkeypatch: pytest.MonkeyPatch) -> Future[list[int]]:
    """Submit an array; the service takes two pieces and then no more."""
    real, asked = loop.ask, []

    def ask(act: Callable[..., Any], weight: int = 1) -> Future[Any]:
        asked.append(weight)
        if len(asked) > 2:
            raise NotReadyError("the store cannot be written")
        return real(act, weight)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "ask", ask)
        future = loop.submit([job])
        assert future.exception() is not None
    return future


def test_a_submission_that_broke_off_is_completed_by_its_key(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = house.service.loop
    told = broken_off(loop, large("k"), monkeypatch).exception()
    assert isinstance(told, NotReadyError)
    assert str(told) == f"{2 * PIECE:,} of {JOBS:,} jobs were submitted, as array 1: the store cannot be written"
    with pytest.raises(KeyConflictError):
        loop.submit([large("k", "y")]).result()
    numbers = loop.submit([large("k")]).result()
    assert len(set(numbers)) == JOBS
    jobs = house.service.store.jobs(Query(array_id=1, limit=2 * JOBS, ascending=True))
    assert [job.array_index for job in jobs] == list(range(JOBS))
    assert loop.submit([large("k")]).result() == numbers


def test_a_key_of_an_array_that_is_still_growing(house: House) -> None:
    """The second caller tries again later; it must not add the same jobs."""
    loop = house.service.loop
    go = held_up(loop)
    first, second = loop.submit([large("k")]), loop.submit([large("k")])
    go.set()
    with pytest.raises(FullError, match="still being submitted"):
        second.result()
    numbers = first.result()
    assert loop.submit([large("k")]).result() == numbers
    assert len(house.service.store.jobs(Query(limit=2 * JOBS))) == JOBS


def test_a_first_piece_that_fails_leaves_its_key_free(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store cannot be written for so long that the caller is told; later the same key completes the array."""
    loop, store = house.service.loop, house.service.store
    real = store.commit
    failed: list[Batch] = []

    def commit(batch: Batch) -> None:
        if not failed:
            failed.append(batch)
            raise StoreError("the disk is full")
        real(batch)

    monkeypatch.setattr(store, "commit", commit)
    monkeypatch.setattr(loop_module, "ANSWER_SECONDS", 0.0)
    monkeypatch.setattr(loop_module, "RETRY_SECONDS", 0.0)
    with pytest.raises(UnsureError):
        loop.submit([large("k")]).result()
    loop.inbox.ask(Request(lambda ledger, now: None)).result()  # the store can be written again
    assert len(set(loop.submit([large("k")]).result())) == JOBS
    assert len(store.jobs(Query(limit=2 * JOBS))) == JOBS


def test_jobs_that_retention_has_dropped_are_not_submitted_again(house: House) -> None:
    loop, store = house.service.loop, house.service.store
    numbers = loop.submit([large("k")]).result()
    dropped = numbers[-PIECE:-1]
    loop.ask(lambda ledger, now: [ledger.cancel(number, now) for number in dropped]).result()
    with sqlite3.connect(str(store.file)) as connection:
        connection.execute("DELETE FROM job WHERE state = 'cancelled'")
    assert loop.submit([large("k")]).result() == [*numbers[:-PIECE], numbers[-1]]


def test_requests_with_arrays(house: House) -> None:
    spec = {"argv": ["x"], "array": f"1-{JOBS}", "key": "k"}
    numbers = house.call("POST", "/v1/jobs", json=spec).json()["ids"]
    assert len(numbers) == JOBS
    assert house.call("POST", "/v1/jobs", json=spec).json()["ids"] == numbers
    assert house.call("POST", "/v1/jobs", json={**spec, "array": f"1-{JOBS - 1}"}).status_code == 409
    many = house.call("POST", "/v1/jobs/bulk", json=[{"argv": ["x"], "array": "1-9000"}] * 2)
    assert many.status_code == 400
    assert "send large arrays one by one" in many.json()["detail"]
