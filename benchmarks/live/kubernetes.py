"""Slotwise and the default scheduler of Kubernetes, side by side: the same API server, the same pods, one scheduler after the other.

    python -m benchmarks.live.kubernetes [trap] [whole-node] [alibaba] [rate] [--pods 600] [--mean 4] [--nodes 1000] [--burst 1000] [--save FILE]

`trap`, `whole-node` and `alibaba` are streams (benchmarks/live/kubernetes_streams.py): KWOK plays nodes and pods, and each pod ends after its duration.
A wait is the time from a pod's creation to its binding, both as a watch of the API server tells them. `rate` has no ends: as many pods as
`--burst` wait when the scheduler starts, which gives bindings a second; then pods arrive evenly, which gives the time from arrival to binding.

The API server, etcd and KWOK are real (tools/system/with-kubernetes); `make kubernetes` builds them.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.live.kubernetes_streams import GPU, STREAMS, Amounts, Stream, weights

ROOT = Path(__file__).parents[2]
SCHEDULERS = ("default-scheduler", "slotwise")
PATIENCE = 1200.0  # seconds for a stream to end
EVENLY = 50.0  # pods a second that arrive after the burst of `rate`, for EVEN_SECONDS
EVEN_SECONDS = 20.0
TICK = os.sysconf("SC_CLK_TCK")


def real() -> Any:
    """Return the module of the tests that talks to a real API server."""
    sys.path.insert(0, str(ROOT / "tests" / "live"))
    return importlib.import_module("real_kubernetes")


def quantile(values: Sequence[float], q: float) -> float:
    """Return the smallest value that a share q of all does not exceed."""
    return sorted(values)[max(0, math.ceil(q * len(values)) - 1)]


class Usage:
    """CPU seconds and memory of a process and its children."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def _all(self) -> list[int]:
        parents = {}
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                try:
                    fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                parents[int(entry.name)] = int(fields[1])
        found = [self.pid]
        for one in found:
            found += [child for child, parent in parents.items() if parent == one]
        return found

    def cpu(self) -> float:
        """Return the CPU time so far, in seconds."""
        total = 0
        for one in self._all():
            try:
                fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            total += sum(map(int, fields[11:15]))
        return total / TICK

    def memory(self) -> float:
        """Return the most memory that the process itself held, in MB."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024 / 1e6
        return 0.0


@contextmanager
def scheduler(api: Any, name: str) -> Iterator[Usage]:
    """Run a scheduler, and wait until it is ready."""
    folder = Path(tempfile.mkdtemp(dir=api.folder))
    if name == "slotwise":
        argv = [
            sys.executable, "-m", "slotwise", "serve", "--engine", "kubernetes", "--port", "0",
            "--kubeconfig", str(api.folder / "slotwise.conf"), "--store", f"sqlite:///{folder}/slotwise.db",
        ]  # fmt: skip
    else:
        argv = [
            str(api.folder / "bin" / "kube-scheduler"), "--kubeconfig", str(api.folder / "admin.conf"),
            "--authentication-kubeconfig", str(api.folder / "admin.conf"), "--authorization-kubeconfig",
            str(api.folder / "admin.conf"), "--leader-elect=false", "--secure-port", "0", "--kube-api-qps", "5000",
            "--kube-api-burst", "5000",
        ]  # fmt: skip
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            argv, stdout=log, stderr=log, env=os.environ | {"XDG_STATE_HOME": str(folder / "state")}
        )
        try:
            yield Usage(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            print(
                (folder / "log").read_text()[-2000:] if process.returncode not in (0, -15, 143, 1) else "", end=""
            )


def resources(amounts: Amounts) -> dict[str, str]:
    """Return amounts as Kubernetes writes them."""
    found = {"cpu": f"{amounts['cpu']}m", "memory": f"{amounts['memory']}Mi"}
    if amounts.get("gpu"):
        found[GPU] = str(amounts["gpu"])
    return found


def make_nodes(api: Any, nodes: Sequence[Amounts]) -> None:
    """Create nodes, and wait until they are ready."""
    made = []
    for n, size in enumerate(nodes):
        node = api.node(f"n{n}", 1, "1Mi", labels={"kubernetes.io/os": "linux"})
        node["status"]["allocatable"] = node["status"]["capacity"] = {**resources(size), "pods": "250"}
        made.append(node)
    api.create_all(made)
    for one in api.call("GET", "/api/v1/nodes")["items"]:
        if one["spec"].get("taints"):  # a controller-manager would remove it when the node is ready
            api.call("PATCH", f"/api/v1/nodes/{one['metadata']['name']}", {"spec": {"taints": None}}, PATCH)


PATCH = "application/merge-patch+json"


def pod(module: Any, name: str, by: str, requests: Amounts, seconds: float | None) -> Any:
    """Return a pod for a scheduler."""
    made = module.pod(name, "1", seconds=seconds, scheduler=by)
    made["spec"]["containers"][0]["resources"] = {"requests": resources(requests), "limits": limits(requests)}
    return made


def limits(requests: Amounts) -> dict[str, str]:
    """Return the limits of a pod: extended resources need one that equals the request."""
    return {key: value for key, value in resources(requests).items() if key == GPU}


def clear(api: Any, *, nodes: bool = True) -> None:
    """Delete all pods and nodes."""
    while True:
        api.call("DELETE", "/api/v1/namespaces/default/pods?gracePeriodSeconds=0")
        if not api.pods("limit=1"):
            break
        time.sleep(0.5)
    if nodes:
        api.call("DELETE", "/api/v1/nodes")


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"benchmarks.live.kubernetes: not in {PATIENCE:g} s: {what}")
        time.sleep(0.2)


def warm_up(api: Any, module: Any, name: str) -> None:
    """Wait until a scheduler binds a pod."""
    api.create(pod(module, f"first-{name}", name, {"cpu": 100, "memory": 1}, 0.1))
    wait_for(
        lambda: bool(api.pods("fieldSelector=metadata.name=first-" + name)[0]["spec"].get("nodeName")), "ready"
    )
    clear(api, nodes=False)


def play(api: Any, module: Any, stream: Stream, name: str) -> dict[str, Any]:
    """Return what a scheduler does with a stream."""
    make_nodes(api, stream.nodes)
    server = Usage(int((api.folder / "kube-apiserver.pid").read_text()))
    with scheduler(api, name) as usage:
        warm_up(api, module, name)
        recorder = module.Recorder(api)
        before, before_server = usage.cpu(), server.cpu()
        began, late = time.monotonic(), 0.0
        for n, one in enumerate(stream.pods):
            left = began + one.at - time.monotonic()
            late = max(late, -left)
            time.sleep(max(0.0, left))
            api.create(pod(module, f"p{n}", name, one.requests, one.seconds))
        wait_for(
            lambda: sum("ended" in one for one in list(recorder.times.values())) >= len(stream.pods), "the end"
        )
        took = time.monotonic() - began
        cpu, cpu_server, memory = usage.cpu() - before, server.cpu() - before_server, usage.memory()
        recorder.close()
    times = list(recorder.times.values())
    names = {seen["metadata"]["uid"]: seen["metadata"]["name"] for _, seen in recorder.events}
    wait_of = {names[uid]: one["bound"] - one["created"] for uid, one in recorder.times.items()}
    waits, weight = [wait_of[f"p{n}"] for n in range(len(stream.pods))], weights(stream)
    weighted = sum(wait * one for wait, one in zip(waits, weight, strict=True)) / sum(weight)
    clear(api)
    span = stream.pods[-1].at
    return {
        "part": stream.name, "scheduler": name, "pods": len(waits), "nodes": len(stream.nodes), "load": stream.load,
        "arrivals_s": span, "mean_s": sum(waits) / len(waits), "p50_s": quantile(waits, 0.5), "p99_s": quantile(waits, 0.99),
        "longest_s": max(waits), "weighted_s": weighted, "pending": pending(times, began, took), "took_s": took, "late_s": late,
        "cpu_s": cpu, "server_cpu_s": cpu_server, "memory_mb": memory,
    }  # fmt: skip


def pending(times: Sequence[dict[str, float]], began: float, took: float, points: int = 10) -> list[int]:
    """Return how many pods waited at evenly spaced moments."""
    moments = [began + took * (n + 1) / (points + 1) for n in range(points)]
    return [sum(one["created"] <= now < one["bound"] for one in times) for now in moments]


def rate(api: Any, module: Any, name: str, nodes: int, burst: int) -> dict[str, Any]:
    """Return how fast a scheduler binds pods that wait, and how soon pods that come one by one."""
    make_nodes(api, [{"cpu": 32000, "memory": 131072}] * nodes)
    small = {"cpu": 100, "memory": 64}
    recorder = module.Recorder(api)
    api.create_all([pod(module, f"b{n}", name, small, None) for n in range(burst)])
    began = time.monotonic()
    with scheduler(api, name) as usage:
        wait_for(lambda: sum("bound" in one for one in list(recorder.times.values())) >= burst, "the burst")
        bound = sorted(one["bound"] for one in recorder.times.values())
        old = set(recorder.times)
        first = time.monotonic()
        for n in range(int(EVENLY * EVEN_SECONDS)):
            time.sleep(max(0.0, first + n / EVENLY - time.monotonic()))
            api.create(pod(module, f"e{n}", name, small, None))
        total = burst + int(EVENLY * EVEN_SECONDS)
        wait_for(lambda: sum("bound" in one for one in list(recorder.times.values())) >= total, "the rest")
        cpu, memory = usage.cpu(), usage.memory()
        recorder.close()
    waits = [one["bound"] - one["created"] for uid, one in recorder.times.items() if uid not in old]
    clear(api)
    middle = bound[len(bound) // 10 :]
    return {
        "part": f"rate-{nodes}", "scheduler": name, "nodes": nodes, "pods": total, "first_binding_s": bound[0] - began,
        "bindings_a_second": (len(middle) - 1) / (middle[-1] - middle[0]), "p50_ms": quantile(waits, 0.5) * 1000,
        "p99_ms": quantile(waits, 0.99) * 1000, "cpu_s": cpu, "memory_mb": memory,
    }  # fmt: skip


def tell(row: dict[str, Any], file: str | None) -> None:
    """Print a result, and append it to a file."""
    print(json.dumps({key: round(v, 3) if isinstance(v, float) else v for key, v in row.items()}), flush=True)
    if file:
        with open(file, "a") as lines:
            lines.write(json.dumps(row) + "\n")


def main() -> None:
    """Both schedulers, one after the other, for each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(STREAMS)}, rate (default: all)")
    parser.add_argument("--pods", type=int, default=600)
    parser.add_argument("--mean", type=float, default=4.0, help="mean duration of a pod in seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=1000, help="of the part rate")
    parser.add_argument("--burst", type=int, default=1000)
    parser.add_argument("--scheduler", choices=SCHEDULERS, action="append")
    parser.add_argument("--save", metavar="FILE", help="append the results as lines of JSON")
    options = parser.parse_args()
    if "SLOTWISE_TEST_KUBERNETES" not in os.environ:
        if os.environ.get("SLOTWISE_TEST_SYSTEM"):
            sys.exit("benchmarks.live.kubernetes: no servers of Kubernetes here; `make kubernetes` builds them")
        again = [sys.executable, "-m", "benchmarks.live.kubernetes", *sys.argv[1:]]
        tool = str(ROOT / "tools/system/with-kubernetes")
        os.execve(tool, [tool, *again], {**os.environ, "SLOTWISE_TEST_SYSTEM": "1"})
    subprocess.run([sys.executable, "-m", "slotwise", "warm", "guarded"], check=True)
    module = real()
    api = module.RealKubernetes(Path(os.environ["SLOTWISE_TEST_KUBERNETES"]))
    api.apply_manifests(("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"))
    for part in options.parts or [*STREAMS, "rate"]:
        for name in options.scheduler or SCHEDULERS:
            if part == "rate":
                row = rate(api, module, name, options.nodes, options.burst)
            else:
                row = play(api, module, STREAMS[part](options.pods, options.mean, options.seed), name)
            tell(row, options.save)
    threading.Thread(target=api.close, daemon=True).start()


if __name__ == "__main__":
    main()
