"""`python -m benchmarks.policies --google`: how many servers the Google window needs for the same mean wait.

Each policy gets the fewest unit servers with which the mean wait is at most the target; the waits of jobs still waiting
at the end count. The number is found by bisection, each number of servers run once on the whole window. `algorithm1`
reserves what the paper's rounded types ask for, with the paper's parameters for this trace and with the defaults; all
other policies pack what jobs really ask for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.policies.running import figures_of
from benchmarks.policies.traces import UNIT, held, scenario
from slotwise.simulation.run.choice import Choice
from slotwise.simulation.run.replication import Task, replicate
from slotwise.simulation.run.workload import jobs_of
from slotwise.workloads.tracejobs import open_trace

TARGETS = (1.0, 10.0, 60.0, 600.0)  # mean waits in seconds; a job runs for 1,670 on the average
CONTESTANTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("algorithm1, as in the paper", "algorithm1", {"z": 0.002, "stall_cap": 0.015}),
    ("algorithm1", "algorithm1", {}),
    ("best-fit", "best-fit", {}),
    ("guarded", "guarded", {}),
)


class Waits:
    """Mean waits by number of servers, each found once."""

    def __init__(self, trace: Path, policy: str, options: dict[str, Any]) -> None:
        self.trace, self.policy, self.options = str(trace), policy, options
        self.known: dict[int, float] = {}

    def __call__(self, servers: int) -> float:
        if servers not in self.known:
            where = scenario(self.trace, [(servers, UNIT)])
            jobs = jobs_of(where)
            run = replicate(Task(where, jobs, Choice(self.policy, self.options)))
            self.known[servers] = figures_of(self.policy, jobs, [run], True, [run]).mean_wait
        return self.known[servers]

    def fewest(self, target: float, low: int) -> int:
        """The fewest servers above `low` that meet the target, if more never do worse."""
        high = low + 64
        while self(high) > target:
            low, high = high, high + 128
        for servers, wait in self.known.items():
            if wait <= target:
                high = min(high, servers)
            elif servers < high:
                low = max(low, servers)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self(middle) <= target else (middle, high)
        return high


def google(trace: Path, targets: tuple[float, ...] = TARGETS) -> list[str]:
    """The lines of a Markdown table."""
    load = max(held(open_trace(str(trace), None, 1)).values())
    lines = [
        f"Servers that the Google window needs (its jobs hold {load:.0f} at once, on the average after the warm-up).",
        "",
        "| policy | " + " | ".join(f"mean wait {target:g} s" for target in targets) + " |",
        "|---|" + "---|" * len(targets),
    ]
    paper: dict[float, int] = {}
    for name, policy, options in CONTESTANTS:
        waits, cells = Waits(trace, policy, options), []
        for target in targets:
            servers = waits.fewest(target, int(0.8 * load))
            first = paper.setdefault(target, servers)
            less = "" if first == servers else f" ({servers / first - 1:+.0%})"
            cells.append(f"{servers}{less}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines
