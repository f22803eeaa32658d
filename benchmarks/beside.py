"""This tree beside an earlier commit, in one run: `python -m benchmarks.beside COMMIT [NAME]...`.

Each has a process of its own, and the two take short turns, so that whatever else the machine does meets both alike. Of a process the
least time of its turns counts: others only ever slow things down. Where a process has its memory and code makes a difference of up
to 20 % that stays until it ends, so a row has several pairs of processes, and the median over them counts. Only what both
versions offer is called: `slotwise.simulate` and the verbs of `Scheduler`; `apply`, where a version has it, is held against the verbs
of one that has not. A ratio above 1 says that this tree is slower.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import logs

ROOT = Path(__file__).resolve().parents[1]
PAIRS = 5
TURNS = 5
LIMIT = 1.05
APPLY_LIMIT = 1.15


def rows() -> dict[str, dict[str, Any]]:
    """What is measured, by name."""
    found: dict[str, dict[str, Any]] = {}
    for policy in ("algorithm1", "m14", "guarded", "best-fit", "first-fit", "tetris", "random-fit", "g16"):
        for servers in (20, 1_000, 100_000):
            if servers < 100_000 or policy in ("algorithm1", "best-fit", "first-fit", "guarded"):
                found[f"table1: {policy}, {servers:,} servers"] = {"policy": policy, "servers": servers}
    for policy in ("algorithm1", "guarded", "best-fit"):
        for types, resources in ((3, 2), (10, 2), (30, 2), (100, 2), (10, 1), (10, 4)):
            name = f"growth: {policy}, {types} types, {resources} resources"
            found[name] = {"policy": policy, "types": types, "resources": resources}
    for name in logs.names():
        found[f"log: guarded, {name}, exact sizes"] = {"policy": "guarded", "log": name}
    for policy in ("algorithm1", "best-fit", "guarded"):
        found[f"from Python: {policy}"] = {"policy": policy, "python": True}
    return found


def simulating(what: dict[str, Any]) -> Callable[[], float]:
    """Seconds of an event in the simulator."""
    import slotwise

    where: Any
    if "log" in what:
        where = slotwise.parse_scenario(json.loads(logs.path_of(what["log"]).read_text()))
        return lambda: _per_event(slotwise.simulate(where, what["policy"], workers=1))
    if "types" in what:
        from benchmarks.growth import scenario

        where = scenario(what["types"], what["resources"], 20_000, 1)
        return lambda: _per_event(slotwise.simulate(where, what["policy"], workers=1))
    count = {20: 400_000, 1_000: 200_000, 100_000: 600_000}[what["servers"]]
    settings = [f"run.events={count}", "run.replications=1", f"cluster.servers.standard.count={what['servers']}"]
    return lambda: _per_event(slotwise.simulate("table1", what["policy"], overrides=settings, workers=1))


def _per_event(result: Any) -> float:
    return float(result.runs[0].seconds / result.runs[0].events)


def from_python(policy: str) -> Callable[[], float]:
    """Seconds of a decision through `Scheduler`: by `apply` where there is one, else by the verbs."""
    from slotwise import Scheduler, load_scenario

    scenario = load_scenario("table1", ["cluster.servers.standard.count=1000"])
    scheduler: Any = Scheduler(scenario.cluster, scenario.types, policy)
    names, rng = [job_type.name for job_type in scenario.types], np.random.default_rng(1)
    kinds = rng.choice(len(names), 6_000, p=[2 / 15, 11 / 15, 2 / 15]).tolist()
    running = [p.job for i in range(4_450) for p in scheduler.submit(i, names[kinds[i]])]
    numbers = iter(range(4_450, 10**9))
    if hasattr(scheduler, "apply"):
        from slotwise.scheduling import Complete, Submit

        def complete(job: Any) -> Any:
            return scheduler.apply(Complete(job, 0.0)).placements

        def submit(job: Any, name: str) -> Any:
            return scheduler.apply(Submit(job, name, 0.0)).placements
    else:
        complete, submit = scheduler.complete, scheduler.submit

    def turn() -> float:
        picks = rng.random(1_000).tolist()
        begun = time.perf_counter()
        for k, pick in enumerate(picks):
            place = int(pick * len(running))
            running[place], running[-1] = running[-1], running[place]
            running.extend([p.job for p in complete(running.pop())])
            running.extend([p.job for p in submit(next(numbers), names[kinds[k]])])
        return (time.perf_counter() - begun) / (2 * len(picks))

    return turn


def work() -> None:
    """A worker: it reads what to measure, and says how long that took."""
    known, turns = rows(), {}
    for line in sys.stdin:
        name = line.strip()
        if name not in turns:
            what = known[name]
            turns[name] = from_python(what["policy"]) if "python" in what else simulating(what)
        print(json.dumps(turns[name]()), flush=True)


class Worker:
    """A process that measures one version."""

    def __init__(self, source: Path) -> None:
        environment = {"PYTHONPATH": f"{source}:{ROOT}", "PATH": "/usr/bin:/bin"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.beside", "--worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=ROOT,
        )

    def measure(self, name: str) -> float:
        """One turn, in seconds."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        if not (answer := self.process.stdout.readline()):
            raise SystemExit(f"{name}: a worker failed; what it said stands above")
        return float(json.loads(answer))

    def close(self) -> None:
        """No more."""
        self.process.communicate()


def sources_of(commit: str) -> Path:
    """The package as it was at the commit, in build/; what is compiled of it stays there."""
    name = subprocess.run(
        ["git", "rev-parse", "--short", commit], cwd=ROOT, check=True, capture_output=True, text=True
    )
    tree = ROOT / "build" / f"beside-{name.stdout.strip()}"
    if not tree.exists():
        archive = subprocess.run(
            ["git", "archive", commit, "src"], cwd=ROOT, check=True, capture_output=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(tree, filter="data")
    return tree / "src"


def measure_pair(sources: tuple[Path, Path], name: str, turns: int) -> list[float]:
    """The least time of each of two new processes that take turns."""
    workers = [Worker(source) for source in sources]
    for worker in workers:
        worker.measure(name)
    times = [[worker.measure(name) for worker in workers] for _ in range(turns)]
    for worker in workers:
        worker.close()
    return [min(column) for column in zip(*times, strict=True)]


def compare(commit: str, names: list[str], pairs: int, turns: int) -> int:
    """A line for each row; 1 where one is slower than it may be."""
    sources, missed = (sources_of(commit), ROOT / "src"), 0
    for name in names:
        if "log" in (what := rows()[name]):
            logs.prepare(what["log"])
        # who compiles has each kernel on a page of its own, and runs a fifth slower than who finds all of them in the cache
        for source in sources:
            first = Worker(source)
            first.measure(name)
            first.close()
        then, now = np.median([measure_pair(sources, name, turns) for _ in range(pairs)], axis=0)
        limit = APPLY_LIMIT if name.startswith("from Python") else LIMIT
        missed += now / then > limit
        verdict = "" if now / then <= limit else f"  more than {limit}"
        print(
            f"{name:45} {now / then:6.3f}   {then * 1e9:9.0f} ns before, {now * 1e9:9.0f} ns now{verdict}",
            flush=True,
        )
    print(f"{missed} of {len(names)} rows are slower than they may be")
    return int(missed > 0)


def main() -> int:
    """Compare, or be one of the two workers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=__doc__)
    parser.add_argument("commit", nargs="?", help="the commit to compare with")
    parser.add_argument("names", nargs="*", metavar="NAME", help="rows whose names contain this")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="pairs of processes for each row")
    parser.add_argument("--turns", type=int, default=TURNS, help="turns of each process")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work()
        return 0
    if given.commit is None:
        parser.error("say which commit to compare with")
    names = [name for name in rows() if not given.names or any(part in name for part in given.names)]
    return compare(given.commit, names, given.pairs, given.turns)


if __name__ == "__main__":
    sys.exit(main())
