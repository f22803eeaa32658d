"""One hostile tenant beside another: how much longer the other's submissions take, as a ratio within one run.

The hostile tenant does all of this at the same time, as fast as the service answers:

- large bodies of small values, with and without a token, also one that is just small enough to be read;
- jobs of odd amounts, and arrays of jobs of 0 CPUs;
- requests of several arrays of 100,000 jobs, and one array of 100,000 jobs after the other;
- more streams than one token may have.

It comes from another machine: its bodies are written beforehand, and its process has the lowest priority here. It is halted and let go on in turns,
so that both figures are taken in the same minutes. While it is halted, nothing is measured before the service has done what it still asked for.

There are two figures. The time of a submission also has the work of other programs in it. The processor time that the service uses, for whatever request,
from the beginning to the end of a submission has not: it says what the service itself lets come before that submission.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from benchmarks.live.load import CLUSTER
from benchmarks.live.running import processor_seconds, served
from slotwise.live.api.submissions import VALUES
from slotwise.live.client import Client
from slotwise.live.transport import ServiceError, Transport

TURNS, SUBMISSIONS = 5, 100  # turns alone and beside the hostile tenant, and submissions in each
STREAMS = 60
FACTOR = 2.0  # by which p99 of the other tenant may change
PAUSE = 0.01  # seconds between submissions of the other tenant
AHEAD = 3.0  # seconds for which the attack goes on before each measurement
LOWEST = 19  # priority
PROCESS_CLOCK = 2  # of Linux: scheduler time of all threads of a process
IDLE = 0.05  # processor seconds a second of a service that has nothing to do
LOOK = 1.0  # seconds between two looks at them


def processor_clock(process: str) -> int:
    """Return the clock of the processor time of another process, as `clock_getcpuclockid` does."""
    return (~int(process) << 3) | PROCESS_CLOCK


def submissions(client: Client, clock: int) -> list[tuple[float, float]]:
    """Return the seconds that each of some submissions takes, and the processor time of the service meanwhile."""
    took = []
    for _ in range(SUBMISSIONS):
        began, used = time.perf_counter(), time.clock_gettime(clock)
        client.submit(["true"], type="one")
        took.append((time.perf_counter() - began, time.clock_gettime(clock) - used))
        time.sleep(PAUSE)
    return took


def attacks(url: str, token: str) -> list[Callable[[], object]]:
    """Return what the hostile tenant does, each again and again."""

    def post(path: str, body: Any, secret: str = token) -> Callable[[], object]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}

        def send() -> object:
            connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
            try:
                connection.request("POST", path, data, headers)
                return connection.getresponse().read()
            finally:
                connection.close()

        return send

    many = b"[" + b"{}," * 2_000_000 + b"{}]"
    return [
        post("/v1/jobs/bulk", many[:600_000], "sw_x_y"),
        post("/v1/jobs/bulk", many),
        post("/v1/jobs/bulk", b"[" + b"{}," * (VALUES - 10) + b"{}]"),
        post("/v1/jobs", {"argv": ["x"], "needs": {"memory": 1e-9}}),
        post("/v1/jobs", {"argv": ["x"], "needs": {"cpu": 0}, "array": "1-1500"}),
        post("/v1/jobs", {"argv": ["x"], "array": "1-100000"}),
        post("/v1/jobs/bulk", [{"argv": ["x"], "array": "1-100000"}] * 4),
    ]


def follow(url: str, token: str) -> None:
    """Follow the journal, and begin again when that is refused."""
    hostile = Client(url, token)
    while True:
        with suppress(ServiceError):
            for _ in Transport(hostile.address).lines("/v1/events"):
                continue
        time.sleep(0.1)


def processes() -> list[str]:
    """Return the processes that this one has started."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def until_idle(process: str) -> None:
    """Wait until a process has nothing to do."""
    used = processor_seconds(process)
    while True:
        time.sleep(LOOK)
        before, used = used, processor_seconds(process)
        if used - before < IDLE * LOOK:
            return


def repeat(one: Callable[[], object]) -> None:
    """Do it again and again; that it is refused is no reason to end."""
    while True:
        with suppress(OSError, HTTPException):
            one()


def attack(url: str, token: str) -> None:
    """Do everything at once, in a process of its own, until it is killed."""
    os.nice(LOWEST)
    threads = [
        *(threading.Thread(target=repeat, args=(one,)) for one in attacks(url, token)),
        *(threading.Thread(target=follow, args=(url, token)) for _ in range(STREAMS)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run() -> Iterator[dict[str, Any]]:
    """Measure the other tenant alone, then beside the hostile one."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.toml"
        file.write_text(
            CLUSTER + '[policy]\nname = "best-fit"\n'
        )  # the policy decides little here, and starts soon
        with served(Path(folder), str(file), "--engine", "simulated") as operator:
            url = operator.address.url
            (service,) = processes()
            tokens = {
                name: operator.call("POST", "/v1/tokens", json={"role": "submit", "tenant": name}).json()["token"]
                for name in ("hostile", "other")
            }
            alone: list[tuple[float, float]] = []
            beside: list[tuple[float, float]] = []
            clock = processor_clock(service)
            with Client(url, tokens["other"]) as other:
                submissions(other, clock)
                enemy = multiprocessing.get_context("spawn").Process(target=attack, args=(url, tokens["hostile"]))
                enemy.start()
                assert enemy.pid is not None
                try:
                    for _ in range(TURNS):
                        os.kill(enemy.pid, signal.SIGCONT)
                        time.sleep(AHEAD)
                        beside += submissions(other, clock)
                        os.kill(enemy.pid, signal.SIGSTOP)
                        until_idle(service)
                        alone += submissions(other, clock)
                finally:
                    enemy.kill()
                    enemy.join()
            load = f"load {os.getloadavg()[0]:.1f}"
            for at, name in enumerate(
                ("p99 of a submission", "p99 of the service's processor time during a submission")
            ):
                yield compared(
                    f"{name} beside a hostile tenant", [one[at] for one in alone], [one[at] for one in beside], load
                )


def compared(name: str, alone: list[float], beside: list[float], load: str) -> dict[str, Any]:
    """Return the row of one figure."""
    (least, without), (median, with_it) = (
        [1000 * float(x) for x in np.percentile(one, (50, 99))] for one in (alone, beside)
    )
    return {
        "name": name,
        "value": with_it / without,
        "unit": "times",
        "goal": f"below {FACTOR:g}",
        "met": with_it / without < FACTOR,
        "detail": f"{without:.1f} ms alone, {with_it:.1f} ms beside it; medians {least:.1f} and {median:.1f} ms; {load}",
    }
