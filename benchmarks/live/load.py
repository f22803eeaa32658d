"""Load: what the whole service takes beside what its store and its web server take alone, in one run; and how it behaves with a million
waiting jobs and 100,000 servers.

- bulk: 10,000 jobs in a request, over HTTP, beside the same rows committed to an empty store of the same kind;
- singles: jobs one by one over HTTP on 8 connections, beside a bare FastAPI application that commits one row of SQLite for each request;
- large: a million waiting jobs on 1,000 and on 100,000 simulated servers: decisions, submissions, restart, memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.live.running import served
from slotwise.live.engines.protocol import Ended, ServerUp
from slotwise.live.engines.simulated import SimulatedEngine, exponential
from slotwise.live.ledger import Ledger
from slotwise.live.newjob import NewJob
from slotwise.live.restart import Setup, load
from slotwise.live.retention import Retention
from slotwise.live.service import Service
from slotwise.live.store import open_store
from slotwise.model import Cluster, JobType, ServerClass

BULK = 10_000
SINGLES = 2000
CONNECTIONS = 8
WAITING = 1_000_000
CLUSTER = """[cluster]
resources = ["cpu", "memory"]
servers = [{ name = "a", count = 2, capacity = [4, 1000] }]
[[types]]
name = "one"
demand = [1, 10]
mean_service = 1e9
"""
ECHO = """
import sqlite3, sys, threading
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

class Row(BaseModel):
    argv: list[str]
    type: str

base = sqlite3.connect(sys.argv[1], isolation_level=None, check_same_thread=False)
base.execute("PRAGMA journal_mode = WAL")
base.execute("PRAGMA synchronous = FULL")
base.execute("CREATE TABLE row (id INTEGER PRIMARY KEY, body TEXT)")
lock, app = threading.Lock(), FastAPI()

@app.post("/v1/jobs", status_code=201)
def echo(row: Row) -> dict:
    with lock:
        number = base.execute("INSERT INTO row (body) VALUES (?)", (row.model_dump_json(),)).lastrowid
    return {"id": number, "ids": [number]}

class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)

Server(uvicorn.Config(app, port=0, log_config=None, access_log=False)).run()
"""


def row(name: str, value: float, unit: str, detail: str, goal: str = "", met: bool = True) -> dict[str, Any]:
    found: dict[str, Any] = {"name": f"live: {name}", "value": value, "unit": unit, "detail": detail}
    return found | ({"goal": goal, "met": met} if goal else {})


# -- bulk -------------------------------------------------------------------------------------------------------------


def setup_of(servers: int, policy: str = "guarded") -> Setup:
    cluster = Cluster(
        resources=("cpu", "memory"),
        servers=(ServerClass(name="a", count=servers, capacity=("4", "1000")),),  # type: ignore[arg-type]
    )
    types = tuple(
        JobType(name=name, demand=demand)  # type: ignore[arg-type]
        for name, demand in (("one", ("1", "10")), ("two", ("2", "500")), ("all", ("4", "100")))
    )
    return Setup(cluster, types, policy)


def bulk(turns: int = 5) -> list[dict[str, Any]]:
    """Whole requests beside commits of the same rows, in turns."""
    job = {"argv": ["python", "train.py", "--seed", "1"], "type": "one"}
    whole: list[float] = []
    alone: list[float] = []
    inside: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "c.toml").write_text(CLUSTER)
        store = open_store(f"sqlite:///{folder}/alone.db")
        store.become_writer()
        setup = setup_of(2)
        ledger = Ledger(setup.core())
        new = NewJob("operator", "one", {}, {}, body=json.dumps(job))
        with served(folder, str(folder / "c.toml"), "--engine", "simulated") as client:
            content = json.dumps([job] * BULK).encode()
            for _ in range(turns + 1):
                began = time.perf_counter()
                answer = client.call(
                    "POST", "/v1/jobs/bulk", content=content, headers={"content-type": "application/json"}
                )
                whole.append(BULK / (time.perf_counter() - began))
                assert len(answer.json()["ids"]) == BULK
                began = time.perf_counter()
                ledger.submit([new] * BULK, time.time())
                batch, _ = ledger.take()
                decided = time.perf_counter()
                store.commit(batch)
                alone.append(BULK / (time.perf_counter() - decided))
                inside.append(BULK / (time.perf_counter() - began))
        store.close()
    ratio = statistics.median(a / b for a, b in zip(whole[1:], alone[1:], strict=True))
    return [
        row(
            "bulk submissions over HTTP", statistics.median(whole[1:]), "jobs/s", f"{BULK:,} in a request, durable"
        ),
        row(
            "the store alone, the same rows",
            statistics.median(alone[1:]),
            "jobs/s",
            "two rows a job, SQLite, synchronous FULL",
        ),
        row("bulk to store alone", ratio, "times", f"median of {turns} turns", "at least 0.5", ratio >= 0.5),
    ]


# -- singles ----------------------------------------------------------------------------------------------------------


async def hammer(url: str, token: str | None, jobs: int) -> tuple[float, list[float]]:
    """Single submissions on several connections: a second's worth, and how long each took."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    took: list[float] = []
    left = iter(range(jobs))

    async def one(client: httpx.AsyncClient) -> None:
        for _ in left:
            began = time.perf_counter()
            answer = await client.post("/v1/jobs", json={"argv": ["true"], "type": "one"})
            assert answer.status_code == 201, answer.text
            took.append(time.perf_counter() - began)

    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
        await client.post("/v1/jobs", json={"argv": ["true"], "type": "one"})
        began = time.perf_counter()
        await asyncio.gather(*(one(client) for _ in range(CONNECTIONS)))
        return jobs / (time.perf_counter() - began), took


def singles(turns: int = 3) -> list[dict[str, Any]]:
    whole: list[float] = []
    alone: list[float] = []
    late: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "c.toml").write_text(CLUSTER)
        echo = subprocess.Popen(
            [sys.executable, "-c", ECHO, str(folder / "echo.db")], stdout=subprocess.PIPE, text=True
        )
        assert echo.stdout is not None
        try:
            port = int(echo.stdout.readline())
            with served(folder, str(folder / "c.toml"), "--engine", "simulated") as client:
                for _ in range(turns):
                    rate, took = asyncio.run(hammer(client.address.url, client.address.token, SINGLES))
                    whole.append(rate)
                    late += took
                    alone.append(asyncio.run(hammer(f"http://127.0.0.1:{port}", None, SINGLES))[0])
        finally:
            echo.terminate()
            echo.wait()
            echo.stdout.close()
    ratio = statistics.median(a / b for a, b in zip(whole, alone, strict=True))
    p99 = float(np.quantile(late, 0.99)) * 1000
    return [
        row(
            "single submissions over HTTP",
            statistics.median(whole),
            "jobs/s",
            f"{CONNECTIONS} connections, p99 {p99:.1f} ms",
        ),
        row("a bare FastAPI echo", statistics.median(alone), "rows/s", "commits one row of SQLite a request"),
        row("singles to bare echo", ratio, "times", f"median of {turns} turns", "at least 0.5", ratio >= 0.5),
    ]


# -- large ------------------------------------------------------------------------------------------------------------


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def quiet(service: Service) -> None:
    """Until the engine has told all that it tells after a restart."""
    while len(service.loop.inbox) or service.loop.ask(lambda ledger, now: len(ledger.batch.entries)).result():
        time.sleep(0.05)


def large(servers: int, waiting: int = WAITING, events: int = 4000) -> dict[str, float]:
    """In a process of its own: fill it, measure decisions and durable submissions, restart."""
    setup = setup_of(servers)
    setup.warm()
    with tempfile.TemporaryDirectory() as name:
        url = f"sqlite:///{name}/x.db"
        store = open_store(url)
        store.become_writer()
        ledger, retention = Ledger(setup.core()), Retention(every=10**9)
        chance = np.random.default_rng(1)
        kinds = [NewJob("t", one.name, {}, {}, body='{"argv":["x"]}') for one in setup.types]

        def commit() -> None:
            store.commit(ledger.take()[0])

        for n in range(servers):
            ledger.server_up(ServerUp(f"s{n}", {}, server_class="a"), 1.0)
            if n % 20_000 == 0:
                commit()
        commit()
        while sum(ledger.core.waiting.values()) < waiting:
            ledger.submit([kinds[int(k)] for k in chance.integers(3, size=20_000)], 2.0)
            commit()
        retention.checkpoint(store, ledger)
        live = list(ledger.live)
        decisions = []
        for n in range(min(events, len(live))):  # an end, and what is placed instead; and an arrival
            job = live[n]
            decisions.append(timed(lambda job=job: ledger.ended(Ended(job, 1, 0, 3.0), 3.0))[1])  # type: ignore[misc]
            decisions.append(timed(lambda n=n: ledger.submit([kinds[n % 3]], 3.0))[1])  # type: ignore[misc]
            if n % 100 == 0:
                commit()
        commit()
        store.close()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        store = open_store(url)
        (again, _), restart = timed(lambda: load(store, setup))
        assert again.core.waiting == ledger.core.waiting
        store.close()
        ups = [ServerUp(f"s{n}", {}, server_class="a") for n in range(servers)]
        processor = time.process_time()
        service, opened = timed(
            lambda: Service(
                open_store(url), SimulatedEngine(ups, exponential(1, 1e9)), setup, retention=Retention(every=10**9)
            )
        )
        processor = time.process_time() - processor
        quiet(service)
        took = []
        for n in range(1000):
            took.append(timed(lambda n=n: service.loop.submit([kinds[n % 3]]).result())[1])  # type: ignore[misc]
        service.loop.retention.checkpoint = lambda *_: None  # type: ignore[method-assign]
        service.close()
    return {
        "p50": float(np.median(decisions)),
        "p99": float(np.quantile(decisions, 0.99)),
        "submit": float(np.quantile(took, 0.99)),
        "load": restart,
        "restart": opened,
        "processor": processor,
        "memory": memory,
        "whole": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def large_apart(servers: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", f"import json; from benchmarks.live.load import large; print(json.dumps(large({servers})))"],
        check=True, stdout=subprocess.PIPE, text=True, env=os.environ,
    )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def run() -> list[dict[str, Any]]:
    """Rows of name, value, unit, detail."""
    rows = [*bulk(), *singles()]
    few, many = large_apart(1_000), large_apart(100_000)
    at = f"at {WAITING:,} waiting jobs and 100,000 servers, guarded"
    flat = many["p99"] / few["p99"]
    rows += [
        row(
            "decision, p99",
            many["p99"] * 1e3,
            "ms",
            f"{at}; p50 {many['p50'] * 1e3:.3f} ms",
            "under 1",
            many["p99"] < 1e-3,
        ),
        row(
            "submission, p99",
            many["submit"] * 1e3,
            "ms",
            f"{at}; one by one, durable",
            "under 50",
            many["submit"] < 0.05,
        ),
        row(
            "restart",
            many["restart"],
            "s",
            f"{at}; {many['load']:.1f} s to read the books; {many['processor']:.0f} s of processor time",
            "under 60",
            many["restart"] < 60,
        ),
        row("memory", many["memory"], "MB", f"{at}; {many['whole']:.0f} MB after a restart in the same process"),
        row(
            "decision, 100,000 to 1,000 servers",
            flat,
            "ratio",
            f"p99 {few['p99'] * 1e3:.3f} ms with 1,000",
            "at most 2",
            flat <= 2,
        ),
    ]
    return rows
