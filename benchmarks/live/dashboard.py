"""What dashboards and forecasts cost: ten open streams beside a busy service, forecasts of 10,000 waiting jobs, the first load, and drawing 10,000 servers.

    tools/system/with-chromium python -m benchmarks.live.dashboard [--servers 1000] [--pages 10] [--rate 200] [--seconds 20] [--waiting 10000]

Decisions are measured in turns, without and with open streams (or forecasts), in one run of one service. The ratio of their 99th percentiles is what counts.
Traffic is what each stream receives. The browser part is left out where there is no Chromium.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

CLUSTER = """[cluster]
resources = ["cpu", "memory"]
[[cluster.servers]]
name = "node"
count = {servers}
capacity = [32, 128]
[[types]]
name = "small"
demand = [1, 4]
mean_service = {mean}
[[types]]
name = "large"
demand = [8, 16]
mean_service = {mean}
[policy]
name = "{policy}"
"""
BUCKET = re.compile(r'slotwise_decision_seconds_bucket\{le="([^"]+)"\} (\S+)')
FILLED = 0.8  # share of the CPUs that jobs hold on average


class Service:
    """A service on the simulated engine, in a folder of its own."""

    def __init__(self, folder: Path, servers: int, rate: float, policy: str = "best-fit") -> None:
        # half of the events are arrivals; a job holds 4.5 CPUs on average
        mean = FILLED * servers * 32 / 4.5 / (rate / 2)
        (folder / "cluster.toml").write_text(CLUSTER.format(servers=servers, mean=mean, policy=policy))
        environment = {**os.environ, "XDG_STATE_HOME": str(folder)}
        called = [sys.executable, "-m", "slotwise", "serve", "cluster.toml", "--engine", "simulated", "--port", "0"]
        called += ["--store", f"sqlite:///{folder}/store.db"]
        with open(folder / "log", "w") as log:
            self.process = subprocess.Popen(
                called, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("listening"):
            sys.exit((folder / "log").read_text())
        self.address = line.split()[-1]
        self.token = next(folder.rglob("token-*")).read_text().strip()

    def request(self, path: str, body: Any = None) -> Any:
        """Return an open answer."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        return urllib.request.urlopen(urllib.request.Request(self.address + path, data, headers), timeout=60)

    def buckets(self) -> dict[float, float]:
        """Return the histogram of decisions: counts up to each bound."""
        text = self.request("/metrics").read().decode()
        return {float(bound): float(count) for bound, count in BUCKET.findall(text)}

    def close(self) -> None:
        """End the service."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


class Load(threading.Thread):
    """Submissions at a steady rate."""

    def __init__(self, service: Service, rate: float) -> None:
        super().__init__(daemon=True)
        self.service, self.rate, self.over, self.sent = service, rate, threading.Event(), 0

    def run(self) -> None:
        began = time.monotonic()
        while not self.over.wait(0.05):
            due = int((time.monotonic() - began) * self.rate) - self.sent
            if due > 0:
                kinds = ["large" if (self.sent + n) % 2 else "small" for n in range(due)]
                jobs = [{"argv": ["x"], "type": kind} for kind in kinds]
                self.service.request("/v1/jobs/bulk", jobs).read()
                self.sent += due


class Page(threading.Thread):
    """A dashboard as the service sees it: the board, then the stream of changes. Counts what it receives."""

    def __init__(self, service: Service) -> None:
        super().__init__(daemon=True)
        self.service, self.first, self.received, self.events = service, 0, 0, 0
        self.over = threading.Event()

    def run(self) -> None:
        full = self.service.request("/v1/board").read()
        self.first = len(full)
        answer = self.service.request(f"/v1/board/changes?after={json.loads(full)['seq']}")
        while not self.over.is_set():
            line = answer.readline()
            self.received += len(line)
            self.events += line.startswith(b"event: delta")
        answer.close()


class Turn(NamedTuple):
    """Decisions in one turn."""

    p99: float
    decisions: float


def quantile(before: dict[float, float], after: dict[float, float], share: float = 0.99) -> Turn:
    """Return the quantile of what came between two histograms, with linear interpolation inside of a bucket."""
    counts = sorted((bound, after[bound] - before.get(bound, 0.0)) for bound in after)
    total = counts[-1][1]
    below, low = 0.0, 0.0
    for bound, upto in counts:
        if upto >= share * total:
            if bound == float("inf"):
                return Turn(low, total)
            return Turn(low + (bound - low) * (share * total - below) / max(1e-12, upto - below), total)
        below, low = upto, bound
    return Turn(low, total)


def streams(servers: int, pages: int, rate: float, seconds: float, turns: int) -> dict[str, Any]:
    """Measure decisions with and without open streams, in turns."""
    with tempfile.TemporaryDirectory() as name:
        service = Service(Path(name), servers, rate)
        load = Load(service, rate / 2)
        load.start()
        found: dict[str, list[Turn]] = {"without": [], "with": []}
        traffic: list[float] = []
        first = 0
        try:
            time.sleep(seconds)
            for _ in range(turns):
                before = service.buckets()
                time.sleep(seconds)
                found["without"].append(quantile(before, service.buckets()))
                opened = [Page(service) for _ in range(pages)]
                for page in opened:
                    page.start()
                time.sleep(1.0)
                counted, before = [page.received for page in opened], service.buckets()
                time.sleep(seconds)
                found["with"].append(quantile(before, service.buckets()))
                traffic += [(page.received - at) / seconds for page, at in zip(opened, counted, strict=True)]
                first = max(page.first for page in opened)
                for page in opened:
                    page.over.set()
                for page in opened:
                    page.join(30)
        finally:
            load.over.set()
            load.join(10)
            service.close()
    without, beside = ([turn.p99 for turn in found[name]] for name in ("without", "with"))
    return {
        "servers": servers,
        "pages": pages,
        "p99_ms_without": 1000 * sum(without) / turns,
        "p99_ms_with": 1000 * sum(beside) / turns,
        "ratio": sum(beside) / sum(without),
        "ratios": [round(a / b, 3) for a, b in zip(beside, without, strict=True)],
        "batches": sum(turn.decisions for turns_ in found.values() for turn in turns_),
        "kilobytes_a_second_and_page": max(traffic) / 1000,
        "board_kilobytes": first / 1000,
    }


class Asker(threading.Thread):
    """A client that asks for all forecasts again and again."""

    def __init__(self, service: Service) -> None:
        super().__init__(daemon=True)
        self.service, self.over = service, threading.Event()
        self.answers: list[dict[str, Any]] = []

    def run(self) -> None:
        while not self.over.wait(0.2):
            self.answers.append(json.load(self.service.request("/v1/forecasts?limit=1")))


def _first_forecast(service: Service) -> None:
    """Wait for the first look ahead: its process starts, follows the journal and compiles."""
    end = time.monotonic() + 300
    while not json.load(service.request("/v1/forecasts?limit=1")).get("runs"):
        if time.monotonic() > end:
            sys.exit("no forecast within five minutes")
        time.sleep(1.0)


def foreseeing(servers: int, waiting: int, rate: float, seconds: float, turns: int) -> dict[str, Any]:
    """Measure decisions without and with forecasts of many waiting jobs, in turns."""
    with tempfile.TemporaryDirectory() as name:
        service = Service(Path(name), servers, rate)
        load = Load(service, rate / 2)
        load.start()
        found: dict[str, list[Turn]] = {"without": [], "with": []}
        answers: list[dict[str, Any]] = []
        try:
            time.sleep(seconds)  # jobs must have completed before anything is said
            needs = {"argv": ["x"], "type": "large", "array": f"1-{waiting + 4 * servers}"}
            service.request("/v1/jobs", needs).read()
            _first_forecast(service)
            for _ in range(turns):
                before = service.buckets()
                time.sleep(seconds)
                found["without"].append(quantile(before, service.buckets()))
                asker, before = Asker(service), service.buckets()
                asker.start()
                time.sleep(seconds)
                found["with"].append(quantile(before, service.buckets()))
                asker.over.set()
                asker.join(30)
                answers += asker.answers
        finally:
            load.over.set()
            load.join(10)
            service.close()
    without, beside = ([turn.p99 for turn in found[name]] for name in ("without", "with"))
    told = [answer for answer in answers if answer.get("runs")]
    return {
        "servers": servers,
        "waiting": max((sum(queue["waiting"] for queue in answer["queues"]) for answer in told), default=0),
        "p99_ms_without": 1000 * sum(without) / turns,
        "p99_ms_with": 1000 * sum(beside) / turns,
        "ratio": sum(beside) / sum(without),
        "ratios": [round(a / b, 3) for a, b in zip(beside, without, strict=True)],
        "answers": len(answers),
        "looks_ahead": len({answer["refreshed"] for answer in told}),
        "seconds_of_runs": max((answer["seconds"] for answer in told), default=None),
        "runs": min((answer["runs"] for answer in told), default=None),
    }


def drawing(servers: int) -> dict[str, Any] | None:
    """Measure the first load and the drawing of many servers in Chromium."""
    browser = os.environ.get("SLOTWISE_TEST_BROWSER")
    if not browser:
        return None
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        service = Service(Path(name), servers, 20.0)
        try:
            path = json.load(service.request("/v1/login-codes", {}))["path"]
            chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            page = chromium.new_page(viewport={"width": 1280, "height": 860})
            loaded: list[int] = []
            page.on("response", lambda answer: loaded.append(int(answer.headers.get("content-length", 0))))
            page.goto(service.address + path)
            page.wait_for_selector("body[data-ready]", timeout=120_000)
            times = [page.evaluate(REDRAW) for _ in range(5)]
            chromium.close()
        finally:
            service.close()
    return {
        "servers": servers,
        "first_load_kilobytes": sum(loaded) / 1000,
        "draw_ms": sorted(times)[2],
        "draws_ms": times,
    }


REDRAW = """async () => {
  const select = document.querySelector('[aria-label="Resource"]').querySelectorAll("button");
  const other = [...select].find((button) => button.getAttribute("aria-pressed") === "false");
  const began = performance.now();
  other.click();
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now() - began;
}"""


def main() -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, default=1000)
    parser.add_argument("--pages", type=int, default=10)
    parser.add_argument("--rate", type=float, default=200.0, help="events a second: half of them arrivals")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--waiting", type=int, default=10_000, help="jobs to forecast; 0: leave forecasts out")
    parser.add_argument("--draw", type=int, default=10_000, help="servers to draw; 0: leave the browser out")
    given = parser.parse_args()
    drawn = drawing(given.draw) if given.draw else None
    found = streams(given.servers, given.pages, given.rate, given.seconds, given.turns) if given.pages else None
    ahead = None
    if given.waiting:
        ahead = foreseeing(given.servers, given.waiting, given.rate, given.seconds, given.turns)
    print(json.dumps({"streams": found, "forecasts": ahead, "drawing": drawn}, indent=1))


if __name__ == "__main__":
    main()
