"""Accounting: what the store says was used, against a book kept by hand; windows, retries, tenants, retention."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from rounds import Rounds

from slotwise.errors import InputError
from slotwise.live.engines.protocol import Refused
from slotwise.live.newjob import After, NewJob
from slotwise.live.restart import Setup
from slotwise.live.retries import Retry
from slotwise.live.store.usage import UsagePeriod, check_keys, usage
from slotwise.model import Cluster, JobType, ServerClass

SETUP = Setup(
    Cluster(resources=("cpu", "memory"), servers=(ServerClass(name="a", count=1, capacity=("8", "800")),)),  # type: ignore[arg-type]
    (JobType(name="one", demand=("1", "50")), JobType(name="two", demand=("2", "100"))),  # type: ignore[arg-type]
    policy="best-fit",
)
SIZES = {"one": {"cpu": 1.0, "memory": 50.0}, "two": {"cpu": 2.0, "memory": 100.0}}
HOUR = 3600.0


class Books(Rounds):
    """A loop beside a book of every attempt: job, when it was placed, when it left its server."""

    def __init__(self, url: str) -> None:
        self.open: dict[int, float] = {}
        self.held: list[tuple[int, float, float]] = []
        self.about: dict[int, tuple[str, str, str]] = {}
        super().__init__(url, SETUP)

    def round(self) -> None:
        """Also note which jobs came to the server and which left it."""
        super().round()
        now = self.clock.time
        for job in [job for job in self.open if job not in self.ledger.live]:
            self.held.append((job, self.open.pop(job), now))
        for job, live in self.ledger.live.items():
            if self.open.setdefault(job, live.placed) != live.placed:
                self.held.append((job, self.open[job], now))
                self.open[job] = live.placed

    def one(self, tenant: str, kind: str, user: str = "", retry: Retry | None = None, after: int = 0) -> int:
        body = json.dumps({"type": kind, "user": user} if user else {"type": kind})
        needs = (After("ok", after),) if after else ()
        (number,) = self.submit(NewJob(tenant, kind, {}, {}, body=body, retry=retry, after=needs))
        self.about[number] = (tenant, kind, user)
        return number

    def hours(self, window: UsagePeriod, key: int) -> dict[str, float]:
        """CPU-hours by tenant (0), type (1) or user (2) as the book has them."""
        found: dict[str, float] = {}
        for job, begin, end in [*self.held, *((job, at, self.clock.time) for job, at in self.open.items())]:
            inside = min(end, window.until) - max(begin, window.since)
            if inside > 0 and window.tenant in (None, self.about[job][0]):
                name = self.about[job][key]
                found[name] = found.get(name, 0.0) + SIZES[self.about[job][1]]["cpu"] * inside / HOUR
        return found


def test_random_histories_as_in_a_book(store_url: str) -> None:
    books, chance = Books(store_url), random.Random(3)
    for _ in range(150):
        books.clock.time += chance.choice([1.0, 10.0, 100.0])
        act = chance.random()
        if act < 0.5 or not books.ledger.live:
            retry = Retry(2, 5.0) if chance.random() < 0.3 else None
            books.one(chance.choice("ab"), chance.choice(["one", "two"]), chance.choice(["", "u", "v"]), retry)
        elif act < 0.9:
            books.end(chance.choice(list(books.ledger.live)), chance.choice([0, 0, 1, 75]))
        else:
            job, live = chance.choice(list(books.ledger.live.items()))
            books.loop.inbox.tell([Refused(job, live.attempt, "no")])
            books.round()
            books.ledger.resume("s", books.clock.time)
    assert any(row[0] for row in books.store.ask("SELECT count(*) FROM attempt"))
    now = books.clock.time
    for window in (
        UsagePeriod(0, now),
        UsagePeriod(600, 2000),
        UsagePeriod(now - 50, now),
        UsagePeriod(1000, 1500, "a"),
    ):
        for key, name in enumerate(("tenant", "type", "user")):
            found = usage(books.store, [name], window, SIZES)
            have = {group[0]: use.hours.get("cpu", 0.0) for group, use in found.items() if use.hours.get("cpu")}
            assert have == pytest.approx(books.hours(window, key))
    everything = usage(books.store, [], UsagePeriod(0, now), {})[()]
    assert everything.hours["memory"] == pytest.approx(50 * everything.hours["cpu"])
    states = books.store.counts()
    assert everything.ended == states.get("done", 0) + states.get("failed", 0)
    assert sum(everything.exit_codes.values()) == everything.ended
    by_state = usage(books.store, ["state"], UsagePeriod(0, now), SIZES)
    assert by_state[("done",)].exit_codes == {0: states["done"]}
    books.store.close()


def test_waits_are_those_of_the_queue(store_url: str) -> None:
    books = Books(store_url)
    first = books.one("a", "two")
    others = [books.one("a", "two") for _ in range(4)]  # the cluster holds four
    after = books.one("a", "one", after=first)
    books.clock.time += 60.0
    books.end(first)
    books.clock.time += 1.0
    for job in others[:3]:
        books.end(job)
    found = usage(books.store, ["type"], UsagePeriod(0, books.clock.time + 1), SIZES)
    assert (found[("two",)].started, found[("two",)].wait) == (5, (12.0, 0.0, 60.0))
    assert found[("one",)].wait == (1.0, 1.0, 1.0), "the job that it was to start after is no wait"
    assert books.store.job(after).ready == 160.0  # type: ignore[union-attr]
    books.store.close()


def test_retries_and_retention(store_url: str) -> None:
    books = Books(store_url)
    job = books.one("a", "one", retry=Retry(1, 0.0))
    books.clock.time += 3600.0
    books.end(job, 1)
    books.round()
    books.clock.time += 1800.0
    books.end(job, 75)
    (use,) = usage(books.store, ["tenant"], UsagePeriod(0, books.clock.time + 1), SIZES).values()
    assert (use.retried, use.hours["cpu"], use.exit_codes) == (1, pytest.approx(1.5), {75: 1})
    books.store.trim(journal_before=0, jobs_before=books.clock.time + 1, limit=100)
    assert usage(books.store, ["tenant"], UsagePeriod(0, books.clock.time + 1), SIZES) == {}
    assert books.store.ask("SELECT count(*) FROM attempt") == [(0,)]
    books.store.close()


def test_a_changed_type_changes_nothing_of_the_past(tmp_path: Path) -> None:
    books = Books(f"sqlite:///{tmp_path}/x.db")
    job = books.one("a", "one")
    books.clock.time += 3600.0
    books.end(job)
    sizes = {"one": {"cpu": 4.0}}
    (use,) = usage(books.store, [], UsagePeriod(0, books.clock.time), sizes).values()
    assert use.hours["cpu"] == pytest.approx(1.0)
    books.store.close()


def test_keys_are_checked() -> None:
    assert check_keys(" tenant,type,tenant") == ["tenant", "type"]
    with pytest.raises(InputError, match="'colour' is no key; use some of: tenant"):
        check_keys("colour")
