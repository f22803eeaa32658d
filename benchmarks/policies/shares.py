"""Fair shares, measured: `python -m benchmarks.policies.shares [saturated] [live] [burst] [loaded] [greedy] [quota]` prints rows of name, value and unit.

Three tenants share 20 servers of 16 CPUs with shares 5, 3 and 2. Their jobs are unlike: 8 CPUs for 2 units of time, 3 CPUs for 1, 1 CPU for 3.

- saturated: each tenant has twice the work of its share. Use while 10,000 jobs start beside the shares, and Jain's index of use / share. Five runs; in
  each, the first 10,000 jobs of an empty cluster, and windows one after the other from job 20,000 on. Once more on 19 and on 7 servers, where no
  number of whole servers is worth a share.
- live: the same over 10,000 jobs as the books of the service decide, in virtual time.
- burst: the same if all jobs are submitted at the same moment.
- loaded: each tenant brings 85 % of what its share is worth. Mean queue with and without shares; p99 wait of each tenant beside that on its own cluster of that size.
- greedy: chemistry submits 100,000 jobs at time 0. Mean waits of the other tenants beside those with backlogs of 10,000 and 1,000 jobs, and with none.
  Once with the default margin of `guarded`, and once with a margin of 0.5, with which servers turn sooner.
- quota: the same as the books of the service decide, in virtual time. Chemistry has a quota of active work as large as its share, or as large as 85 % of
  it, which is what it uses on average without a backlog.
"""

from __future__ import annotations

import heapq
import math
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

import slotwise
from slotwise.live.engines.protocol import Ended
from slotwise.live.ledger import Ledger
from slotwise.live.newjob import NewJob
from slotwise.live.settings import servers_of, setup_of
from slotwise.model import Quota, Scenario, changed
from slotwise.scheduling import Scheduler
from slotwise.simulation.simulate import simulate

SHARES = {"physics": 5, "biology": 3, "chemistry": 2}
DEMANDS = {"physics": (8, 2.0), "biology": (3, 1.0), "chemistry": (1, 3.0)}
NODES, CPUS = 20, 16
HALF_LIFE = 20.0
WINDOW = 10_000
SEEDS = range(1, 6)
OTHER_NODES = (19, 7)
MARGINS = (4.0, 0.5)  # the default of guarded, and one with which servers turn sooner
GREEDY, MODEST = 100_000, 1_000
WARM = 50.0  # units of time before chemistry submits its backlog, in the part `quota`
Row = tuple[str, float, str]


def scenario(
    load: dict[str, float], *, shares: bool = True, nodes: int = NODES, run: dict[str, Any], **options: Any
) -> Scenario:
    """The cluster with tenants that bring so much work, in parts of the whole cluster of 20 servers."""
    types = [
        {
            "name": f"jobs of {name}",
            "tenant": name,
            "demand": [DEMANDS[name][0]],
            "mean_service": DEMANDS[name][1],
            "rate": part * NODES * CPUS / (DEMANDS[name][0] * DEMANDS[name][1]),
        }
        for name, part in load.items()
    ]
    tables: dict[str, Any] = {
        "name": "shares",
        "cluster": {
            "resources": ["cpu"],
            "servers": [{"name": "node", "count": nodes, "capacity": [CPUS]}],
        },
        "types": types,
        "run": {"replications": 1, "seed": 1, **run},
    }
    if shares:
        tenants = [{"name": name, "share": SHARES[name]} for name in load]
        tables["shares"] = {"half_life": HALF_LIFE, "tenants": tenants, **options}
    return slotwise.parse_scenario(tables)


def fair() -> dict[str, float]:
    """The part of the cluster that each share is worth."""
    return {name: share / sum(SHARES.values()) for name, share in SHARES.items()}


def jain(use: dict[str, float]) -> float:
    """Jain's index of use / share: 1 if all are served by their shares, 1/3 if only one is served."""
    x = np.array([use[name] / SHARES[name] for name in SHARES])
    return float(x.sum() ** 2 / (len(x) * (x**2).sum()))


def windows(jobs: Any) -> Iterator[dict[str, float]]:
    """The use of each tenant while 10,000 jobs start: the first window, then one window after the other from job 20,000 on."""
    started = jobs.drop_nulls("start").sort("start")
    start = started["start"].to_numpy()
    end, names = start + started["duration"].to_numpy(), started["type"].to_numpy()
    for first in (0, *range(2 * WINDOW, len(start) - WINDOW, WINDOW)):
        begin, until = start[first], start[first + WINDOW]
        overlap = np.clip(np.minimum(end, until) - np.maximum(start, begin), 0.0, None)
        taken = {name: DEMANDS[name][0] * overlap[names == f"jobs of {name}"].sum() for name in SHARES}
        yield {name: float(one / sum(taken.values())) for name, one in taken.items()}


def saturated(**options: Any) -> Iterator[Row]:
    """Shares and Jain's index over windows of 10,000 jobs."""
    yield from saturated_cluster(NODES, MARGINS, **options)
    for nodes in OTHER_NODES:
        yield from saturated_cluster(nodes, MARGINS[:1], **options)


def saturated_cluster(nodes: int, margins: Sequence[float], **options: Any) -> Iterator[Row]:
    """The same on a cluster of so many servers."""
    load = {name: 2.0 * part * nodes / NODES for name, part in fair().items()}
    run = {"jobs": 240_000, "warmup": 0.2}
    plain = simulate(scenario(load, shares=False, nodes=nodes, run=run), workers=1)
    for margin in margins:
        said = f"saturated, {nodes} servers, margin {margin:g}"
        early, uses, found = [], [], []
        for seed in SEEDS:
            at = changed(
                scenario(load, nodes=nodes, run={**run, "seed": seed}, **options), {"policy.margin": margin}
            )
            found.append(simulate(at, record_jobs=True, workers=1))
            first, *later = windows(found[-1].jobs())
            early.append(first)
            uses += later
        errors = [error(use) for use in uses]
        yield f"{said}: windows of 10,000 jobs", len(uses), ""
        for name in SHARES:
            yield f"{said}: use of {name}, all windows", float(np.mean([use[name] for use in uses])), ""
        yield f"{said}: error of a share, median of windows", float(np.median(errors)), "%"
        yield f"{said}: error of a share, 90 % of windows below", float(np.quantile(errors, 0.9)), "%"
        yield f"{said}: error of a share, worst window", max(errors), "%"
        yield f"{said}: error of a share, first 10,000 jobs, worst run", max(map(error, early)), "%"
        yield f"{said}: Jain's index, worst window", min(map(jain, uses)), ""
        yield f"{said}: CPUs in use", 100.0 * float(np.mean([one.utilisation["cpu"] for one in found])), "%"
        yield f"{said}: turns in a run", float(np.mean([one.runs[0].stalls for one in found])), ""
        yield f"{said}: mean queue over that without shares", found[0].mean_queue.mean / plain.mean_queue.mean, ""
    yield f"saturated, {nodes} servers: CPUs in use without shares", 100.0 * plain.utilisation["cpu"], "%"


def error(use: dict[str, float]) -> float:
    """The largest relative error of a share, in %."""
    return 100.0 * max(abs(use[name] / part - 1.0) for name, part in fair().items())


def loaded(part: float = 0.85, **options: Any) -> Iterator[Row]:
    """Mean queues, and waits beside those on clusters of one's own."""
    load = {name: part * one for name, one in fair().items()}
    run = {"jobs": 400_000, "warmup": 0.1}
    shared = simulate(scenario(load, run=run, **options), workers=1)
    plain = simulate(scenario(load, shares=False, run=run), workers=1)
    yield f"load {part:g}: mean queue with shares", shared.mean_queue.mean, "jobs"
    yield f"load {part:g}: mean queue without shares", plain.mean_queue.mean, "jobs"
    for name, own in fair().items():
        nodes = round(own * NODES)
        alone = simulate(scenario({name: load[name]}, shares=False, nodes=nodes, run=run), workers=1)
        mine, theirs = (one.wait_by_type[f"jobs of {name}"]["p99"] or 0.0 for one in (shared, alone))
        yield f"load {part:g}: p99 wait of {name}", mine, "time"
        yield f"load {part:g}: p99 wait of {name} on {nodes} servers of its own", theirs, "time"


def warmed_up(at: Scenario, until: float = 100.0) -> Scheduler:
    """A scheduler that has been at work for some time."""
    rng, scheduler = np.random.default_rng(1), Scheduler.from_scenario(at)
    means = {one.name: one.mean_service for one in at.types}
    agenda: list[tuple[float, str, str]] = []
    for one in at.types:
        times = np.cumsum(rng.exponential(1.0 / (one.rate or 1.0), int(2 * until * (one.rate or 1.0))))
        agenda += [(time, f"{one.name} {n}", one.name) for n, time in enumerate(times.tolist()) if time < until]
    heapq.heapify(agenda)
    kinds = {job: kind for _, job, kind in agenda}
    while agenda:
        now, job, kind = heapq.heappop(agenda)
        placed = scheduler.submit(job, kind, now=now) if kind else scheduler.complete(job, now=now)
        for one in placed:
            end = now + rng.exponential(means[kinds[str(one.job)]])
            if end < until:
                heapq.heappush(agenda, (end, str(one.job), ""))
    return scheduler


def with_backlog(n: int, margin: float, **options: Any) -> dict[str, float]:
    """Mean waits while chemistry begins with so many waiting jobs."""
    load = {"physics": 0.85 * 0.5, "biology": 0.85 * 0.3, "chemistry": 0.85 * 0.2}
    at = changed(scenario(load, run={"until": 300.0}, **options), {"policy.margin": margin})
    scheduler = warmed_up(at)
    for i in range(n):
        scheduler.submit(f"greedy {i}", "jobs of chemistry", now=scheduler.now)
    found = simulate(at, from_=scheduler.situation(), workers=1)
    return {name: found.wait_by_type[f"jobs of {name}"]["mean"] or 0.0 for name in SHARES}


def greedy(**options: Any) -> Iterator[Row]:
    """Mean waits of the other tenants, by what chemistry submits at once."""
    for margin in MARGINS:
        waits = {n: with_backlog(n, margin, **options) for n in (0, MODEST, GREEDY // 10, GREEDY)}
        for name in ("physics", "biology"):
            for n, one in waits.items():
                yield f"greedy, margin {margin:g}: mean wait of {name}, backlog {n:,}", one[name], "time"
            change = waits[GREEDY][name] / waits[GREEDY // 10][name] - 1.0
            yield f"greedy, margin {margin:g}: change for {name}, 10,000 to 100,000 jobs", 100.0 * change, "%"


def live(until: float = 500.0, *, at_once: bool = False, **options: Any) -> Iterator[Row]:
    """Shares and Jain's index over 10,000 jobs as the books of the service decide, in virtual time, after 20,000 jobs to warm up."""
    said = "burst" if at_once else "live"
    at = scenario({name: 2.0 * part for name, part in fair().items()}, run={"until": until}, **options)
    ledger = Ledger(setup_of(at.cluster, at).core())
    for server in servers_of(at.cluster):
        ledger.server_up(server, 0.0)
    rng, agenda = np.random.default_rng(1), list[tuple[float, int, int, str]]()  # time, job, attempt, tenant
    for one in at.types:
        rate = one.rate or 0.0
        times = np.cumsum(rng.exponential(1.0 / rate, int(1.5 * until * rate)))
        agenda += [(0.0 if at_once else float(time), 0, 0, one.tenant or "") for time in times if time < until]
    heapq.heapify(agenda)
    tenant: dict[int, str] = {}
    rows: list[tuple[str, float, float]] = []
    while agenda and len(rows) < 3 * WINDOW:
        now, job, attempt, name = heapq.heappop(agenda)
        if job:
            ledger.ended(Ended(job, attempt, 0, now), now)
        else:
            (job,) = ledger.submit([NewJob(name, f"jobs of {name}", {}, {})], now)
            tenant[job] = name
        for start in ledger.take()[1].starts:
            job = int(str(start.job))
            end = now + float(rng.exponential(DEMANDS[tenant[job]][1]))
            rows.append((tenant[job], now, end))
            heapq.heappush(agenda, (end, job, start.attempt, ""))
    begin, last = rows[2 * WINDOW][1], rows[-1][1]
    used = {
        name: DEMANDS[name][0]
        * sum(max(0.0, min(last, end) - max(placed, begin)) for who, placed, end in rows if who == name)
        for name in SHARES
    }
    use = {name: one / sum(used.values()) for name, one in used.items()}
    for name in SHARES:
        yield f"{said}: use of {name}", use[name], ""
    yield f"{said}: error of a share", error(use), "%"
    yield f"{said}: Jain's index", jain(use), ""


def with_quota(n: int, quota: float | None, until: float = 1000.0) -> dict[str, float]:
    """Mean waits of the jobs of each tenant while chemistry begins with so many waiting jobs, as the books of the service decide.

    Arrivals and service times of physics and biology do not depend on `n` and `quota`.
    """
    load = {name: 0.85 * part for name, part in fair().items()}
    at = scenario(load, run={"until": until})
    quotas = () if quota is None else (Quota(tenant="chemistry", active={"cpu": Decimal(str(quota))}),)
    ledger = Ledger(setup_of(at.cluster, at).core())
    ledger.set_quotas(quotas)
    for server in servers_of(at.cluster):
        ledger.server_up(server, 0.0)
    # time, 0 for an end and 1 for an arrival, job, attempt, tenant
    agenda: list[tuple[float, int, int, int, str]] = []
    rngs, lasts = {}, dict[int, float]()
    for seed, name in enumerate(SHARES):
        rngs[name] = np.random.default_rng(seed)
        rate = next(one.rate or 0.0 for one in at.types if one.tenant == name)
        times = np.cumsum(rngs[name].exponential(1.0 / rate, int(1.5 * until * rate)))
        agenda += [(float(one), 1, -1, 0, name) for one in times if one < until]
    heapq.heapify(agenda)
    waits: dict[str, list[float]] = {name: [] for name in SHARES}
    came: dict[int, tuple[float, str]] = {}
    is_greedy = n == 0
    while agenda:
        now, kind, number, attempt, name = heapq.heappop(agenda)
        if not is_greedy and now >= WARM:
            is_greedy = True
            numbers = ledger.submit([NewJob("chemistry", "jobs of chemistry", {}, {}, array=range(n))], now)
            came.update(dict.fromkeys(numbers, (now, "")))
        if kind:
            (number,) = ledger.submit([NewJob(name, f"jobs of {name}", {}, {})], now)
            came[number] = now, name
            lasts[number] = float(rngs[name].exponential(DEMANDS[name][1]))
        else:
            ledger.ended(Ended(number, attempt, 0, now), now)
        ledger.release(now)
        for start in ledger.take()[1].starts:
            job = int(str(start.job))
            at_time, who = came[job]
            if who and at_time >= WARM:
                waits[who].append(now - at_time)
            if job not in lasts:
                lasts[job] = float(rngs["chemistry"].exponential(DEMANDS["chemistry"][1]))
            end = now + lasts[job]
            if end < until:
                heapq.heappush(agenda, (end, 0, job, start.attempt, ""))
    return {name: float(np.mean(some)) if some else math.inf for name, some in waits.items()}


def quota() -> Iterator[Row]:
    """Mean waits of the other tenants, by what chemistry submits at once, with a quota."""
    share = NODES * CPUS * fair()["chemistry"]
    cases = [(0, None)]
    cases += [(n, most) for most in (share, int(0.85 * share)) for n in (0, GREEDY // 4, GREEDY)]
    for n, most in cases:
        waits = with_quota(n, most)
        said = "no quota" if most is None else f"quota {most:g} CPUs"
        for name in ("physics", "biology"):
            yield f"{said}: mean wait of {name}, backlog {n:,}", waits[name], "time"


def burst(**options: Any) -> Iterator[Row]:
    """The part `live`, if all jobs are submitted at the same moment."""
    yield from live(at_once=True, **options)


PARTS = {"saturated": saturated, "live": live, "burst": burst, "loaded": loaded, "greedy": greedy, "quota": quota}


def main(names: list[str]) -> None:
    """Print the rows of some parts, by default of all."""
    for name in names or list(PARTS):
        for what, value, unit in PARTS[name]():
            print(f"{what:<70} {value:12.5g} {unit}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
