"""Two services on one PostgreSQL: the second takes over from a first that hangs, and the first, when it wakes up, is refused."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from processes import PATIENCE

from slotwise.live.client import Client
from slotwise.live.engines.simulated import deeds
from slotwise.live.replay import replay
from slotwise.live.store import Query, open_store

CLUSTER = """
[cluster]
resources = ["cpu"]
servers = [{ name = "a", count = 4, capacity = [2] }]
[[types]]
name = "one"
demand = [1]
mean_service = 0.05
[policy]
name = "best-fit"
"""


def serve(folder: Path, url: str, name: str, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "slotwise", "serve", "c.toml", "--engine", "simulated", "--port", "0"]
    with open(folder / f"{name}.err", "ab") as errors:
        return subprocess.Popen(
            [*command, "--folder", str(folder / "files"), "--store", url, *more],
            cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip


def address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().removeprefix("listening on ").strip()


@pytest.mark.system
def test_a_standby_takes_over_from_a_service_that_hangs(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "c.toml").write_text(CLUSTER)
    first = serve(tmp_path, postgres_url, "first")
    here = address(first)
    with Client(here) as client:
        numbers = [handle.id for handle in client.submit_many([{"argv": ["x"], "type": "one"}] * 1000)]
    second = serve(tmp_path, postgres_url, "second", "--standby")
    try:
        assert second.stdout is not None
        deadline = time.monotonic() + PATIENCE  # it is warm when it begins to wait for the lease
        while "waiting" not in (tmp_path / "second.err").read_text():
            assert time.monotonic() < deadline
            assert second.poll() is None
            time.sleep(0.01)
        os.kill(first.pid, signal.SIGSTOP)
        began = time.monotonic()
        ready, _, _ = select.select([second.stdout], [], [], PATIENCE)
        assert ready
        print(f"taken over after {time.monotonic() - began:.1f} s")
        there = address(second)
        with Client(there) as client:
            more = [handle.id for handle in client.submit_many([{"argv": ["x"], "type": "one"}] * 50)]
            os.kill(first.pid, signal.SIGCONT)
            assert first.wait(PATIENCE) == 1
            assert "taken over" in (tmp_path / "first.err").read_text()
            ended = {job.id: job for job in client.as_completed([*numbers, *more], timeout=PATIENCE)}
            assert {job.state for job in ended.values()} == {"done"}
            assert all(job.attempt == 1 for job in ended.values())
    finally:
        for process in (first, second):
            process.kill() if process is first else process.terminate()
            process.wait(PATIENCE)
            assert process.stdout is not None
            process.stdout.close()
    store = open_store(postgres_url)
    assert replay(store).differences == []
    order = [job for entry in store.entries(0, limit=10**6) for job, _, _ in json.loads(entry.placements)]
    assert order == sorted(order)
    assert len(store.jobs(Query(limit=2000))) == 1050
    store.close()
    executed = Counter(deed.job for deed in deeds(tmp_path / "files" / "world"))
    assert set(executed) == {*numbers, *more}
    assert max(executed.values()) == 1, "executed twice"
