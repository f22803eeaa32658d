"""The journal and read model: all or nothing, nothing lost that was acknowledged, one writer."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from processes import PATIENCE

from slotwise.cli.serve import backup, replay
from slotwise.cli.serve import restore as fill
from slotwise.errors import InputError
from slotwise.live.store import (
    Batch,
    BusyError,
    Checkpoint,
    Entry,
    FencedError,
    Job,
    Query,
    Server,
    StoreBrokenError,
    StoreError,
    Token,
    existing_store,
    open_store,
)
from slotwise.live.store.backup import restore, save
from slotwise.live.store.protocol import Store
from slotwise.live.store.records import CANCELLED, DONE, PLACED, RUNNING, WAITING
from slotwise.live.store.schema import statements
from slotwise.scheduling.compact import packed

Opener = Callable[[str], Store]


def job(number: int, **columns: object) -> Job:
    plain = Job(
        number, "t", "small", "", WAITING, None, 0, None, None, 0, 1.0, None, None, None, None, None, None, 1
    )
    return plain._replace(**columns)  # type: ignore[arg-type]


def entry(seq: int, time: float = 0.0) -> Entry:
    return Entry(seq, time or float(seq), json.dumps({"event": "tick", "now": seq}), "[]", None)


def test_a_batch_is_there_afterwards(store_url: str, opened: Opener) -> None:
    store = opened(store_url)
    assert store.become_writer() == 1
    batch = Batch(entries=[entry(1), entry(2)], specs=[(1, '{"argv": ["true"]}')])
    batch.add_job(job(1))
    batch.change(1, state=PLACED, server="a", attempt=1, placed=2.0)  # in the row itself, since the job is new
    batch.add_job(job(2, key="k", name="two"))
    batch.put_server(Server("a", "small", "up", None))
    batch.put_server(Server("b", "small", "up", None))
    store.commit(batch)

    later = Batch(entries=[entry(3)])
    later.change(1, state=DONE, exit_code=0, ended=3.0)
    later.change(2, state=CANCELLED, ended=3.0)
    later.drop_server("b")
    later.put_server(Server("a", "small", "draining", "asked"))
    store.commit(later)

    assert [e.seq for e in store.entries(0)] == [1, 2, 3]
    assert [e.seq for e in store.entries(1, limit=1)] == [2]
    assert store.last_entry() == entry(3)
    first, second = store.job(1), store.job(2)
    assert first is not None
    assert second is not None
    assert (first.state, first.server, first.attempt, first.exit_code, first.placed) == (DONE, "a", 1, 0, 2.0)
    assert (second.state, second.ended) == (CANCELLED, 3.0)
    assert store.job_by_key("t", "k") == second
    assert store.job_by_key("other", "k") is None
    assert store.servers() == [Server("a", "small", "draining", "asked")]
    assert store.counts() == {DONE: 1, CANCELLED: 1}
    assert store.specs([1, 2, 9]) == {1: (first, '{"argv": ["true"]}'), 2: (second, '{"argv": ["true"]}')}
    assert store.next_ids() == (3, 2)


def test_a_batch_that_fails_leaves_nothing(store_url: str, opened: Opener) -> None:
    store = opened(store_url)
    store.become_writer()
    store.commit(Batch(entries=[entry(1)]))
    wrong = Batch(entries=[entry(2), entry(1)])
    wrong.add_job(job(1))
    with pytest.raises(StoreBrokenError):
        store.commit(wrong)
    assert store.last_entry() == entry(1)
    assert store.job(1) is None
    store.commit(Batch(entries=[entry(2)]))  # and it goes on


def test_pages_and_filters(store_url: str, opened: Opener) -> None:
    store = opened(store_url)
    store.become_writer()
    batch = Batch()
    for n in range(1, 101):
        batch.add_job(
            job(
                n,
                state=RUNNING if n % 3 == 0 else WAITING,
                tenant="ab"[n % 2],
                type="st"[n % 5 == 0],
                array_id=n // 10,
            )
        )
    store.commit(batch)
    seen: list[int] = []
    after = None
    while page := store.jobs(Query(states=(RUNNING,), after=after, limit=7)):
        seen += [one.id for one in page]
        after = page[-1].id
    assert seen == [n for n in range(100, 0, -1) if n % 3 == 0]
    found = store.jobs(Query(tenant="a", type="t", ascending=True))
    assert [one.id for one in found] == [n for n in range(1, 101) if n % 2 == 0 and n % 5 == 0]
    assert [one.id for one in store.jobs(Query(array_id=3, ids=(31, 35, 99), ascending=True))] == [31, 35]


def test_checkpoints_and_trimming(store_url: str, opened: Opener) -> None:
    store = opened(store_url)
    epoch = store.become_writer()
    batch = Batch(entries=[entry(n) for n in range(1, 11)], specs=[(1, "{}"), (2, "{}")])
    batch.add_job(job(1, state=DONE, ended=2.0))
    batch.add_job(job(2, state=DONE, ended=9.0, spec=2))
    batch.add_job(job(3, spec=2))
    store.commit(batch)
    assert store.checkpoint() is None
    for seq in (4, 8):
        store.save_checkpoint(Checkpoint(seq, float(seq), epoch, f"situation {seq}"))
    assert store.checkpoints() == [(4, 4.0, 1), (8, 8.0, 1)]
    newest = store.checkpoint()
    assert newest is not None
    assert newest.body == "situation 8"
    # nothing is dropped that no older checkpoint covers
    assert store.trim(journal_before=3.0, jobs_before=0.0, limit=100) == 0
    assert store.trim(journal_before=5.0, jobs_before=3.0, limit=100) == 5
    assert store.first_seq() == 5
    assert store.checkpoints() == [(4, 4.0, 1), (8, 8.0, 1)]
    assert store.job(1) is None
    assert store.job(2) is not None
    store.trim(journal_before=9.0, jobs_before=9.5, limit=100)
    assert store.first_seq() == 9
    assert store.checkpoints() == [(8, 8.0, 1)]
    assert store.job(3) is not None  # it waits
    assert set(store.specs([3])) == {3}


def test_one_writer(store_url: str, opened: Opener) -> None:
    first, second = opened(store_url), opened(store_url)
    assert first.become_writer() == 1
    with pytest.raises(BusyError, match="another `slotwise serve`"):
        second.become_writer()
    first.commit(Batch(entries=[entry(1)]))
    first.close()
    assert second.become_writer() == 2
    assert second.last_entry() == entry(1)


def test_tokens(store_url: str, opened: Opener) -> None:
    store = opened(store_url)
    token = Token("a", "submit", "t", "digest", 1.0)
    store.add_token(token)
    assert store.tokens() == [token]
    assert store.drop_token("a")
    assert not store.drop_token("a")


def test_backup_and_restore(store_url: str, opened: Opener, tmp_path: Path) -> None:
    store = opened(store_url)
    epoch = store.become_writer()
    batch = Batch(entries=[entry(n) for n in range(1, 50)], specs=[(1, '{"argv": ["ä"]}')])
    for n in range(1, 20):
        batch.add_job(job(n, reason=None if n % 2 else "ö"))
    batch.put_server(Server("a", "small", "up", None))
    store.commit(batch)
    store.save_checkpoint(Checkpoint(3, 3.0, epoch, "{}"))
    assert save(store, tmp_path / "backup.gz") == 71
    other, third = opened(f"sqlite:///{tmp_path}/other.db"), opened(f"sqlite:///{tmp_path}/third.db")
    other.become_writer()
    third.become_writer()
    assert restore(other, tmp_path / "backup.gz") == 71
    assert list(other.dump()) == list(store.dump())
    with pytest.raises(InputError, match="is not empty"):
        restore(other, tmp_path / "backup.gz")
    (tmp_path / "cut.gz").write_bytes((tmp_path / "backup.gz").read_bytes()[:-20])
    with pytest.raises(InputError, match="damaged"):
        restore(third, tmp_path / "cut.gz")
    assert list(third.dump()) == []


def test_restored_tokens(tmp_path: Path, opened: Opener) -> None:
    """A backup neither brings revoked tokens back nor plants others, unless the operator asks for its tokens."""
    store = opened(f"sqlite:///{tmp_path}/x.db")
    store.become_writer()
    store.add_token(Token("revoked", "operate", "*", "digest", 1.0))
    save(store, tmp_path / "backup.gz")
    for name, tokens in (("without", False), ("with", True)):
        other = opened(f"sqlite:///{tmp_path}/{name}.db")
        other.become_writer()
        restore(other, tmp_path / "backup.gz", tokens=tokens)
        assert [one.id for one in other.tokens()] == ["revoked"] * tokens


def test_a_policy_of_a_backup_is_code(tmp_path: Path, opened: Opener) -> None:
    """A policy in a Python file is executed by the next `serve`: it is restored only on request, from wherever it is named."""
    situation = packed({"situation": {"policy": {"name": "/tmp/evil.py:Policy"}}})
    change = Entry(1, 1.0, '{"event":"change","now":1.0,"policy":"/tmp/evil.py:Policy"}', "[]", None)
    for name, entries, kept in (
        ("a", [], [Checkpoint(1, 1.0, 1, situation)]),
        ("b", [change], []),
        ("c", [entry(1)], [Checkpoint(1, 1.0, 1, packed({"situation": {"policy": {"name": "fifo"}}}))]),
    ):
        store = opened(f"sqlite:///{tmp_path}/{name}.db")
        store.become_writer()
        store.commit(Batch(entries=entries))
        for one in kept:
            store.save_checkpoint(one)
        save(store, tmp_path / name)
        other = opened(f"sqlite:///{tmp_path}/{name}-restored.db")
        other.become_writer()
        if name != "c":
            with pytest.raises(InputError, match=r"has the policy '/tmp/evil\.py:Policy', a Python file"):
                restore(other, tmp_path / name)
            assert list(other.dump()) == []
        assert restore(other, tmp_path / name, policy_code=name != "c") == len(entries) + len(kept)


def test_a_backup_follows_no_link(tmp_path: Path, opened: Opener) -> None:
    store = opened(f"sqlite:///{tmp_path}/x.db")
    (tmp_path / "precious").write_text("untouched")
    (tmp_path / "backup.gz.part").symlink_to(tmp_path / "precious")
    save(store, tmp_path / "backup.gz")
    assert (tmp_path / "precious").read_text() == "untouched"
    assert (tmp_path / "backup.gz").stat().st_mode & 0o077 == 0


def test_a_store_that_others_can_read_is_made_private(tmp_path: Path, opened: Opener) -> None:
    opened(f"sqlite:///{tmp_path}/x.db").close()
    (tmp_path / "x.db").chmod(0o644)
    opened(f"sqlite:///{tmp_path}/x.db")
    assert (tmp_path / "x.db").stat().st_mode & 0o077 == 0


LABELLED = '{"argv":["x"],"labels":{"on_loss":"requeue"}}'
REQUEUED = '{"argv":["x"],"on_loss":"requeue"}'


def test_what_becomes_of_a_lost_job_is_no_guess(store_url: str, opened: Opener) -> None:
    """A label of the same name says nothing."""
    store = opened(store_url)
    store.become_writer()
    batch = Batch(specs=[(1, LABELLED), (2, REQUEUED), (3, '{"argv":["x"]}')])
    for n in (1, 2, 3):
        batch.add_job(job(n, spec=n, state=RUNNING, server="a", attempt=1, placed=1.0))
    store.commit(batch)
    assert {one.id: one.on_loss for one in store.live()} == {1: "fail", 2: "requeue", 3: "fail"}


def test_stores_and_backups_of_the_first_version(tmp_path: Path, opened: Opener) -> None:
    """Both are brought up to date, with what becomes of lost jobs."""
    import sqlite3
    from contextlib import closing

    columns = (1, "t", "s", "", RUNNING, "a", 1, None, None, 0, 1.0, 1.0, 1.0, None, None, None, None)
    with closing(sqlite3.connect(tmp_path / "x.db")) as base:
        for text in statements(0, integer="INTEGER", real="REAL", key=lambda name: "")[0][1]:
            base.execute(text)
        base.executemany("INSERT INTO spec VALUES (?, ?)", [(1, LABELLED), (2, REQUEUED)])
        for n in (1, 2):
            base.execute(f"INSERT INTO job VALUES ({', '.join('?' * 18)})", (n, *columns[1:], n))
        base.execute("PRAGMA user_version = 1")
        base.commit()
        with gzip.open(tmp_path / "backup.gz", "wt") as file:
            rows = [
                ["spec", [1, LABELLED]],
                ["spec", [2, REQUEUED]],
                *(["job", [n, *columns[1:], n]] for n in (1, 2)),
            ]
            for row in ({"format": "slotwise-backup", "schema": 1}, *rows, {"rows": 4}):
                file.write(json.dumps(row) + "\n")
    other = opened(f"sqlite:///{tmp_path}/y.db")
    other.become_writer()
    restore(other, tmp_path / "backup.gz")
    for store in (opened(f"sqlite:///{tmp_path}/x.db"), other):
        assert {one.id: one.on_loss for one in store.live()} == {1: "fail", 2: "requeue"}
        assert len(store.identity().identity) == 32


def test_addresses() -> None:
    for url in ("slotwise.db", "mysql://x", "sqlite://x", "sqlite:///"):
        with pytest.raises(InputError, match="is no store"):
            open_store(url)


def test_a_foreign_or_newer_or_damaged_file_is_refused(tmp_path: Path) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE mine (x)")
    with pytest.raises(StoreBrokenError, match="another program"):
        open_store(f"sqlite:///{tmp_path}/other.db")
    with closing(sqlite3.connect(tmp_path / "newer.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreBrokenError, match="upgrade slotwise"):
        open_store(f"sqlite:///{tmp_path}/newer.db")
    (tmp_path / "text.db").write_text("this is no database at all, " * 100)
    with pytest.raises(StoreBrokenError, match="not a database"):
        open_store(f"sqlite:///{tmp_path}/text.db")
    with pytest.raises(InputError, match="no such folder"):
        open_store(f"sqlite:///{tmp_path}/none/x.db")


def test_reading_makes_no_store(store_url: str, opened: Opener) -> None:
    """`slotwise backup` beside the wrong store wrote a backup of nothing, and made that store."""
    for act in (lambda: backup(Path("nightly.gz"), store_url), lambda: replay(store_url)):
        with pytest.raises(InputError, match="there is no store"):
            act()
    with pytest.raises(InputError, match="is not there"):
        fill(Path("nothing.gz"), store_url)
    assert not Path(store_url.removeprefix("sqlite:///")).exists()
    opened(store_url)
    with pytest.raises(InputError, match="there is no store"):
        existing_store(store_url)
    opened(store_url).become_writer()
    existing_store(store_url).close()


def test_the_file_is_for_its_user_only(tmp_path: Path, opened: Opener) -> None:
    store = opened(f"sqlite:///{tmp_path}/x.db")
    store.become_writer()
    store.commit(Batch(entries=[entry(1)]))
    for name in ("x.db", "x.db-wal", "x.db.lock"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0, name


def test_a_locked_database_is_an_error_that_passes(
    tmp_path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlite3
    from contextlib import closing

    monkeypatch.setattr("slotwise.live.store.sqlite.BUSY_MILLISECONDS", 20)
    store = opened(f"sqlite:///{tmp_path}/x.db")
    store.become_writer()
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            store.commit(Batch(entries=[entry(1)]))
    store.commit(Batch(entries=[entry(1)]))
    assert store.last_entry() == entry(1)


WRITER = textwrap.dedent("""
    import sys
    from slotwise.live.store import Batch, Entry, Job, open_store
    store = open_store(sys.argv[1])
    store.become_writer(wait=True)
    last = store.last_entry()
    seq = last.seq if last else 0
    next_job, _ = store.next_ids()
    while True:
        batch = Batch()
        for _ in range(seq % 7 + 1):
            seq += 1
            batch.entries.append(Entry(seq, float(seq), "{}", "[]", None))
            batch.add_job(Job(next_job, "t", "s", "", "waiting", None, 0, None, None, 0, float(seq),
                              None, None, None, None, None, None, 1))
            if next_job > 3:
                batch.change(next_job - 3, state="done", ended=float(seq))
            next_job += 1
        store.commit(batch)
        print(seq, flush=True)
""")


def test_killed_in_the_middle_of_commits(store_url: str, opened: Opener) -> None:
    """What was acknowledged is there, every transaction is whole, and the next writer goes on."""
    chance = random.Random(18)
    acknowledged = checked = 0
    store = opened(store_url)
    for _ in range(max(6, int(os.environ.get("SLOTWISE_CRASHES", "0")) // 5)):
        child = subprocess.Popen([sys.executable, "-c", WRITER, store_url], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for _ in range(chance.randrange(1, 60)):
            acknowledged = int(child.stdout.readline())
        os.kill(child.pid, signal.SIGKILL)
        acknowledged = max([acknowledged, *map(int, child.stdout.read().split("\n")[:-1])])
        child.wait()
        child.stdout.close()
        entries = store.entries(checked, limit=10**9)
        assert [e.seq for e in entries] == list(range(checked + 1, checked + len(entries) + 1))
        checked += len(entries)
        assert acknowledged <= checked <= acknowledged + 7
    store.become_writer(wait=True)  # a database may still be at work for the one that was killed
    checked += len(store.entries(checked, limit=10**9))
    jobs = store.jobs(Query(limit=10**9, ascending=True))
    assert len(jobs) == checked
    assert [one.state for one in jobs] == [DONE] * (len(jobs) - 3) + [WAITING] * 3


@pytest.mark.system
def test_a_standby_takes_over_from_a_stopped_writer(opened: Opener, postgres_url: str) -> None:
    """SIGSTOP: the standby writes; the old writer wakes up and is refused."""
    url = postgres_url
    opened(url)
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stderr is not None
    for _ in range(20):
        child.stdout.readline()
    os.kill(child.pid, signal.SIGSTOP)
    standby = opened(url)
    assert standby.become_writer(wait=True) == 2
    last = standby.last_entry()
    assert last is not None
    standby.commit(Batch(entries=[entry(last.seq + 1)]))
    os.kill(child.pid, signal.SIGCONT)
    _, told = child.communicate(timeout=PATIENCE)
    assert child.returncode != 0
    assert "StoreError" in told or "FencedError" in told
    assert standby.last_entry() == entry(last.seq + 1)


@pytest.mark.system
def test_a_lost_connection_comes_back(opened: Opener, postgres_url: str) -> None:
    import psycopg

    store = opened(postgres_url)
    store.become_writer()
    store.commit(Batch(entries=[entry(1)]))
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'slotwise' AND datname = current_database()"
        )
    with suppress(StoreError):  # unless the heartbeat has met the error first and has made a new connection
        store.commit(Batch(entries=[entry(2)]))
    if store.last_entry() == entry(1):
        store.commit(Batch(entries=[entry(2)]))
    assert store.last_entry() == entry(2)


@pytest.mark.system
def test_reading_goes_on_where_connections_broke(opened: Opener, postgres_url: str) -> None:
    """Several were kept, none was in use: who asks next gets an answer and no error."""
    import psycopg

    store = opened(postgres_url)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: store.counts(), range(40)))
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
            "WHERE application_name = 'slotwise' AND datname = current_database()"
        ).fetchall()
    assert ended
    assert store.counts() == {}


@pytest.mark.system
def test_fenced(opened: Opener, postgres_url: str) -> None:
    import psycopg

    url = postgres_url
    store = opened(url)
    store.become_writer()
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE writer SET epoch = 7")
    with pytest.raises(FencedError):
        store.commit(Batch(entries=[entry(1)]))
    assert store.last_entry() is None
