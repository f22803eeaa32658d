"""A day of operation as a trace: what the journal tells is what the read model has, and it can be simulated."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import slotwise
from slotwise.cli.compare import compare
from slotwise.errors import InputError
from slotwise.live.engines.protocol import Ended, Lost, ServerLost, ServerUp, Started
from slotwise.live.ledger import Ledger
from slotwise.live.newjob import NewJob
from slotwise.live.restart import Setup
from slotwise.live.retention import Retention
from slotwise.live.store import Query, open_store
from slotwise.live.store.backup import save
from slotwise.model import Cluster, JobType, ServerClass
from slotwise.workloads.traces import import_trace

SETUP = Setup(
    Cluster(resources=("cpu", "memory"), servers=(ServerClass(name="a", count=3, capacity=("4", "1000")),)),  # type: ignore[arg-type]
    (JobType(name="one", demand=("1", "0")), JobType(name="all", demand=("4", "0"))),  # type: ignore[arg-type]
    policy="best-fit",
)
UP = [ServerUp(name, {"cpu": 4, "memory": 1000}, server_class="a") for name in ("x", "y", "z")]

APP = typer.Typer()
APP.command()(compare)


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store after some operation, with a situation kept in the middle."""
    path = tmp_path_factory.mktemp("journal") / "x.db"
    store, chance = open_store(f"sqlite:///{path}"), random.Random(7)
    store.become_writer()
    ledger, retention = Ledger(SETUP.core()), Retention()
    retention.checkpoint(store, ledger)
    now = 1000.0
    for up in UP:
        ledger.server_up(up, now)
    for step in range(400):
        now += chance.expovariate(1.0)
        kind, live = chance.random(), list(ledger.live)
        if kind < 0.5:
            wish = chance.choice(
                [("one", {}), ("all", {}), (None, {"cpu": 2.5, "memory": 10.0}), ("one", {"cpu": 0.5})]
            )
            ledger.submit([NewJob("t", wish[0], wish[1], {})], now)
        elif live and kind < 0.7:
            job = chance.choice(live)
            ledger.started(Started(job, ledger.live[job].attempt, now), now)
        elif live and kind < 0.9:
            job = chance.choice(live)
            if ledger.live[job].state == "placed":
                ledger.started(Started(job, ledger.live[job].attempt, now), now)
            if chance.random() < 0.2:
                ledger.stop(job, now)
            at, now = now, now + chance.random()  # the service hears of the end later
            ledger.ended(Ended(job, ledger.live[job].attempt, chance.choice([0, 1]), at), now)
        elif live and kind < 0.93:
            job = chance.choice(live)
            ledger.live[job].on_loss = chance.choice(["fail", "requeue"])
            ledger.lost(Lost(job, ledger.live[job].attempt, "gone"), now)
        elif kind < 0.96:
            name = chance.choice(UP)
            ledger.server_lost(ServerLost(name.name, "power"), now)
            ledger.server_up(name, now)
        store.commit(ledger.take()[0])
        if step == 150:
            retention.checkpoint(store, ledger)
    store.close()
    return path


def test_the_trace_is_what_the_read_model_has(operated: Path) -> None:
    trace, report = import_trace("journal", [operated])
    store = open_store(f"sqlite:///{operated}")
    jobs = {job.id: job for job in store.jobs(Query(limit=10**6))}
    store.close()
    began = {job.id: job for job in jobs.values() if job.started is not None or job.state in ("placed", "lost")}
    frame = trace.frame
    assert set(frame["id"]) == set(began)
    assert report.left_out == {"jobs that never started": len(jobs) - len(began)}
    first = min(job.submitted for job in began.values())
    last = 0.0
    for row in frame.iter_rows(named=True):
        job = began[row["id"]]
        assert row["arrival"] == pytest.approx(job.submitted - first)
        assert row["censored"] == (job.ended is None or job.state in ("cancelled", "lost"))
        if job.ended is not None and job.started is not None:
            assert row["duration"] == pytest.approx(max(1e-6, job.ended - job.started))
            last = max(last, job.ended)
    assert set(zip(frame["demand.cpu"], frame["demand.memory"], strict=True)) == {
        (1, 0),
        (4, 0),
        (2.5, 10),
        (0.5, 0),
    }
    assert [(one.name, one.count, one.capacity) for one in trace.meta.servers] == [("a", 3, (4.0, 1000.0))]
    completed, _ = import_trace("journal", [operated], interrupted="drop")
    assert len(completed) == sum(job.state in ("done", "failed") for job in jobs.values())


def test_from_a_backup_and_from_a_later_situation(operated: Path, tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{operated}")
    save(store, tmp_path / "backup.gz")
    store.close()
    whole, _ = import_trace("journal", [operated])
    again, _ = import_trace("journal", [tmp_path / "backup.gz"])
    assert again.frame.equals(whole.frame)
    # the same store with the beginning dropped, as retention does it: jobs that waited or ran then are still in the
    # trace
    with closing(sqlite3.connect(operated)) as source, closing(sqlite3.connect(tmp_path / "cut.db")) as cut:
        source.backup(cut)
        cut.execute("DELETE FROM checkpoint WHERE seq = (SELECT min(seq) FROM checkpoint)")
        cut.execute("DELETE FROM journal WHERE seq <= (SELECT min(seq) FROM checkpoint)")
        cut.commit()
    part, _ = import_trace("journal", [tmp_path / "cut.db"])
    known = {row["id"]: row for row in whole.frame.iter_rows(named=True)}
    shift = whole.meta.origin - part.meta.origin
    assert 0 < len(part) < len(whole)
    exact = 0
    for row in part.frame.iter_rows(named=True):
        same = known[row["id"]]
        assert row["arrival"] - shift == pytest.approx(same["arrival"])
        counted = row["duration"] - same["duration"]
        exact += abs(counted) < 1e-6
        assert counted > -1e-6  # a job that ran then counts from its placement
        assert 0 <= row["demand.cpu"] - same["demand.cpu"] < 1  # a situation keeps demands in whole units
    assert exact > len(part) / 2


def test_it_can_be_compared_under_any_policy(operated: Path, tmp_path: Path) -> None:
    from slotwise.workloads.traces import write_trace

    trace, _ = import_trace("journal", [operated])
    write_trace(trace, tmp_path / "day.parquet")
    (tmp_path / "day.toml").write_text(
        '[cluster]\nresources = ["cpu", "memory"]\nservers = [{ name = "a", count = 3, capacity = [4, 1000] }]\n'
        '[workload]\ntrace = "day.parquet"\ntyping = { method = "exact" }\n[run]\nreplications = 1\n'
    )
    result = slotwise.simulate(str(tmp_path / "day.toml"), policy="best-fit")
    assert result.mean_queue.mean >= 0


def test_yesterday_under_other_policies_and_sizes(operated: Path) -> None:
    """`compare --journal` straight from the store, which nothing changes."""
    kept = operated.read_bytes()
    mean: dict[tuple[str, int], float] = {}
    for count in (3, 9):
        told = CliRunner().invoke(
            APP,
            ["--journal", str(operated), "--policy", "best-fit,first-fit", "--set", f"cluster.servers.a.count={count}", "--json"],
        )  # fmt: skip
        assert told.exit_code == 0, told.output
        mean |= {(one["policy"], count): one["mean_queue"]["mean"] for one in json.loads(told.stdout)["results"]}
    assert {policy for policy, _ in mean} == {"best-fit", "first-fit"}
    for policy in ("best-fit", "first-fit"):
        assert mean[policy, 9] < mean[policy, 3], "with three times as many servers, fewer jobs wait"
    assert operated.read_bytes() == kept


def test_what_is_damaged_is_told(operated: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no store")
    with pytest.raises(InputError, match="no store and no backup"):
        import_trace("journal", [tmp_path / "text"])
    with closing(sqlite3.connect(tmp_path / "empty.db")) as base:
        base.execute("CREATE TABLE checkpoint (seq, time, epoch, body)")
    with pytest.raises(InputError, match="has no situation"):
        import_trace("journal", [tmp_path / "empty.db"])
    with closing(sqlite3.connect(operated)) as source, closing(sqlite3.connect(tmp_path / "bad.db")) as bad:
        source.backup(bad)
        # a row that no later row needs: jobs whose submission is damaged are damaged in all their rows
        rows = bad.execute("SELECT seq FROM journal WHERE event LIKE '%\"started\"%' ORDER BY seq").fetchall()
        seq = rows[len(rows) // 2][0]
        bad.execute(
            "UPDATE journal SET event = ? WHERE seq = ?", (json.dumps({"event": "complete", "job": 10**9}), seq)
        )
        bad.commit()
    with pytest.raises(InputError, match=f"bad.db:{seq}"):
        import_trace("journal", [tmp_path / "bad.db"])
    _, report = import_trace("journal", [tmp_path / "bad.db"], skip_bad=True)
    assert report.skipped == {"damaged row of the journal": 1}
