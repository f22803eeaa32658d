"""What is replayed: real logs on their machines, and simulated days, each as columns of jobs with a cluster and types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.policies import traces
from benchmarks.policies.families import TYPES, cloud
from benchmarks.policies.reality import MACHINES
from slotwise.foresee.arrivals import DAY
from slotwise.model import Cluster, JobType, Scenario, ServerClass, TypeMaking
from slotwise.workloads.tracejobs import jobs_of_trace
from slotwise.workloads.traces import Trace, import_trace, read_trace
from slotwise.workloads.traces.tools import scale

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
SIMULATED_LOAD = 0.8  # of the scarcest resource; with 0.86 most jobs waited for days


@dataclass(frozen=True, eq=False)
class Log:
    """Jobs in order of arrival, and where they run."""

    name: str
    cluster: Cluster
    types: tuple[JobType, ...]
    digits: tuple[int, ...]
    arrival: F8
    type: I8
    duration: F8
    demand: F8
    owner: I8
    limit: F8
    """NaN where the forecaster may not see one"""
    day: float = DAY
    """length of a day, where arrivals were moved closer together or further apart"""
    events: tuple[tuple[float, str, str], ...] = ()
    """(time, fail | join | policy, server or policy)"""
    part: str = "decide"
    notes: list[str] = field(default_factory=list)


def _owners(trace: Trace) -> I8:
    if "tenant" not in trace.frame.columns:
        return np.full(len(trace), -1, np.int64)
    _, number = np.unique(trace.frame["tenant"].fill_null("").to_numpy(), return_inverse=True)
    return number.astype(np.int64)


def _of_trace(
    name: str, trace: Trace, cluster: Cluster, typing: TypeMaking, estimates: bool, day: float, part: str, most: int
) -> Log:
    jobs = jobs_of_trace(trace, cluster, typing)
    columns = jobs.listed()
    assert columns.demand is not None
    n = min(most, len(columns))
    limit = trace.estimate[:n] if estimates and trace.estimate is not None else np.full(n, np.nan)
    types = tuple(one.model_copy(update={"rate": None, "mean_service": 1.0}) for one in jobs.types)
    duration = np.maximum(columns.duration[:n], 1.0)
    return Log(
        name,
        cluster,
        types,
        tuple(jobs.sizes.digits),
        columns.time[:n],
        columns.job_type[:n],
        duration,
        columns.demand[:n] / 10.0 ** np.array(jobs.sizes.digits),
        _owners(trace)[:n],
        np.maximum(limit, duration),
        day,
        part=part,
    )  # fmt: skip


def parallel(name: str, load: float, part: str, most: int = 10**9) -> Log:
    """A log of a parallel machine, with users' estimates, at this load."""
    path, processors = MACHINES[name]
    trace, _ = import_trace("swf", [traces.SHARED / path], skip_bad=True)
    factor = float(trace.duration @ trace.demands()[:, 0]) / (processors * trace.span) / load
    cluster = Cluster(
        resources=("cpu",), servers=(ServerClass(name="server", count=1, capacity=(int(processors),)),)
    )
    typing = TypeMaking(**TYPES["8"])
    return _of_trace(f"{name}-{load}", scale(trace, factor), cluster, typing, True, DAY * factor, part, most)


def of_cloud(name: str, load: float, estimates: bool, part: str, most: int = 10**9) -> Log:
    """A trace of a cloud at this load."""
    scenario: Scenario = cloud(name, load, "8")
    trace = read_trace(scenario.workload.trace or "", columns=["estimate", "tenant"])
    real = next(one for one in traces.REAL if one.name == name)
    whole, _ = import_trace(real.format, [traces.SHARED / real.path], skip_bad=True, options=real.options)
    factor = trace.span / whole.span if real.batches == 1.0 else 1.0
    told = "with" if estimates else "without"
    label = f"{name}-{load}" + (f"-{told}-estimates" if name == "ceritsc2013" else "")
    return _of_trace(label, trace, scenario.cluster, scenario.workload.typing, estimates, DAY * factor, part, most)


def simulated(kind: str, seed: int, part: str, days: int = 21) -> Log:
    """Days with a rhythm: `rhythm` (load changes over day and week), `tails` (Pareto 1.3), `churn` (servers fail, the policy is changed)."""
    rng = np.random.default_rng([seed, 30])
    demands = np.array([[1.0, 2.0], [2.0, 8.0], [4.0, 8.0], [8.0, 32.0], [16.0, 32.0]])
    share = np.array([0.35, 0.25, 0.2, 0.12, 0.08])
    means = np.array([1200.0, 2400.0, 3600.0, 5400.0, 7200.0])
    servers, capacity = 12, np.array([16.0, 64.0])
    work = float((share * means * (demands / capacity).max(axis=1)).sum())
    rate = SIMULATED_LOAD * servers / work
    horizon = days * DAY
    raw = np.sort(rng.uniform(0, horizon, rng.poisson(2.2 * rate * horizon)))
    hour, weekday = raw % DAY / DAY, raw // DAY % 7
    strength = (1.0 + 0.6 * np.sin(2 * np.pi * (hour - 0.3))) * np.where(weekday >= 5, 0.6, 1.16)
    if kind == "churn":
        strength = 0.5 * strength + 0.5
    arrival = raw[rng.random(len(raw)) < strength / 2.2]
    n = len(arrival)
    kinds = rng.choice(len(share), n, p=share)
    owner = rng.integers(0, 20, n)
    own_mean = means[kinds] * np.exp(rng.normal(0, 0.5, 20))[owner] / np.exp(0.125)
    if kind == "tails":
        duration = own_mean * (rng.pareto(1.3, n) + 1) * (0.3 / 1.3)
    else:
        duration = own_mean * np.exp(rng.normal(0, 1.0, n) - 0.5)
    offered = float((duration * (demands[kinds] / capacity).max(axis=1)).sum()) / (servers * horizon)
    duration *= SIMULATED_LOAD / offered
    types = tuple(JobType(name=f"c{int(row[0])}", demand=tuple(int(x) for x in row)) for row in demands)
    cluster = Cluster(
        resources=("cpu", "memory"),
        servers=(ServerClass(name="server", count=servers, capacity=tuple(int(x) for x in capacity)),),
    )
    events: list[tuple[float, str, str]] = []
    if kind == "churn":
        for _ in range(3 * days):
            at, which = float(rng.uniform(0, horizon)), f"server-{int(rng.integers(servers))}"
            events += [(at, "fail", which), (at + float(rng.exponential(7200.0)), "join", which)]
        events.append((horizon * 0.6, "policy", "best-fit"))
    return Log(
        f"days-{kind}-{seed}", cluster, types, (0, 0), arrival, kinds.astype(np.int64), np.maximum(duration, 1.0),
        demands[kinds], owner.astype(np.int64), np.full(n, np.nan), events=tuple(sorted(events)), part=part,
    )  # fmt: skip


ALL: dict[str, Callable[[], Log]] = {
    # tuned on
    "kth-0.8": partial(parallel, "kth", 0.8, "tune", 14_000),
    "days-rhythm-1": partial(simulated, "rhythm", 1, "tune"),
    "days-tails-1": partial(simulated, "tails", 1, "tune"),
    # decided on
    "kth-0.9": partial(parallel, "kth", 0.9, "decide"),
    "nasa-0.85": partial(parallel, "nasa", 0.85, "decide"),
    "ceritsc2013-0.85-with-estimates": partial(of_cloud, "ceritsc2013", 0.85, True, "decide"),
    "ceritsc2013-0.85-without-estimates": partial(of_cloud, "ceritsc2013", 0.85, False, "decide"),
    "azure2017-0.97": partial(of_cloud, "azure2017", 0.97, False, "decide", 40_000),
    "days-rhythm-2": partial(simulated, "rhythm", 2, "decide"),
    "days-tails-2": partial(simulated, "tails", 2, "decide"),
    "days-churn-2": partial(simulated, "churn", 2, "decide"),
    # looked at once, when all was decided
    "blue-0.8": partial(parallel, "blue", 0.8, "last", 20_000),
    "days-rhythm-3": partial(simulated, "rhythm", 3, "last"),
    "days-tails-3": partial(simulated, "tails", 3, "last"),
    "days-churn-3": partial(simulated, "churn", 3, "last"),
}
