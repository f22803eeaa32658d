"""A folder of claims and outputs serves one store, a store one writer, whatever names they are called by."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from faulty import SERVERS, SETUP, Until, simulated
from processes import PATIENCE, kill_supervisor

from slotwise.errors import InputError
from slotwise.live.engines.local import LocalEngine
from slotwise.live.home import Home, is_same_machine, this_machine
from slotwise.live.newjob import NewJob
from slotwise.live.service import Service
from slotwise.live.store import BusyError, StoreGoneError, open_store
from slotwise.live.store.backup import restore, save
from slotwise.live.store.records import Job

Begin = Callable[..., Service]
pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts services with the engine `local` and leaves nothing running."""
    made: list[Service] = []
    folders: set[Path] = set()

    def start(url: str, folder: Path | None = None, **options: bool) -> Service:
        store = open_store(url)
        try:
            home = Home(store, "local", folder, **options)
            folders.add(home.folder / "local")
            engine = LocalEngine(home.folder / "local", {one.name: one for one in SERVERS}, grace=0.1)
            made.append(Service(store, engine, SETUP, home=home))
        except BaseException:
            store.close()
            raise
        return made[-1]

    yield start
    for service in made:
        service.close()
    for folder in folders | set(tmp_path.glob("**/local")):
        kill_supervisor(folder)


def submit(service: Service, script: str) -> int:
    body = json.dumps({"argv": ["sh", "-c", script], "cwd": "/"})
    return int(service.loop.submit([NewJob("t", "one", {}, {}, body=body)]).result(PATIENCE)[0])


def run(service: Service, until: Until, script: str) -> tuple[Job, str]:
    """Run a job to its end; the job and its output."""
    number = submit(service, script)
    until(service.loop, lambda: (service.store.job(number) or job_missing()).ended)
    job = service.store.job(number)
    assert job is not None
    return job, (service.engine.output(number, job.attempt, 0, 1000) or (b"", 0))[0].decode()


def job_missing() -> Job:
    raise AssertionError("the store has lost the job")


def test_a_store_restored_in_place_executes_its_jobs(tmp_path: Path, begin: Begin, until: Until) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    first = begin(url)
    assert run(first, until, "echo OLD1")[1] == "OLD1\n"
    save(first.store, tmp_path / "backup.gz")
    job, output = run(first, until, "echo OLD2; exit 9")
    assert (job.id, job.exit_code, output) == (2, 9, "OLD2\n")
    first.close()
    for file in tmp_path.glob("x.db*"):
        file.unlink()
    store = open_store(url)
    store.become_writer()
    restore(store, tmp_path / "backup.gz")
    store.close()
    second = begin(url)
    job, output = run(second, until, "echo NEW")
    assert (job.id, job.exit_code, output) == (2, 0, "NEW\n")


@pytest.mark.parametrize("name", ["x.db", "x.sqlite"])
def test_a_deleted_database_leaves_no_outputs_to_the_next(
    tmp_path: Path, begin: Begin, until: Until, name: str
) -> None:
    url = f"sqlite:///{tmp_path}/{name}"
    first = begin(url)
    run(first, until, "echo OLD; exit 9")
    first.close()
    for file in tmp_path.glob(f"{name}*"):
        if file.is_file():
            file.unlink()
    job, output = run(begin(url), until, "echo NEW")
    assert (job.id, job.exit_code, output) == (1, 0, "NEW\n")
    aside = [one for one in tmp_path.iterdir() if ".files." in one.name]
    assert [one.read_text() for one in aside[0].glob("local/output/0/1.1")] == ["OLD\n"], "outputs are kept"


def test_jobs_of_a_deleted_store_that_still_run_are_not_forgotten(
    tmp_path: Path, begin: Begin, until: Until
) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    first = begin(url)
    number = submit(first, f"while ! test -e {tmp_path}/go; do sleep 0.01; done")
    until(first.loop, lambda: first.store.counts() == {"running": number})
    first.close()
    for file in tmp_path.glob("x.db*"):
        file.unlink()
    with pytest.raises(InputError, match=r"jobs of an earlier store still run.*1\.1"):
        begin(url)
    (tmp_path / "go").touch()


def test_two_stores_of_one_folder(tmp_path: Path, begin: Begin, until: Until) -> None:
    """x.db and x.sqlite have folders of their own; one folder for both is refused, whichever service runs."""
    first, second = begin(f"sqlite:///{tmp_path}/x.db"), begin(f"sqlite:///{tmp_path}/x.sqlite")
    assert run(first, until, "echo first")[1] == "first\n"
    assert run(second, until, "echo second; exit 2")[1] == "second\n"
    with pytest.raises(InputError, match=r"claims and outputs of another store: sqlite:///.*x\.db"):
        begin(f"sqlite:///{tmp_path}/y.db", tmp_path / "x.files")
    first.close()
    with pytest.raises(InputError, match="claims and outputs of another store"):
        begin(f"sqlite:///{tmp_path}/y.db", tmp_path / "x.files")


@pytest.mark.system
def test_postgres_stores_have_folders_of_their_own(
    tmp_path: Path, postgres_url: str, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    from conftest import new_database

    monkeypatch.chdir(tmp_path)
    first, other = begin(postgres_url), new_database()
    second = begin(other)
    assert len(set(tmp_path.glob("*.files"))) == 2
    with pytest.raises(InputError, match="claims and outputs of another store"):
        begin(new_database(), Path(first.store.identity().folder))
    second.close()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert begin(other).store.identity().folder == second.store.identity().folder, "the store knows where"


def test_a_link_to_a_database_is_the_same_store(tmp_path: Path, begin: Begin) -> None:
    begin(f"sqlite:///{tmp_path}/x.db")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "y.db").symlink_to(tmp_path / "x.db")
    with pytest.raises(BusyError, match=r"x\.db: another `slotwise serve`"):
        begin(f"sqlite:///{tmp_path}/links/y.db")
    assert list((tmp_path / "links").iterdir()) == [tmp_path / "links" / "y.db"]


def test_a_copied_database_does_not_share_the_folder(tmp_path: Path, begin: Begin) -> None:
    first = begin(f"sqlite:///{tmp_path}/x.db")
    first.close()
    shutil.copy(tmp_path / "x.db", tmp_path / "y.db")
    with pytest.raises(InputError, match=r"claims and outputs of this store are in .*x\.files"):
        begin(f"sqlite:///{tmp_path}/y.db")


def test_a_moved_store_and_folder_go_on(tmp_path: Path, begin: Begin, until: Until) -> None:
    begin(f"sqlite:///{tmp_path}/x.db").close()
    (tmp_path / "new").mkdir()
    for one in tmp_path.glob("x.*"):
        one.rename(tmp_path / "new" / one.name)
    again = begin(f"sqlite:///{tmp_path}/new/x.db")
    assert run(again, until, "echo on")[1] == "on\n"
    assert again.store.identity().folder == str(tmp_path / "new" / "x.files")


def test_a_database_put_back_from_a_copy_of_its_file(tmp_path: Path, begin: Begin, until: Until) -> None:
    """Its identity is the same, and its folder knows jobs that it does not."""
    url = f"sqlite:///{tmp_path}/x.db"
    begin(url).close()
    shutil.copy(tmp_path / "x.db", tmp_path / "copy")
    first = begin(url)
    run(first, until, "echo OLD; exit 9")
    first.close()
    (tmp_path / "copy").replace(tmp_path / "x.db")
    with pytest.raises(InputError, match=r"has executed job 1, but the newest job of the store is 0"):
        begin(url)
    (tmp_path / "x.files").rename(tmp_path / "away")
    job, output = run(begin(url), until, "echo NEW")
    assert (job.id, job.exit_code, output) == (1, 0, "NEW\n")


def test_a_store_of_another_machine(tmp_path: Path, begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    begin(url).close()
    elsewhere = {"name": "elsewhere", "machine": "0", "boot": "1"}
    monkeypatch.setattr("slotwise.live.home.this_machine", lambda: elsewhere)
    with pytest.raises(InputError, match="the jobs of this store run on the machine"):
        begin(url)
    begin(url, moved=True).close()
    begin(url).close()


def test_machines() -> None:
    here = this_machine()
    assert is_same_machine(here, here)
    assert is_same_machine(here, {"name": "other", "machine": "", "boot": here["boot"]}), "a container made anew"
    assert not is_same_machine(
        {"name": "n", "machine": "1", "boot": "1"}, {"name": "n", "machine": "2", "boot": "2"}
    )
    assert is_same_machine({"name": "n", "machine": "1", "boot": "1"}, {"name": "n", "machine": "", "boot": "2"})


def test_a_folder_from_before_stores_had_identities(tmp_path: Path, begin: Begin, until: Until) -> None:
    """A store that is migrated adopts its folder; a new store does not."""
    url = f"sqlite:///{tmp_path}/x.db"
    first = begin(url)
    run(first, until, "echo kept")
    first.close()
    (tmp_path / "x.files" / "store.json").unlink()
    with closing(sqlite3.connect(tmp_path / "x.db")) as base:
        base.execute("UPDATE identity SET host = '', folder = ''")
        base.commit()
    again = begin(url)
    assert (again.engine.output(1, 1, 0, 100) or (b"", 0))[0] == b"kept\n"
    again.close()
    (tmp_path / "x.files" / "store.json").unlink()
    for file in tmp_path.glob("x.db*"):
        file.unlink()
    assert begin(url).engine.output(1, 1, 0, 100) is None


def test_a_damaged_mark_is_named(tmp_path: Path, begin: Begin) -> None:
    (tmp_path / "x.files").mkdir()
    (tmp_path / "x.files" / "store.json").write_text("[]")
    with pytest.raises(InputError, match=r"store\.json: is damaged"):
        begin(f"sqlite:///{tmp_path}/x.db")


@pytest.mark.parametrize("replaced", [False, True])
def test_a_deleted_or_replaced_database_is_noticed(tmp_path: Path, replaced: bool) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    open_store(f"sqlite:///{tmp_path}/y.db").close()
    service = Service(open_store(url), simulated(), SETUP)
    try:
        service.loop.ask(lambda ledger, now: None).result(PATIENCE)
        if replaced:
            os.replace(tmp_path / "y.db", tmp_path / "x.db")
        else:
            (tmp_path / "x.db").unlink()
        assert service.loop.ended.wait(PATIENCE), "it was idle and did not look"
        assert isinstance(service.loop.failure, StoreGoneError)
        assert ("replaced" if replaced else "deleted") in (service.loop.trouble or "")
    finally:
        service.close()
