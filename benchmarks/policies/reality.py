"""`python -m benchmarks.policies.reality`: every log and cloud trace beside the project, at four loads, with the types that a user gets by default.

Each point is run at five loads within 0.4 %, and its figure is the mean over them. One load of one log says little: a single large job
may make a third of the mean queue. The mean queue of each policy is compared with the best of the other policies that know no durations.
`guarded` uses users' estimates where a trace has them, as it does by default; `guarded-blind` never does. The longest wait of `guarded` is compared with that under
EASY with the same estimates; without estimates, and for `guarded-blind`, with that under EASY with the true durations.

Clusters are those of ../shared/traces/README.md; where it names none, as many equal servers as give the load.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.policies import tables, traces
from benchmarks.policies.cache import Cache
from benchmarks.policies.running import KNOWS, POLICIES, Runner
from benchmarks.policies.suite import Entry
from slotwise.model import Scenario
from slotwise.workloads.traces import import_trace, write_trace
from slotwise.workloads.traces.tools import scale

LOADS = (0.80, 0.86, 0.90, 0.95)
NEAR = (0.996, 0.998, 1.0, 1.002, 1.004)
# with these loads each point is run while a change is tried out
QUICK_NEAR = (1.0,)
# g16: its clocks ring billions of times where whole machines are requested. nmsr: rates and mean service times of a log are not known before it.
NOT_HERE = ("g16", "nmsr", "guarded-durations")
RIVALS = tuple(policy for policy in POLICIES if policy not in (*NOT_HERE, *KNOWS, "guarded"))
SMALL_QUEUE = 5.0  # mean queues below this many jobs are compared with SLACK jobs allowed, as in the suite
SLACK = 2.0

MACHINES = {
    "kth": ("kth_sp2/KTH-SP2.swf.gz", 100.0),
    "nasa": ("nasa_ipsc1993/NASA-iPSC-1993-3.1-cln.swf.gz", 128.0),
    "atlas": ("llnl_atlas/LLNL-Atlas.swf.gz", 9216.0),
    "blue": ("sdsc_blue/SDSC-BLUE-fortnights.swf.gz", 1152.0),
    "curie": ("cea_curie/CEA-Curie-sample.swf.gz", 93312.0),
}
CLOUDS = {one.name: one for one in traces.REAL if one.name != "nasa-ipsc1993"} | {
    "philly": traces.Real(
        "philly",
        "csv",
        "philly/philly.csv.gz",
        [(30, {"gpu": 8}), (42, {"gpu": 2})],
        options={"map": {"demand.gpu": "gpu"}},
    )
}


class Point(NamedTuple):
    """A trace at a load: for each policy the mean queue and the longest wait, means over the loads near it."""

    name: str
    load: float
    queue: dict[str, float]
    longest: dict[str, float]

    def ratio(self, policy: str, rivals: Sequence[str]) -> float:
        """Return the mean queue of a policy beside the best of the rivals."""
        return self.queue[policy] / min(self.queue[rival] for rival in rivals if rival in self.queue)

    def is_within(self, policy: str, rivals: Sequence[str], factor: float) -> bool:
        """Return whether the mean queue is at most so many times the best of the rivals."""
        best = min(self.queue[rival] for rival in rivals if rival in self.queue)
        return self.queue[policy] <= factor * best + (SLACK if best < SMALL_QUEUE else 0.0)

    def wait_ratio(self, policy: str, other: str) -> float:
        """Return the longest wait of a policy beside that of another; nan if one of them was not run."""
        if policy not in self.longest or not self.longest.get(other):
            return math.nan
        return self.longest[policy] / self.longest[other]


def names() -> list[str]:
    """All traces, those that are not beside the project too."""
    return [*MACHINES, "google2011", *CLOUDS]


def is_there(name: str) -> bool:
    """Return whether a trace lies beside the project."""
    path = (
        MACHINES[name][0] if name in MACHINES else CLOUDS[name].path if name in CLOUDS else "google2011/task_events"
    )
    return (traces.SHARED / path).exists()


def log(name: str, load: float) -> Scenario:
    """A log on its machine, its arrivals closer together or further apart for this load over the whole log; jobs that are too large are left out."""
    path, processors = MACHINES[name]
    trace, _ = import_trace("swf", [traces.SHARED / path], skip_bad=True)
    trace = trace.with_frame(trace.frame.filter(trace.demands()[:, 0] <= processors), "jobs that fit")
    now = float(trace.duration @ trace.demands()[:, 0]) / (processors * trace.span)
    out = Path(tempfile.gettempdir()) / f"slotwise-real-{name}-{load}.parquet"
    write_trace(scale(trace, now / load), out)
    return traces.scenario(str(out), [(1, {"cpu": processors})], typing="waste-bounded")


def at_load(name: str, load: float) -> Scenario:
    """A trace on its cluster at this load, with default types."""
    if name in MACHINES:
        return log(name, load)
    made = traces.prepared(CLOUDS[name], load) if name in CLOUDS else traces.google_at(load)
    default = made.workload.model_copy(update={"typing": type(made.workload.typing)()})
    return made.model_copy(update={"workload": default})


def entries(name: str, load: float, near: Sequence[float]) -> Iterator[Entry]:
    """The runs of one point."""
    for factor in near:
        this = round(load * factor, 6)
        yield Entry(f"reality-{name}-{this}", partial(at_load, name, this), "real", runs=1)


def point(runner: Runner, name: str, load: float, near: Sequence[float], policies: Sequence[str]) -> Point:
    """Run one point."""
    rows = [runner.row(entry, policies) for entry in entries(name, load, near)]
    queue, longest = {}, {}
    for policy in policies:
        found = [row.figures[policy] for row in rows]
        if all(figures is not None for figures in found):
            queue[policy] = sum(f.mean_queue for f in found if f is not None) / len(found)
            longest[policy] = sum(f.longest_wait for f in found if f is not None) / len(found)
    return Point(name, load, queue, longest)


def geometric(values: Sequence[float]) -> float:
    """Return the geometric mean; nan without values."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def table(points: Sequence[Point], rivals: Sequence[str]) -> list[list[str]]:
    """One row a point."""
    rows = [
        [
            "trace",
            "load",
            "guarded",
            "best other",
            "its queue",
            "ratio",
            "longest / EASY's",
            "blind",
            "ratio",
            "longest / EASY's",
        ]
    ]
    for p in points:
        best = min((rival for rival in rivals if rival in p.queue), key=p.queue.__getitem__)
        rows.append(
            [
                p.name,
                f"{p.load:.2f}",
                tables.number(p.queue["guarded"]),
                best,
                tables.number(p.queue[best]),
                f"{p.ratio('guarded', rivals):.2f}",
                tables.number(
                    p.wait_ratio("guarded", "easy-estimates" if "easy-estimates" in p.queue else "easy-backfill")
                ),
                tables.number(p.queue.get("guarded-blind", math.nan)),
                tables.number(p.ratio("guarded-blind", rivals)) if "guarded-blind" in p.queue else "-",
                tables.number(p.wait_ratio("guarded-blind", "easy-backfill")),
            ]
        )
    return rows


def summary(points: Sequence[Point], policies: Sequence[str], rivals: Sequence[str]) -> list[list[str]]:
    """One row a policy: its mean queue beside the best of the other policies that know no durations."""
    rows = [["policy", "points", "<= 1.15", "<= 1.5", "geometric mean", "worst", "on"]]
    for policy in policies:
        others = [rival for rival in (*rivals, "guarded") if rival != policy] if policy != "guarded" else rivals
        mine = [p for p in points if policy in p.queue]
        if not mine:
            continue
        worst = max(mine, key=lambda p: p.ratio(policy, others))
        rows.append(
            [
                policy,
                str(len(mine)),
                *(str(sum(p.is_within(policy, others, factor) for p in mine)) for factor in (1.15, 1.5)),
                f"{geometric([p.ratio(policy, others) for p in mine]):.3f}",
                f"{worst.ratio(policy, others):.2f}",
                f"{worst.name} {worst.load:.2f}",
            ]
        )
    return rows


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policies.reality", description=__doc__)
    parser.add_argument("--traces", default=",".join(names()), help="names, with commas between")
    parser.add_argument("--rivals", default=",".join(RIVALS), help="policies that guarded is compared with")
    parser.add_argument("--others", default="guarded-blind,easy-backfill,easy-estimates", help="further policies")
    parser.add_argument("--quick", action="store_true", help="one load a point instead of five")
    parser.add_argument("--threads", type=int, default=2, help="runs at the same time")
    parser.add_argument("--markdown", type=Path, help="write the results to this file")
    arguments = parser.parse_args()
    rivals = arguments.rivals.split(",")
    policies = ["guarded", *rivals, *(other for other in arguments.others.split(",") if other)]
    runner = Runner(events=0, runs=1, threads=arguments.threads, cache=Cache())
    points = []
    for name in arguments.traces.split(","):
        if not is_there(name):
            print(f"{name} is not beside the project: skipped", file=sys.stderr)
            continue
        for load in LOADS:
            points.append(point(runner, name, load, QUICK_NEAR if arguments.quick else NEAR, policies))
            print("  ".join(table(points[-1:], rivals)[1]), file=sys.stderr, flush=True)
    found = (table(points, rivals), summary(points, policies, rivals))
    print("\n".join(line for part in found for line in [*tables.aligned(part).splitlines(), ""]))
    if arguments.markdown:
        asked = " ".join(sys.argv[1:])
        lines = [f"Written by `python -m benchmarks.policies.reality {asked}`.", ""]
        arguments.markdown.write_text(
            "\n".join([*lines, *(line for part in found for line in [*tables.markdown(part), ""])])
        )


if __name__ == "__main__":
    main()
