"""Held jobs: random graphs of jobs, arrays, failures and retries against the definition, and the books made anew from the store."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rounds import Rounds

from slotwise.errors import InputError
from slotwise.live.after import EACH, in_order
from slotwise.live.engines.protocol import Ended
from slotwise.live.holds import Holds
from slotwise.live.ledger import Ledger
from slotwise.live.newjob import After, NewJob
from slotwise.live.replay import difference, rows, step
from slotwise.live.restart import Setup, hold_again
from slotwise.live.retries import Retry
from slotwise.live.store import ENDED
from slotwise.live.store.records import HELD, Job
from slotwise.model import Cluster, JobType, ServerClass

SETUP = Setup(
    Cluster(resources=("cpu",), servers=(ServerClass(name="a", count=1, capacity=("6",)),)),  # type: ignore[arg-type]
    (JobType(name="one", demand=("1",)),),  # type: ignore[arg-type]
    policy="best-fit",
)


@pytest.fixture
def rounds(tmp_path: Path) -> Rounds:
    return Rounds(f"sqlite:///{tmp_path}/x.db", SETUP)


def new(*after: After, retry: Retry | None = None, **more: Any) -> NewJob:
    spec: dict[str, Any] = {"argv": ["x"], "type": "one", "after": [list(one) for one in after]}
    if retry is not None:
        spec |= {"retry": retry.times, "backoff": retry.backoff}
        spec |= {"retry_on": sorted(retry.codes)} if retry.codes is not None else {}
    if more.get("at_once"):
        spec["at_once"] = more["at_once"]
    return NewJob("t", "one", {}, {}, body=json.dumps(spec), after=after, retry=retry, **more)


# -- the definition ---------------------------------------------------------------------------------------------------


def members(jobs: dict[int, Job], need: After, index: int | None) -> list[Job]:
    """The jobs that a dependency means, as the documentation says it."""
    if need.kind.startswith(EACH):
        return [one for one in jobs.values() if (one.array_id, one.array_index) == (need.other, index)]
    if need.at_index is not None:
        return [one for one in jobs.values() if (one.array_id, one.array_index) == (need.other, need.at_index)]
    return [one for one in jobs.values() if need.other in (one.id, one.array_id)]


def verdict(jobs: dict[int, Job], need: After, index: int | None) -> bool | None:
    """Whether a dependency is fulfilled, from the states of all jobs."""
    states = [one.state for one in members(jobs, need, index)]
    assert states
    kind = need.kind.removeprefix(EACH)
    all_ended, some_bad = all(one in ENDED for one in states), any(one in ENDED and one != "done" for one in states)
    if kind == "ok":
        return False if some_bad else True if all_ended else None
    if kind == "any":
        return True if all_ended else None
    return None if not all_ended else some_bad


def books(holds: Holds) -> Any:
    """What is held and why, without what follows from the order of things."""
    return {number: (sorted(holds.open_needs(number)), holds.due_of(number)) for number in sorted(holds.numbers())}


def check(rounds: Rounds, made: dict[int, tuple[NewJob, int | None]]) -> None:
    jobs = rounds.jobs()
    ledger = rounds.ledger
    assert {one.id for one in jobs.values() if one.state == HELD} == set(ledger.holds.numbers())
    for number, (job, index) in made.items():
        row = jobs[number]
        verdicts = [verdict(jobs, need, index) for need in job.after]
        never = row.state == "cancelled" and (row.reason or "").startswith("never starts")
        if row.state != HELD and not never and (row.state != "cancelled" or row.attempt):
            assert all(verdicts), (number, row.state)  # it started after them
        if never:
            assert False in verdicts
            assert row.attempt == 0
        if row.state == HELD:
            assert False not in verdicts
            mates = [one for one in jobs.values() if one.array_id == row.array_id and row.array_id is not None]
            active = sum(one.state in ("waiting", "placed", "running") for one in mates)
            full = job.at_once is not None and active >= job.at_once
            assert None in verdicts or row.due is not None or full
            assert not full or active == job.at_once
    fresh = Ledger(ledger.core)
    hold_again(rounds.store, fresh)
    fresh.holds.wake(rounds.clock.time)
    assert books(fresh.holds) == books(ledger.holds)
    assert (fresh.retrying.keys(), fresh.retried) == (ledger.retrying.keys(), ledger.retried)


def some_needs(chance: random.Random, jobs: dict[int, Job], array: Sequence[int] | None) -> list[After]:
    arrays = sorted({one.array_id for one in jobs.values() if one.array_id is not None})
    found = []
    for _ in range(chance.choice([0, 1, 1, 2, 3]) if jobs else 0):
        kind = chance.choice(["ok", "ok", "any", "failed"])
        other = chance.choice(sorted(jobs)[-12:])
        where = jobs[other]
        if array is not None and arrays and chance.random() < 0.3:
            found.append(After(EACH + kind, chance.choice(arrays)))
        elif where.array_id is not None and chance.random() < 0.5:
            found.append(After(kind, where.array_id, where.array_index))
        else:
            found.append(After(kind, other))
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs_follow_the_definition(rounds: Rounds, seed: int) -> None:
    chance = random.Random(seed)
    made: dict[int, tuple[NewJob, int | None]] = {}
    for _ in range(90):
        rounds.clock.time += chance.choice([0.0, 1.0, 5.0])
        kind = chance.random()
        if kind < 0.35:
            array = range(1, chance.choice([3, 4, 6])) if chance.random() < 0.4 else None
            retry = Retry(2, 4.0, chance.choice([None, frozenset([75])])) if chance.random() < 0.4 else None
            at_once = 2 if array is not None and chance.random() < 0.5 else None
            job = new(*some_needs(chance, rounds.jobs(), array), retry=retry, array=array, at_once=at_once)
            try:
                numbers = rounds.submit(job)
            except InputError as error:
                assert "has no job with index" in str(error)  # noqa: PT017
                continue
            for number, index in zip(numbers, array or [None], strict=True):
                made[number] = job, index
        elif kind < 0.9 and rounds.ledger.live:
            rounds.end(chance.choice(sorted(rounds.ledger.live)), chance.choice([0, 0, 0, 1, 75]))
        elif made:
            number = chance.choice(sorted(made))
            future = rounds.loop.ask(lambda ledger, now, number=number: ledger.cancel(number, now))
            rounds.round()
            assert future.exception() is None or isinstance(future.exception(), InputError)
        rounds.round()
        check(rounds, made)
    for _ in range(500):
        rounds.clock.time += 10.0
        for number in sorted(rounds.ledger.live):
            rounds.end(number, chance.choice([0, 0, 1]))
        rounds.round()
        check(rounds, made) if _ < 5 else None
        if not rounds.ledger.live and not len(rounds.ledger.holds):
            break
    assert {one.state for one in rounds.jobs().values()} <= set(ENDED)  # nothing waits for ever
    check_history(rounds, made)


def check_history(rounds: Rounds, made: dict[int, tuple[NewJob, int | None]]) -> None:
    """The journal tells each attempt, its end, and the retries between."""
    runs: dict[int, list[Any]] = {}
    for entry in rows(rounds.store, 0):
        event, note = json.loads(entry.event), json.loads(entry.note or "{}")
        for job, _, attempt in json.loads(entry.placements):
            runs.setdefault(job, []).append([attempt, None])
        if event["event"] == "complete":
            runs[event["job"]][-1][1] = note["exit_code"]
    for number, row in rounds.jobs().items():
        told = runs.get(number, [])
        assert [attempt for attempt, _ in told] == list(range(1, row.attempt + 1))
        retry = made[number][0].retry
        failed = [code for _, code in told if code]
        assert row.retries == (len(failed) - (row.state == "failed"))
        assert row.retries <= (retry.times if retry else 0)
        if retry and retry.codes:
            assert all(code in retry.codes for code in failed[: row.retries])


# -- single rules -----------------------------------------------------------------------------------------------------


def test_a_dependency_that_can_never_be_fulfilled_ends_the_job_and_those_behind_it(rounds: Rounds) -> None:
    (first,) = rounds.submit(new())
    (second,) = rounds.submit(new(After("ok", first)))
    (third,) = rounds.submit(new(After("ok", second)))
    (cleanup,) = rounds.submit(new(After("failed", first)))
    (always,) = rounds.submit(new(After("any", third)))
    assert [rounds.state(one) for one in (second, third, cleanup, always)] == ["held"] * 4
    rounds.end(first, 3)
    jobs = rounds.jobs()
    assert [jobs[one].state for one in (second, third, cleanup, always)] == [
        "cancelled", "cancelled", "placed", "placed"
    ]  # fmt: skip
    assert jobs[second].reason == f"never starts: it was to start after ok:{first}, and job {first} is failed"
    assert jobs[third].reason == f"never starts: it was to start after ok:{second}, and job {second} is cancelled"
    (late,) = rounds.submit(new(After("ok", first)))  # the same, as the job might have failed a moment later
    assert rounds.state(late) == "cancelled"


def test_arrays_are_waited_for_as_a_whole_or_index_by_index(rounds: Rounds) -> None:
    first = rounds.submit(new(array=range(1, 4)))
    each = rounds.submit(new(After("each-ok", first[0]), array=range(1, 4)))
    (whole,) = rounds.submit(new(After("ok", first[0])))
    (one,) = rounds.submit(new(After("ok", first[0], 1)))
    rounds.end(first[0])
    assert [rounds.state(job) for job in (*each, whole, one)] == ["placed", "held", "held", "held", "placed"]
    rounds.end(first[2], 1)
    assert [rounds.state(job) for job in (*each, whole)] == ["placed", "held", "cancelled", "cancelled"]
    rounds.end(first[1])
    assert rounds.state(each[1]) == "placed"


def test_what_is_not_there_is_refused(rounds: Rounds) -> None:
    (mine,) = rounds.submit(new())
    (theirs,) = rounds.submit(new()._replace(tenant="other"))
    array = rounds.submit(new(array=range(1, 4)))
    before = rounds.jobs()
    for job, said in (
        (new(After("ok", 999)), "tenant 't' has no job 999"),
        (new(After("ok", theirs)), f"tenant 't' has no job {theirs}"),
        (new(After("each-ok", mine)), "each-ok is for arrays"),
        (new(After("each-ok", mine), array=range(1, 3)), "has no job with index 1"),
        (new(After("each-ok", array[0]), array=range(2, 6)), "has no job with index 4"),
        (new(After("ok", array[0], 9)), f"array {array[0]} has no index 9"),
        (new(After("ok", array[1], 1)), f"job {array[1]} is a job of array {array[0]}; name the array: {array[0]}"),
        (new(After("each-ok", array[2]), array=range(1, 4)), f"job {array[2]} is a job of array {array[0]}"),
    ):
        with pytest.raises(InputError, match=said):
            rounds.submit(job)
    assert rounds.jobs() == before


def test_jobs_of_one_request_wait_for_each_other(rounds: Rounds) -> None:
    a, b, *c = rounds.submit(
        new(key="a"), new(After("ok", 0, is_place=True)), new(array=range(2)),
        new(After("each-ok", 2, is_place=True), array=range(2)),
    )  # fmt: skip
    rounds.end(a)
    rounds.end(c[0])
    assert [rounds.state(one) for one in (b, c[2], c[3])] == ["placed", "placed", "held"]
    again = rounds.submit(new(key="a"), new(After("ok", 0, is_place=True)))  # the first was submitted before
    assert again[0] == a
    assert rounds.state(again[1]) in ("placed", "waiting")


def test_an_array_of_thousands_is_released_in_pieces(rounds: Rounds) -> None:
    (first,) = rounds.submit(new())
    many = rounds.submit(new(After("any", first), array=range(1, 1201)))
    assert len(rounds.ledger.holds) == 1200
    rounds.loop.inbox.tell([Ended(first, 1, 0, rounds.clock.time)])
    rounds.loop.round(rounds.loop.inbox.take(10, 0))
    assert len(rounds.ledger.holds) == 700  # 500 in the transaction of the end, 700 in the next two
    fresh = Ledger(rounds.ledger.core)
    hold_again(rounds.store, fresh)  # as after a kill at this moment
    assert fresh.holds.numbers() == many[500:]
    assert fresh.holds.next_due == 0.0
    rounds.round()
    assert not len(rounds.ledger.holds)
    placed = [job.id for job in rounds.jobs().values() if job.state == "placed"]
    assert sorted(placed) == many[:6]


def test_dependants_wait_for_the_last_attempt(rounds: Rounds) -> None:
    (first,) = rounds.submit(new(retry=Retry(2, 30.0)))
    (second,) = rounds.submit(new(After("ok", first)))
    for retry, after in ((1, 30.0), (2, 60.0)):
        rounds.end(first, 1)
        row = rounds.jobs()[first]
        assert (row.state, row.retries, row.attempt, row.due) == (HELD, retry, retry, rounds.clock.time + after)
        rounds.clock.time += after - 0.1
        rounds.round()
        assert (rounds.state(first), rounds.state(second)) == (HELD, HELD)
        rounds.clock.time += 0.2
        rounds.round()
        row = rounds.jobs()[first]
        assert (row.state, row.attempt, row.due, row.exit_code) == ("placed", retry + 1, None, None)
    rounds.end(first, 0)
    assert (rounds.state(first), rounds.state(second)) == ("done", "placed")
    assert replay_of(rounds) == []


def test_only_chosen_exit_codes_are_retried_and_a_cancelled_job_never(rounds: Rounds) -> None:
    retry = Retry(5, 0.0, frozenset([75, 137]))
    jobs = rounds.submit(*[new(retry=retry) for _ in range(4)])
    rounds.end(jobs[0], 75)
    rounds.end(jobs[1], -9)  # what a shell calls 137
    rounds.end(jobs[2], 1)
    rounds.ask(lambda ledger, now: ledger.stop(jobs[3], now))
    rounds.end(jobs[3], 75)
    assert [rounds.state(one) for one in jobs] == ["placed", "placed", "failed", "cancelled"]


def replay_of(rounds: Rounds) -> list[Any]:
    """The rows of the journal that the core does not decide in the same way again."""
    core, found = SETUP.core(), []
    for entry in rows(rounds.store, 0):
        core, outcome = step(core, entry)
        if outcome is not None:
            found.append(difference(entry, outcome))
    return [one for one in found if one is not None]


def test_rows_that_held_jobs_need_are_kept(rounds: Rounds) -> None:
    array = rounds.submit(new(array=range(1, 3)))
    (waits,) = rounds.submit(new(After("failed", array[0])))
    (other,) = rounds.submit(new())
    rounds.end(array[0], 1)
    rounds.end(other)
    rounds.clock.time += 1000
    rounds.store.trim(journal_before=0, jobs_before=rounds.clock.time, limit=100)
    assert set(rounds.jobs()) == {*array, waits}
    fresh = Ledger(rounds.ledger.core)
    hold_again(rounds.store, fresh)
    fresh.holds.ended(array[1], "done")
    assert fresh.holds.next_ready() == waits  # that one job failed is known, however long ago
    rounds.end(array[1])
    rounds.end(waits)
    rounds.clock.time += 1000
    rounds.store.trim(journal_before=0, jobs_before=rounds.clock.time, limit=100)
    assert rounds.jobs() == {}
    with pytest.raises(InputError, match="its row was dropped"):
        rounds.submit(new(After("ok", array[0])))
    assert rounds.store.ask("SELECT count(*) FROM dependency") == [(0,)]


def test_cycles_are_shown() -> None:
    jobs = [
        {"name": "a", "after": {"ok": ["b"]}}, {"name": "b", "after": {"any": ["c", 7]}},
        {"name": "c", "after": {"ok": ["a"]}}, {"name": "d"},
    ]  # fmt: skip
    with pytest.raises(InputError, match="jobs wait for each other: a after b after c after a"):
        in_order(jobs)
    with pytest.raises(InputError, match="job 'd': after: no job is called 'x'"):
        in_order([{"name": "d", "after": {"ok": ["x"]}}])
    with pytest.raises(InputError, match="two jobs are called 'a'"):
        in_order([{"name": "a"}, {"name": "a"}, {"after": {"ok": ["a"]}}])
