"""Virtual machines under Slotwise, and without a queue: the same hosts of libvirt, the same machines, one way after the other.

    python -m benchmarks.live.libvirt [whole-host] [trap] [--machines 100] [--mean 40] [--again 10] [--way first-fit] [--save FILE]

libvirt itself has no queue. `first-fit` asks the hosts in turn for room and refuses a machine that none has room for. `first-fit-again` asks
again `--again` seconds after each refusal, as a user's script does. `slotwise` is `slotwise serve`. A wait is the time from a machine's arrival
to the moment its guest is let go. Hosts are real libvirtd with QEMU without hardware support (tools/system/with-libvirt). A guest is a boot sector that
powers off after its duration; durations are exponential, rounded to one of `STEPS` quantiles.
"""

from __future__ import annotations

import argparse
import heapq
import importlib
import itertools
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.live.kubernetes import Usage, quantile, tell

ROOT = Path(__file__).parents[2]
CPUS = 10  # of each host
MEMORY = 16  # MB of each machine
STEPS = 16
LOADS = {"whole-host": (10, 1, 0.9), "trap": (5, 2, 0.9)}  # CPUs of the two types, half of the load each; the load
STORE = "firstfit"  # the identity that first-fit gives its domains


class Arrival(NamedTuple):
    """A virtual machine of a stream."""

    at: float
    cpus: int
    step: int
    """which duration it has"""


def durations(mean: float) -> list[float]:
    """Return the means of `STEPS` equally likely parts of an exponential law."""
    edges = [0.0, *(-math.log(1 - n / STEPS) for n in range(1, STEPS)), math.inf]
    weighted = [(1 + edge) * math.exp(-edge) if edge < math.inf else 0.0 for edge in edges]
    return [mean * STEPS * (low - high) for low, high in itertools.pairwise(weighted)]


def stream(part: str, count: int, mean: float, hosts: int, seed: int) -> list[Arrival]:
    """Return Poisson arrivals of two types."""
    first, second, load = LOADS[part]
    chance = random.Random(seed)
    rates = [load / 2 * hosts * CPUS / (mean * size) for size in (first, second)]
    now, found = 0.0, []
    for _ in range(count):
        now += chance.expovariate(sum(rates))
        found.append(Arrival(now, chance.choices((first, second), rates)[0], chance.randrange(STEPS)))
    return found


def image(step: int) -> str:
    """Return the name of the image that powers off after a duration."""
    return f"lasts-{step}"


def first_fit(hosts: Any, arrivals: Sequence[Arrival], again: float | None) -> list[float | None]:
    """Start each machine on the first host that has room; return the waits, None for what was refused."""
    from slotwise.live.engines.libvirt.binding import connect
    from slotwise.live.engines.libvirt.making import drop_parts, make_machine
    from slotwise.live.engines.libvirt.marks import uuid_of
    from slotwise.live.engines.protocol import Start

    connections = {name: connect(hosts.uri(name), "default", lambda: None) for name in hosts.names}

    def place(number: int, one: Arrival) -> bool:
        for name, host in connections.items():
            held = sum(host.size(seen.uuid).cpu for seen in host.domains() if not seen.has_ended)
            if held + one.cpus <= CPUS:
                spec = {"vm": {"image": image(one.step)}}
                make_machine(host, Start(number, 1, name, spec, {"cpu": one.cpus, "memory": MEMORY}), STORE, "qemu")
                host.create(uuid_of(STORE, (number, 1)))
                host.resume(uuid_of(STORE, (number, 1)))
                return True
        return False

    waits: list[float | None] = [None] * len(arrivals)
    asked = [(one.at, number) for number, one in enumerate(arrivals)]
    began = time.monotonic()
    while asked:
        at, number = heapq.heappop(asked)
        time.sleep(max(0.0, began + at - time.monotonic()))
        if place(number, arrivals[number]):
            waits[number] = time.monotonic() - began - arrivals[number].at
        elif again is not None:
            heapq.heappush(asked, (time.monotonic() - began + again, number))
    until_none_runs(hosts)
    for number in range(len(arrivals)):
        for host in connections.values():
            with suppress(Exception):
                host.undefine(uuid_of(STORE, (number, 1)))
                drop_parts(host, STORE, (number, 1))
    for host in connections.values():
        host.close()
    return waits


def until_none_runs(hosts: Any) -> None:
    """Wait until no machine runs."""
    while hosts.machines():
        time.sleep(0.5)


def by_slotwise(hosts: Any, arrivals: Sequence[Arrival]) -> tuple[list[float | None], float]:
    """Submit each machine to a service; return the waits and the CPU seconds of the service."""
    from slotwise.live import Client

    with tempfile.TemporaryDirectory(dir=hosts.folder) as folder:
        lines = ["[libvirt]", 'domain_type = "qemu"', "disk_reserve = 1"]
        for name in hosts.names:
            lines += ["[[libvirt.hosts]]", f'name = "{name}"', f'uri = "{hosts.uri(name)}"']
            lines += [f"capacity = {{ cpu = {CPUS}, memory = 8000 }}"]
        Path(folder, "hosts.toml").write_text("\n".join(lines))
        os.environ["XDG_STATE_HOME"] = f"{folder}/state"
        command = [sys.executable, "-m", "slotwise", "serve", "hosts.toml", "--engine", "libvirt", "--port", "0"]
        command += ["--store", f"sqlite:///{folder}/store.db"]
        with open(f"{folder}/log", "w") as log:
            service = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert service.stdout is not None
            line = service.stdout.readline()
            if not line.startswith("listening on "):
                sys.exit(f"benchmarks.live.libvirt: {Path(folder, 'log').read_text()}")
            usage = Usage(service.pid)
            before = usage.cpu()
            with Client(line.split()[-1]) as client:
                came: dict[int, float] = {}
                began = time.time()
                for one in arrivals:
                    time.sleep(max(0.0, began + one.at - time.time()))
                    asked = {"vm": {"image": image(one.step)}, "needs": {"cpu": one.cpus, "memory": MEMORY}}
                    (handle,) = client.submit_many([asked])
                    came[handle.id] = began + one.at
                client.wait(list(came), 3600.0)
                jobs = sorted(client.jobs())
                cpu = usage.cpu() - before
        finally:
            service.terminate()
            service.wait()
    until_none_runs(hosts)
    wrong = [one for one in jobs if one.state != "done"]
    if wrong:
        print(
            f"benchmarks.live.libvirt: {len(wrong)} machines did not end well, such as {wrong[0]}", file=sys.stderr
        )
    return [None if one.started is None else one.started - came[one.id] for one in jobs], cpu


def row(
    part: str, way: str, arrivals: Sequence[Arrival], waits: Sequence[float | None], mean: float
) -> dict[str, Any]:
    """Return one line of the result."""
    large = max(LOADS[part][:2])
    known = [wait for wait in waits if wait is not None]
    of_large = [wait for wait, one in zip(waits, arrivals, strict=True) if one.cpus == large]
    waits_of_large = [wait for wait in of_large if wait is not None]
    seconds = durations(mean)
    refused = [one for wait, one in zip(waits, arrivals, strict=True) if wait is None]
    work = sum(one.cpus * seconds[one.step] for one in arrivals)
    return {
        "part": part, "way": way, "machines": len(waits), "large": len(of_large),
        "refused": len(refused), "refused_large": of_large.count(None),
        "refused_work": sum(one.cpus * seconds[one.step] for one in refused) / work,
        "mean_s": sum(known) / len(known), "p50_s": quantile(known, 0.5), "p99_s": quantile(known, 0.99), "longest_s": max(known),
        "mean_large_s": sum(waits_of_large) / len(waits_of_large) if waits_of_large else None,
    }  # fmt: skip


def main() -> None:
    """All ways, one after the other, for each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(LOADS)} (default: all)")
    parser.add_argument("--machines", type=int, default=100)
    parser.add_argument("--mean", type=float, default=40.0, help="mean duration of a machine in seconds")
    parser.add_argument("--again", type=float, default=10.0, help="seconds after which first-fit-again asks again")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--way", choices=("first-fit", "first-fit-again", "slotwise"), action="append")
    parser.add_argument("--save", metavar="FILE", help="append the results as lines of JSON")
    options = parser.parse_args()
    if "SLOTWISE_TEST_LIBVIRT" not in os.environ:
        tool = str(ROOT / "tools/system/with-libvirt")
        os.execv(tool, [tool, sys.executable, "-m", "benchmarks.live.libvirt", *sys.argv[1:]])
    subprocess.run([sys.executable, "-m", "slotwise", "warm", "guarded"], check=True)
    sys.path.insert(0, str(ROOT / "tests" / "live"))
    real, guests = importlib.import_module("real_libvirt"), importlib.import_module("tiny_guest")
    hosts = real.RealHosts(Path(os.environ["SLOTWISE_TEST_LIBVIRT"]))
    hosts.make_pools({image(n): guests.tiny_guest(one) for n, one in enumerate(durations(options.mean))})
    ways: dict[str, Callable[[Sequence[Arrival]], tuple[list[float | None], float | None]]] = {
        "first-fit": lambda arrivals: (first_fit(hosts, arrivals, None), None),
        "first-fit-again": lambda arrivals: (first_fit(hosts, arrivals, options.again), None),
        "slotwise": lambda arrivals: by_slotwise(hosts, arrivals),
    }
    for part in options.parts or LOADS:
        arrivals = stream(part, options.machines, options.mean, len(hosts.names), options.seed)
        for way in options.way or ways:
            waits, cpu = ways[way](arrivals)
            tell({**row(part, way, arrivals, waits, options.mean), "cpu_s": cpu}, options.save)


if __name__ == "__main__":
    main()
