"""One hostile tenant beside another: how much longer the other's submissions take, as a ratio within one run.

The hostile tenant does all of this at the same time, as fast as the service answers:

- large bodies of small values, with and without a token;
- jobs of odd amounts, and arrays of jobs of 0 CPUs;
- requests of several arrays of 100,000 jobs;
- more streams than one token may have.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.live.load import CLUSTER
from benchmarks.live.running import served
from slotwise.live.client import Client
from slotwise.live.transport import ServiceError, Transport

SUBMISSIONS = 300
STREAMS = 60
FACTOR = 2.0  # by which p99 of the other tenant may change
PAUSE = 0.01  # seconds between submissions of the other tenant


def p99(client: Client) -> float:
    """Seconds that a submission takes in the 99th percentile."""
    took = []
    for _ in range(SUBMISSIONS):
        began = time.perf_counter()
        client.submit(["true"], type="one")
        took.append(time.perf_counter() - began)
        time.sleep(PAUSE)
    return float(np.percentile(took, 99))


def attacks(url: str, token: str) -> list[Callable[[], object]]:
    """What the hostile tenant does, each again and again."""
    hostile, stranger = Client(url, token), Client(url, "sw_x_y")
    many: Any = [{}] * 2_000_000

    def job(**spec: Any) -> Callable[[], object]:
        return lambda: hostile.call("POST", "/v1/jobs", json={"argv": ["x"], **spec})

    return [
        lambda: stranger.call("POST", "/v1/jobs/bulk", json=many[:200_000]),
        lambda: hostile.call("POST", "/v1/jobs/bulk", json=many[:1_500_000]),
        job(needs={"memory": 1e-9}),
        job(needs={"cpu": 0}, array="1-1500"),
        lambda: hostile.call("POST", "/v1/jobs/bulk", json=[{"argv": ["x"], "array": "1-100000"}] * 4),
    ]


def follow(url: str, token: str) -> None:
    """Follow the journal, and begin again when that is refused."""
    hostile = Client(url, token)
    while True:
        with suppress(ServiceError):
            for _ in Transport(hostile.address).lines("/v1/events"):
                continue
        time.sleep(0.1)


def repeat(one: Callable[[], object]) -> None:
    """Do it again and again; that it is refused is no reason to end."""
    while True:
        with suppress(ServiceError):
            one()


def attack(url: str, token: str) -> None:
    """Do everything at once, in a process of its own, until it is killed."""
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
            tokens = {
                name: operator.call("POST", "/v1/tokens", json={"role": "submit", "tenant": name}).json()["token"]
                for name in ("hostile", "other")
            }
            with Client(url, tokens["other"]) as other:
                p99(other)
                alone = p99(other)
                enemy = multiprocessing.get_context("spawn").Process(target=attack, args=(url, tokens["hostile"]))
                enemy.start()
                try:
                    p99(other)  # until the attack is under way
                    beside = p99(other)
                finally:
                    enemy.kill()
                    enemy.join()
            yield {
                "name": "p99 of a submission beside a hostile tenant",
                "value": beside / alone,
                "unit": "times",
                "goal": f"below {FACTOR:g}",
                "met": beside / alone < FACTOR,
                "detail": f"{1000 * alone:.1f} ms alone, {1000 * beside:.1f} ms beside it",
            }
