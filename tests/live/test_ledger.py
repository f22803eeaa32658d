"""The books: what users ask, what engines tell, true or not; clocks that jump; stores that fail; versions that decide otherwise."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE
from pydantic import TypeAdapter

from slotwise.errors import InputError
from slotwise.live.clock import Clock
from slotwise.live.demands import find_type
from slotwise.live.engines.protocol import Ended, Lost, Refused, ServerDrained, ServerLost, ServerUp, Started
from slotwise.live.engines.simulated import SimulatedEngine, exponential
from slotwise.live.ledger import REFUSALS, Ledger
from slotwise.live.loop import KeyConflictError, Loop, NotReadyError
from slotwise.live.newjob import NewJob
from slotwise.live.replay import replay
from slotwise.live.restart import Setup, load
from slotwise.live.retention import Retention
from slotwise.live.service import Service
from slotwise.live.spec import JobSpec, body_of, indices
from slotwise.live.store import Batch, Entry, Query, StoreError, open_store
from slotwise.live.store.protocol import Store
from slotwise.live.store.records import Job
from slotwise.live.store.sqlite import SQLiteStore
from slotwise.model import Cluster, JobType, ServerClass
from slotwise.scheduling.compact import packed, unpacked

SETUP = Setup(
    Cluster(resources=("cpu", "memory"), servers=(ServerClass(name="a", count=2, capacity=("4", "1000")),)),  # type: ignore[arg-type]
    (JobType(name="one", demand=("1", "0")), JobType(name="all", demand=("4", "0"))),  # type: ignore[arg-type]
    policy="best-fit",
)
Until = Callable[[Loop, Callable[[], Any]], None]
ONE = NewJob("t", "one", {}, {})
ALL = NewJob("t", "all", {}, {})


@pytest.fixture
def ledger() -> Ledger:
    made = Ledger(SETUP.core())
    for name in ("x", "y"):
        made.server_up(ServerUp(name, {"cpu": 4, "memory": 1000}, server_class="a"), 1.0)
    made.take()
    return made


def states(batch: Batch) -> dict[int, str]:
    """The last state of each job in a batch."""
    found = {number: row[4] for number, row in batch.jobs.items()}
    return found | {number: columns["state"] for number, columns in batch.changes.items() if "state" in columns}


def test_from_submission_to_the_end(ledger: Ledger) -> None:
    assert ledger.submit([ALL, ALL, ALL], 2.0) == [1, 2, 3]
    batch, effects = ledger.take()
    assert states(batch) == {1: "placed", 2: "placed", 3: "waiting"}
    assert [(one.job, one.attempt) for one in effects.starts] == [(1, 1), (2, 1)]
    ledger.started(Started(1, 1, 2.5), 2.5)
    ledger.ended(Ended(1, 1, 0, 3.0), 3.0)
    ledger.ended(Ended(2, 1, 7, 3.0, "why"), 3.0)  # its start was never told
    batch, effects = ledger.take()
    assert states(batch) == {1: "done", 2: "failed", 3: "placed"}
    assert batch.changes[2]["reason"] == "why"
    assert effects.settled == [(1, 1), (2, 1)]
    assert not ledger.lies


def test_an_end_that_is_heard_of_later_has_its_own_time(ledger: Ledger) -> None:
    """The service was away: the read model and the journal have the time that the engine tells."""
    ledger.submit([ONE, ONE, ONE], 2.0)
    ledger.started(Started(1, 1, 2.5), 2.5)
    ledger.ended(Ended(1, 1, 0, 5.5), 60.0)
    ledger.ended(Ended(2, 1, 0, 4.0, started=3.0), 60.0)
    ledger.ended(Ended(3, 1, 0, 1e9), 60.0)  # a clock that is ahead
    batch, _ = ledger.take()
    rows = {number: dict(zip(Job._fields, row, strict=True)) for number, row in batch.jobs.items()}
    assert [rows[n]["ended"] for n in (1, 2, 3)] == [5.5, 4.0, 60.0]
    assert rows[2]["started"] == 3.0
    notes = [json.loads(one.note) for one in batch.entries if one.note and "exit_code" in one.note]
    assert [one.get("ended") for one in notes] == [5.5, 4.0, None]


def test_what_an_engine_says_that_cannot_be(ledger: Ledger) -> None:
    ledger.submit([ALL], 2.0)
    ledger.take()
    for fact in (Started(9, 1, 0.0), Ended(9, 1, 0, 0.0), Ended(1, 2, 0, 0.0), Lost(8, 1, "?"), Refused(1, 5, "?")):
        {Started: ledger.started, Ended: ledger.ended, Lost: ledger.lost, Refused: ledger.refused}[type(fact)](
            fact, 3.0
        )  # type: ignore[operator]
    batch, effects = ledger.take()
    assert not batch.entries
    assert ledger.lies.total() == 5
    assert effects.settled == [(9, 1), (1, 2), (8, 1)]  # what it keeps of them, it may forget
    ledger.ended(Ended(1, 1, 0, 4.0), 4.0)
    ledger.ended(Ended(1, 1, 0, 4.0), 4.0)  # the same again is nothing
    assert ledger.lies.total() == 5
    ledger.ended(Ended(1, 1, 3, 4.0), 4.0)  # another end is a lie: the first holds
    assert ledger.lies.total() == 6
    assert states(ledger.take()[0]) == {1: "done"}


def test_a_server_that_refuses_is_drained(ledger: Ledger) -> None:
    ledger.submit([ALL], 2.0)
    ledger.take()
    for attempt in range(1, REFUSALS + 1):
        server = ledger.live[1].server
        ledger.refused(Refused(1, attempt, "no"), 3.0)
        if ledger.live[1].server != server:  # it went elsewhere by itself
            return
    _, effects = ledger.take()
    assert effects.starts[-1].attempt == REFUSALS + 1
    assert effects.starts[-1].server != server
    assert ledger.servers[server].status == "draining"
    assert "refused" in (ledger.servers[server].reason or "")


def test_a_lost_server(ledger: Ledger) -> None:
    ledger.submit([ALL, ALL, ONE], 2.0)
    ledger.take()
    by_server = {live.server: job for job, live in ledger.live.items()}
    ledger.live[by_server["x"]].on_loss = "requeue"
    ledger.server_lost(ServerLost("x", "power"), 3.0)
    ledger.server_lost(ServerLost("y", "power"), 3.0)
    batch, effects = ledger.take()
    assert states(batch) == {by_server["x"]: "waiting", by_server["y"]: "lost"}
    assert not effects.starts
    ledger.cancel(3, 4.0)
    ledger.server_up(ServerUp("x", {}, server_class="a"), 5.0)
    _, effects = ledger.take()
    assert [(one.job, one.attempt) for one in effects.starts] == [(by_server["x"], 2)]


def test_lost_attempts(ledger: Ledger) -> None:
    ledger.submit([ONE, ONE], 2.0)
    ledger.live[2].on_loss = "requeue"
    ledger.take()
    ledger.lost(Lost(1, 1, "gone"), 3.0)
    ledger.lost(Lost(2, 1, "gone"), 3.0)
    batch, effects = ledger.take()
    assert states(batch) == {1: "lost", 2: "placed"}
    assert effects.starts[0].attempt == 2


def test_stop_and_cancel(ledger: Ledger) -> None:
    ledger.submit([ALL, ALL, ALL], 2.0)
    ledger.take()
    with pytest.raises(InputError, match="stopped"):
        ledger.cancel(1, 2.5)
    with pytest.raises(InputError, match="cancelled"):
        ledger.stop(3, 2.5)
    ledger.stop(1, 3.0)
    ledger.stop(1, 3.0)
    ledger.stop(2, 3.0)
    batch, effects = ledger.take()
    assert effects.stops == [(1, 1), (1, 1), (2, 1)]
    assert len(batch.entries) == 2
    ledger.ended(Ended(1, 1, -15, 4.0), 4.0)
    ledger.ended(Ended(2, 1, 0, 4.0), 4.0)  # it was quicker than the wish
    assert states(ledger.take()[0]) == {1: "cancelled", 2: "done", 3: "placed"}


def test_drain_resume_remove(ledger: Ledger) -> None:
    ledger.drain("x", 2.0, "asked for")
    ledger.server_up(ServerUp("x", {}, server_class="a"), 2.0)
    assert ledger.servers["x"].status == "draining"  # a person did it: the engine does not undo it
    ledger.server_drained(ServerDrained("y", "kernel"), 2.0)
    ledger.submit([ONE], 2.0)
    assert not ledger.take()[1].starts
    ledger.server_up(ServerUp("y", {}, server_class="a"), 3.0)
    assert ledger.servers["y"].status == "up"
    assert ledger.take()[1].starts[0].server == "y"
    with pytest.raises(InputError):
        ledger.remove("y", 3.0)
    ledger.remove("x", 3.0)
    assert "x" not in ledger.servers
    with pytest.raises(InputError, match="no server"):
        ledger.drain("x", 3.0)


def test_demands_make_types(ledger: Ledger) -> None:
    ledger.submit([NewJob("t", None, {"cpu": 0.9}, {}), NewJob("t", None, {"cpu": 2.2, "memory": 300.0}, {})], 2.0)
    assert [one.name for one in ledger.core.types] == ["one", "all", "cpu3-memory384"]
    before = ledger.core.types
    for wrong in (
        NewJob("t", None, {"cpu": 5.0}, {}),
        NewJob("t", None, {"gpu": 1.0}, {}),
        NewJob("t", "none", {}, {}),
        NewJob("t", "one", {"cpu": 2.0}, {}),
        NewJob("t", None, {"cpu": 1.0}, {"zone": ["b"]}),
    ):
        with pytest.raises(InputError):
            ledger.submit([wrong], 3.0)
    assert ledger.core.types == before
    ledger.server_up(ServerUp("z", {"cpu": 8, "memory": 10}, {"zone": "b"}), 4.0)
    ledger.take()
    ledger.submit([NewJob("t", None, {"cpu": 1.0}, {"zone": ["b", "c"]})], 5.0)
    assert ledger.take()[1].starts[0].server == "z"


def test_every_demand_finds_a_type_that_covers_it() -> None:
    chance = random.Random(1)
    cluster = Cluster(
        resources=("cpu", "memory"),
        servers=(
            ServerClass(name="a", count=1, capacity=("4", "1000")),  # type: ignore[arg-type]
            ServerClass(name="b", count=1, capacity=("64", "100")),  # type: ignore[arg-type]
        ),
    )
    types: list[JobType] = []
    for _ in range(500):
        needs = {
            "cpu": round(chance.uniform(0.5, 64), chance.randrange(3)),
            "memory": float(chance.randrange(1000)),
        }
        holds = [c for c in cluster.servers if c.capacity[0] >= needs["cpu"] and c.capacity[1] >= needs["memory"]]
        if not holds:
            with pytest.raises(InputError):
                find_type(needs, {}, cluster, types)
            continue
        found = find_type(needs, {}, cluster, types)
        assert all(float(size) >= need for size, need in zip(found.type.demand, needs.values(), strict=True))
        assert any(
            all(c >= d for c, d in zip(one.capacity, found.type.demand, strict=True)) for one in cluster.servers
        )
        if found.made:
            types.append(found.type)
    assert len(types) <= 80


def test_specs_and_ranges() -> None:
    assert list(indices("3-9:3")) == [3, 6, 9]
    for wrong in ("", "5-1", "1-2:0", "a-b", "0-99999999", "1,"):
        with pytest.raises(ValueError, match="range|at most"):
            indices(wrong)
    checked = TypeAdapter(JobSpec).validate_python
    spec = checked({"argv": ["a", "b"], "key": "k", "env": {"X": "1"}, "needs": {"cpu": 1}})
    assert json.loads(body_of(spec)) == {"argv": ["a", "b"], "env": {"X": "1"}, "needs": {"cpu": 1.0}}
    assert body_of(checked({"argv": ["a"]})) == '{"argv":["a"]}'
    wrong_ones: list[dict[str, object]] = [
        {"argv": []}, {"argv": [""]}, {"argv": ["a\0b"]}, {"argv": ["a"], "shell": True}, {"argv": ["a"], "env": {"A=B": "1"}},
        {"argv": ["a"], "array": "5-1"}, {"argv": ["a"], "needs": {"cpu": -1}}, {"argv": ["a"], "on_loss": "ignore"},
    ]  # fmt: skip
    for wrong_one in wrong_ones:
        with pytest.raises(ValueError, match=r"argv|shell|env|array|needs|on_loss"):
            checked(wrong_one)


def test_a_clock_that_jumps() -> None:
    wall, steady = [1000.0], [0.0]
    clock = Clock(wall=lambda: wall[0], monotonic=lambda: steady[0])
    seen = [clock.now()]
    for jump in (0.0, 3600.0, -7200.0, 0.0, 3600.0):
        wall[0] += 1.0 + jump
        steady[0] += 1.0
        seen.append(clock.now())
    steps = [after - before for before, after in itertools.pairwise(seen)]
    assert all(0.899 < step < 1.101 for step in steps)
    for _ in range(100):
        wall[0] += 1.0
        steady[0] += 1.0
        clock.now()
    assert abs(clock.off) < 1e-6
    assert Clock(not_before=5000.0, wall=lambda: 10.0, monotonic=lambda: 0.0).now() == 5000.0


class Failing(SQLiteStore):
    """A store whose disk is full for a while; some of its commits come through although they say they did not."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.bad = 0
        self.silent = False

    def commit(self, batch: Batch) -> None:
        if self.bad:
            self.bad -= 1
            if self.silent:
                super().commit(batch)
            raise StoreError("no space left on device")
        super().commit(batch)


def engine() -> SimulatedEngine:
    return SimulatedEngine(
        [ServerUp(n, {"cpu": 4, "memory": 1000}, server_class="a") for n in ("x", "y")], exponential(1, 0.001)
    )


@pytest.mark.parametrize("silent", [False, True])
def test_a_store_that_fails_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: bool, until: Until
) -> None:
    monkeypatch.setattr("slotwise.live.loop.RETRY_SECONDS", 0.01)
    store = Failing(tmp_path / "x.db")
    service = Service(store, engine(), SETUP)
    try:
        service.loop.submit([ONE] * 3).result(PATIENCE)
        until(service.loop, lambda: store.counts() == {"done": 3})  # nothing of them is left to be written
        store.silent, store.bad = silent, 5
        later = service.loop.submit([ONE] * 3)
        assert later.result(PATIENCE) == [4, 5, 6]
        until(service.loop, lambda: service.loop.trouble is None and store.counts() == {"done": 6})
    finally:
        service.close()
    again = open_store(store.url)
    assert replay(again).differences == []
    again.close()


def test_not_ready_is_said(tmp_path: Path) -> None:
    service = Service(open_store(f"sqlite:///{tmp_path}/x.db"), engine(), SETUP)
    service.loop.trouble = "the disk is full"
    with pytest.raises(NotReadyError, match="disk is full"):
        service.loop.submit([ONE])
    service.loop.trouble = None
    service.close()
    with pytest.raises(NotReadyError, match="ending"):
        service.loop.submit([ONE])


def test_keys_submit_once(tmp_path: Path) -> None:
    service = Service(open_store(f"sqlite:///{tmp_path}/x.db"), engine(), SETUP)
    keyed = ONE._replace(key="k", array=range(3))
    try:
        first = service.loop.submit([ONE, keyed]).result(PATIENCE)
        assert service.loop.submit([keyed, ONE]).result(PATIENCE) == [*first[1:], 5]
        assert service.loop.submit([keyed._replace(tenant="other")]).result(PATIENCE) == [6, 7, 8]
        # the same key twice in one request
        twice = ONE._replace(key="twice")
        assert service.loop.submit([twice, ONE, twice, keyed]).result(PATIENCE) == [9, 10, 9, 2, 3, 4]
        with pytest.raises(KeyConflictError, match="used for another submission, job 2"):
            service.loop.submit([keyed._replace(array=range(9)), twice]).result(PATIENCE)
        assert service.loop.submit([ONE]).result(PATIENCE) == [11], "nothing of a refused request is submitted"
    finally:
        service.close()


def test_a_version_that_decides_otherwise(tmp_path: Path) -> None:
    """The recorded facts hold: jobs stay where they were placed, and the journal says where the epoch begins."""
    url = f"sqlite:///{tmp_path}/x.db"
    store = open_store(url)
    store.become_writer()
    ledger = Ledger(SETUP.core())
    Retention().checkpoint(store, ledger)
    for name in ("x", "y"):
        ledger.server_up(ServerUp(name, {"cpu": 4, "memory": 1000}, server_class="a"), 1.0)
    ledger.submit([ONE, ALL, ALL, ONE._replace(needs={"cpu": 0.5})], 2.0)
    ledger.ended(Ended(1, 1, 0, 3.0), 3.0)
    batch, _ = ledger.take()
    # as an earlier version would have decided: job 1 on the other server, and so on
    other = {"x": "y", "y": "x"}
    turned = [
        row._replace(placements=json.dumps([[j, other[s], a] for j, s, a in json.loads(row.placements)]))
        for row in batch.entries
    ]
    batch.entries[:] = [Entry(*row) for row in turned]
    for row in batch.jobs.values():
        row[5] = other.get(row[5])
    for columns in batch.changes.values():
        if columns.get("server"):
            columns["server"] = other[columns["server"]]
    store.commit(batch)
    recorded = {job.id: job.server for job in store.jobs(Query(states=("placed", "running")))}

    loaded, _ = load(store, SETUP)
    assert {job: live.server for job, live in loaded.live.items() if job in recorded} == recorded
    assert {job: str(server) for job, server in loaded.core.running.items() if job in recorded} == recorded
    assert json.loads(loaded.batch.entries[-1].event)["event"] == "epoch"
    batch, _ = loaded.take()
    store.commit(batch)
    Retention().checkpoint(store, loaded)
    after, _ = load(store, SETUP)  # and from then on it replays
    assert after.core.situation() == loaded.core.situation()
    for job in list(after.live):
        after.ended(Ended(job, 1, 0, 9.0), 9.0)
    assert sum(after.core.waiting.values()) == 0
    store.close()


def test_checkpoints_are_kept_and_old_rows_dropped(tmp_path: Path, until: Until) -> None:
    store: Store = open_store(f"sqlite:///{tmp_path}/x.db")
    service = Service(store, engine(), SETUP, retention=Retention(every=20, journal=0.0, jobs=0.0))
    service.loop.retention._next_trim = float("inf")
    try:
        for _ in range(20):
            service.loop.submit([ONE] * 5).result(PATIENCE)
        until(service.loop, lambda: store.counts().get("done") == 100)
        kept = [seq for seq, *_ in store.checkpoints()]
        assert len(kept) > 2

        def drop_rows(ledger: Ledger, now: float) -> None:
            service.loop.retention._next_trim = (
                0.0  # else only in ten minutes again, and what is kept at that moment stays
            )

        # all behind the newest situation goes; a turn of the loop may have to come first
        until(
            service.loop,
            lambda: service.loop.ask(drop_rows).result(PATIENCE) is None and len(store.checkpoints()) == 1,
        )
        newest = store.checkpoints()[0][0]
        assert newest >= max(kept)
        assert (store.first_seq() or newest + 1) == newest + 1
    finally:
        service.close()
    again = open_store(f"sqlite:///{tmp_path}/x.db")
    found = replay(again)
    assert found.differences == []
    assert found.rows < 100  # of some 220
    again.close()


def test_a_large_situation_is_written_by_a_process_of_its_own(tmp_path: Path, until: Until) -> None:
    """While the service goes on; it is kept when it is whole, and a restart and a replay begin with it."""
    url = f"sqlite:///{tmp_path}/x.db"
    service = Service(open_store(url), engine(), SETUP, retention=Retention(every=30, apart=0))
    store, loop = service.store, service.loop
    try:
        before, sent = len(store.checkpoints()), 0
        deadline = time.monotonic() + PATIENCE
        while len(store.checkpoints()) < before + 3:  # the books go on while copies are written
            assert time.monotonic() < deadline, "no copy is written"
            loop.submit([ONE] * 10).result(PATIENCE)
            sent += 10
        until(loop, lambda: store.counts() == {"done": sent})
    finally:
        service.close()
    again = open_store(url)
    found = replay(again)
    assert found.differences == []
    assert found.checkpoints >= 3
    again.close()


def test_situations_are_packed_where_they_are_large() -> None:
    small, large = {"a": [1.5, None, "ö"]}, {"a": list(range(300_000))}
    assert packed(small) == json.dumps(small, separators=(",", ":"))
    assert len(packed(large)) < 1_000_000
    for values in (small, large):
        assert unpacked(packed(values)) == values
    for damaged in (packed(large)[:-50], "[]", "{", packed(large)[:5000] + "x" + packed(large)[5000:]):
        with pytest.raises(ValueError):  # noqa: PT011
            unpacked(damaged)
