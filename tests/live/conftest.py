"""Stores to test with. PostgreSQL is there in `make test-system` only, which starts a server of its own."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from processes import PATIENCE, Process

from slotwise.live.loop import Loop
from slotwise.live.store import open_store
from slotwise.live.store.protocol import Store

# Address of a server on which databases may be made, such as postgresql:///postgres?host=/tmp/x.
POSTGRES = os.environ.get("SLOTWISE_TEST_POSTGRES", "")


def new_database() -> str:
    """A new, empty database; its address."""
    import psycopg
    from psycopg.conninfo import make_conninfo

    name = f"slotwise_{secrets.token_hex(8)}"  # unique also if this file is imported twice
    with psycopg.connect(POSTGRES, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    parts = psycopg.conninfo.conninfo_to_dict(make_conninfo(POSTGRES, dbname=name))
    return f"postgresql://{parts.get('user', '')}@/{name}?host={parts['host']}&port={parts.get('port', 5432)}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What needs a server outside is not part of `make test`."""
    if os.environ.get("SLOTWISE_TEST_SYSTEM"):
        return
    outside = [item for item in items if item.get_closest_marker("system")]
    if outside:
        config.hook.pytest_deselected(items=outside)
        items[:] = [item for item in items if item not in outside]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.system)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a new store."""
    return f"sqlite:///{tmp_path}/store.db" if request.param == "sqlite" else new_database()


@pytest.fixture
def postgres_url() -> str:
    """The address of a new database."""
    return new_database()


@pytest.fixture
def opened() -> Iterator[Callable[[str], Store]]:
    """Opens stores and closes them at the end."""
    stores: list[Store] = []

    def open_one(url: str) -> Store:
        stores.append(open_store(url))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that tries again soon, and whose callers wait as long as it takes."""
    monkeypatch.setattr("slotwise.live.loop.ANSWER_SECONDS", float("inf"))
    monkeypatch.setattr("slotwise.live.loop.RETRY_SECONDS", 0.01)
    monkeypatch.setattr("slotwise.live.store.sqlite.BUSY_MILLISECONDS", 20)


@pytest.fixture
def until() -> Callable[[Loop, Callable[[], object]], None]:
    """Waits until something has come true, looking after each commit."""

    def wait(loop: Loop, condition: Callable[[], object]) -> None:
        news, deadline = threading.Event(), time.monotonic() + PATIENCE
        loop.on_commit = lambda seq: news.set()
        while not condition():
            assert time.monotonic() < deadline, "it does not come true"
            news.wait(0.05)
            news.clear()

    return wait


@pytest.fixture
def serve() -> Iterator[Callable[..., Process]]:
    """Makes services in folders of their own, and leaves nothing running."""
    made: list[Process] = []

    def make(folder: Path, *options: str) -> Process:
        made.append(Process(folder, *options))
        made[-1].start()
        return made[-1]

    yield make
    for process in made:
        process.clean_up()
