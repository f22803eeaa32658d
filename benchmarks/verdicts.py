"""`python -m benchmarks.verdicts`: how often the verdict on stability is wrong, and how often intervals hold.

Random workloads: one to three classes of servers, one or two resources, one to five types whose mean service times
differ by up to 100 to 1, Poisson or log-normal arrivals. Stable ones have a load of .5 to .98 of the capacity region
and a policy that is stable there: `guarded`, or, with one type on unit slots, `fifo`. Unstable ones have a load of 1.02
to 1.3, or are best-fit's trap, in which it diverges inside the region. Everything else is as `simulate` does it by
default, the length of runs included. But the verdict is judged from the runs alone: theory, which knows that a load
above 1 cannot be carried, is not asked.

Of stable workloads the mean queue and the p95 wait are compared with those of other runs, with other seeds, each seven
times as long as one of the answer, eight at least. Enough runs are made to tell, with a confidence of 95 %, on which
side of the answer's interval the truth lies. Together they are at most `--longer` times as long as the answer.

All that is measured is kept in a file as it comes, and a second call goes on where the first one ended.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rows import Rows
from slotwise.model import Scenario, parse_scenario
from slotwise.simulation.judge.drift import Stability
from slotwise.simulation.judge.intervals import mean_interval
from slotwise.simulation.judge.judging import judge
from slotwise.simulation.judge.statistics import Interval
from slotwise.simulation.measure.measurements import Measurements
from slotwise.simulation.result import Result
from slotwise.simulation.run import sequential
from slotwise.simulation.run.choice import Choice
from slotwise.simulation.run.engines import Workers
from slotwise.simulation.run.replication import Task, replicate
from slotwise.simulation.run.workload import jobs_of
from slotwise.theory.bounds import NOTHING

TRUTH = 10_000  # added to the seed of a workload for its long runs
PIECE = 7  # one of the long runs is so many times as long as one run of the answer
FIRST = 8  # so many of them at first; then twice as many, and so on
RESOLUTION = 0.008  # of the histograms of waits


def tables(rng: np.random.Generator, intensity: float, seed: int) -> dict[str, Any]:
    """A random cluster with random types at this intensity."""
    resources = [f"r{n}" for n in range(rng.integers(1, 3))]
    servers = [
        {
            "name": f"class{n}",
            "count": int(rng.integers(1, 9)),
            "capacity": [int(rng.integers(6, 25)) for _ in resources],
        }
        for n in range(rng.integers(1, 4))
    ]
    least = [min(server["capacity"][r] for server in servers) for r in range(len(resources))]  # type: ignore[index]
    ratio = float(rng.choice([1, 5, 25, 100]))
    types: list[dict[str, Any]] = [
        {
            "name": f"type{n}",
            "demand": [int(rng.integers(1, max(2, least[r] // 2 + 1))) for r in range(len(resources))],
            "rate": float(rng.uniform(0.2, 1.0)),
            "mean_service": float(ratio ** rng.random()),
        }
        for n in range(rng.integers(1, 6))
    ]
    for one in types:  # as much work of each, about, so that long jobs do not drown short ones
        one["rate"] /= one["mean_service"]
    law = {"law": "poisson"} if rng.random() < 0.5 else {"law": "lognormal", "sigma": 1.0}
    return {
        "cluster": {"resources": resources, "servers": servers},
        "types": types,
        "workload": {"intensity": intensity, "arrivals": law},
        "run": {"seed": seed},
    }


def slots(rng: np.random.Generator, intensity: float, seed: int) -> dict[str, Any]:
    """n slots and one type."""
    law = {"law": "poisson"} if rng.random() < 0.5 else {"law": "lognormal", "sigma": 1.0}
    service = [{"law": "exponential"}, {"law": "deterministic"}, {"law": "hyperexponential", "scv": 4}]
    servers = [{"name": "slot", "count": int(rng.choice([1, 4, 20, 100])), "capacity": [1]}]
    return {
        "cluster": {"resources": ["slots"], "servers": servers},
        "types": [{"name": "job", "demand": [1], "rate": 1.0, "mean_service": float(rng.uniform(0.1, 10))}],
        "workload": {"intensity": intensity, "arrivals": law, "service": service[rng.integers(3)]},
        "run": {"seed": seed},
    }


def trap(rng: np.random.Generator, intensity: float, seed: int) -> dict[str, Any]:
    """Best-fit's trap: fives and twos on tens."""
    return {
        "cluster": {"resources": ["units"], "servers": [{"name": "ten", "count": 20, "capacity": [10]}]},
        "types": [
            {"name": "five", "demand": [5], "rate": 2 * float(rng.uniform(0.8, 1.2)), "mean_service": 1.0},
            {"name": "two", "demand": [2], "rate": 5.0, "mean_service": 1.0},
        ],
        "workload": {"intensity": intensity},
        "run": {"seed": seed},
    }


def stable_case(n: int, seed: int) -> tuple[Scenario, Choice]:
    """The n-th stable workload."""
    rng = np.random.default_rng([seed, 0, n])
    intensity = float(rng.uniform(0.5, 0.98))
    if n % 4 == 3:
        return parse_scenario(slots(rng, intensity, seed + n)), Choice("fifo")
    return parse_scenario(tables(rng, intensity, seed + n)), Choice("guarded")


def unstable_case(n: int, seed: int) -> tuple[Scenario, Choice]:
    """The n-th unstable workload."""
    rng = np.random.default_rng([seed, 1, n])
    if n % 10 == 9:
        return parse_scenario(trap(rng, float(rng.uniform(0.97, 0.99)), seed + n)), Choice("best-fit")
    intensity = float(rng.uniform(1.02, 1.3))
    if n % 4 == 3:
        return parse_scenario(slots(rng, intensity, seed + n)), Choice("fifo")
    return parse_scenario(tables(rng, intensity, seed + n)), Choice(
        str(rng.choice(["guarded", "best-fit", "fifo"]))
    )


def answer(scenario: Scenario, choice: Choice) -> tuple[Task, Result, Stability]:
    """What `simulate` does by default, on one thread; the verdict from the runs alone."""
    task = Task(scenario, jobs_of(scenario), choice)

    def result_of(_: int, runs: tuple[Measurements, ...]) -> Result:
        return Result(scenario, choice, task.jobs.types, runs, task.jobs.mean_in_service, NOTHING)

    runs = sequential.run_until_clear([task], Workers(workers=1), None, result_of).runs[0]
    verdict = judge(runs, task.jobs.types, impossible=False, is_trace=False).verdict
    return task, result_of(0, runs), verdict


def answered(case: tuple[Scenario, Choice]) -> dict[str, Any]:
    """One workload: the verdict, and the intervals."""
    begun = time.perf_counter()
    _, result, verdict = answer(*case)
    return {
        "policy": result.policy,
        "intensity": case[0].workload.intensity,
        "verdict": str(verdict),
        "runs": len(result.runs),
        "events": sum(one.events for one in result.runs),
        "simulated": result.runs[0].ended,
        "queues": [one.mean_queue for one in result.runs],
        "mean_queue": result.mean_queue,
        "p95_wait": result.wait_interval("p95"),
        "seconds": time.perf_counter() - begun,
    }


def truth(case: tuple[Scenario, Choice], row: Mapping[str, Any], longer: float) -> dict[str, Any]:
    """The same figures from other and longer runs: until it is clear whether the intervals of the answer hold them, or the runs together
    are so many times as long as those of the answer."""
    begun = time.perf_counter()
    scenario = case[0].model_copy(update={"run": case[0].run.model_copy(update={"seed": case[0].run.seed + TRUTH})})
    task = Task(scenario, jobs_of(scenario), case[1], events=PIECE * row["events"] // row["runs"])
    most = max(FIRST, math.ceil(longer * row["runs"] / PIECE))
    runs: list[Measurements] = []
    pieces = FIRST
    while True:
        pieces = min(pieces, most)
        runs += [replicate(replace(task, replication=n)) for n in range(len(runs), pieces)]
        whole = Result(case[0], case[1], task.jobs.types, tuple(runs), task.jobs.mean_in_service, NOTHING)
        queue, p95 = mean_interval([run.mean_queue for run in runs]), whole.wait_interval("p95")
        if pieces == most or (clear(row["mean_queue"], queue) and clear(row["p95_wait"], p95)):
            break
        pieces *= 2
    events = sum(run.events for run in runs)
    return {"events": events, "mean_queue": queue, "p95_wait": p95, "seconds": time.perf_counter() - begun}


def clear(answer: Sequence[float | None], truth: Interval) -> bool:
    """Whether all that may be true lies within the interval of the answer, or all of it without."""
    _, low, high = answer
    if low is None or high is None or truth.low is None or truth.high is None:
        return True
    low, high = low * (1 - RESOLUTION), high * (1 + RESOLUTION)
    return low <= truth.low <= truth.high <= high or truth.high < low or truth.low > high


def holds(low: float | None, high: float | None, true: float | None) -> bool | None:
    """Whether an interval holds the truth, as far as histograms resolve it (0.8 %)."""
    if low is None or high is None or true is None:
        return None
    return low * (1 - RESOLUTION) <= true <= high * (1 + RESOLUTION) or math.isclose(low, true)


def told(kind: str, rows: Sequence[dict[str, Any]]) -> str:
    """A line on the verdicts of workloads of one kind."""
    counts = Counter(row["verdict"] for row in rows)
    shares = ", ".join(f"{verdict} {count / len(rows):.1%}" for verdict, count in counts.most_common())
    return f"{kind}, {len(rows)} workloads: {shares}"


def coverage(answers: Rows, truths: Rows) -> Iterator[str]:
    """A line on the intervals of each figure."""
    known = [(answers.rows[name], true) for name, true in truths.rows.items() if name in answers.rows]
    known = [(row, true) for row, true in known if row["verdict"] == Stability.STABLE]
    for figure, name in (("mean_queue", "mean queue"), ("p95_wait", "p95 wait")):
        all_ = [holds(row[figure][1], row[figure][2], true[figure][0]) for row, true in known]
        held = [one for one in all_ if one is not None]
        if held:
            line = f"95 % intervals of the {name} hold the truth in {np.mean(held):.1%} of {len(held)}"
            # in some scenarios nearly no job waits: an interval from 0 to 0 proves nothing
            wide = [
                one for one, (row, _) in zip(all_, known, strict=True) if one is not None and row[figure][2] > 0
            ]
            yield line + (f", {np.mean(wide):.1%} of the {len(wide)} that are wider than 0" if wide else "")


def main(arguments: list[str] | None = None) -> None:
    """Run it and print rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stable", type=int, default=200, metavar="N")
    parser.add_argument("--unstable", type=int, default=100, metavar="N")
    parser.add_argument("--longer", type=float, default=20.0, metavar="TIMES", help="long runs at most; 0: none")
    parser.add_argument("--seed", type=int, default=2, help="1 is the set that the limits were tuned on")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--keep",
        type=Path,
        default=Path("build/verdicts"),
        metavar="DIR",
        help="for what is measured; it is gone on with",
    )
    given = parser.parse_args(arguments)
    answers = Rows(given.keep / f"answers-{given.seed}.jsonl")
    truths = Rows(given.keep / f"truths-{given.seed}.jsonl")
    begun = time.perf_counter()
    cases = {f"unstable-{n}": unstable_case(n, given.seed) for n in range(given.unstable)}
    cases |= {f"stable-{n}": stable_case(n, given.seed) for n in range(given.stable)}

    with ThreadPoolExecutor(given.threads) as pool:
        missing = {pool.submit(answered, cases[name]): name for name in cases if name not in answers.rows}
        for one in as_completed(missing):
            answers.add(missing[one], one.result())
        settled = [
            name
            for name in cases
            if name.startswith("stable") and answers.rows[name]["verdict"] == Stability.STABLE and given.longer
        ]
        missing = {
            pool.submit(truth, cases[name], answers.rows[name], given.longer): name
            for name in settled
            if name not in truths.rows
        }
        for one in as_completed(missing):
            truths.add(missing[one], one.result())
    for kind in ("stable", "unstable"):
        rows = [answers.rows[name] for name in cases if name.startswith(kind)]
        if rows:
            print(told(kind, rows))
    for line in coverage(answers, truths):
        print(line)
    print(f"{time.perf_counter() - begun:,.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
