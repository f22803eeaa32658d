"""What is known of a waiting job, the queues and the cluster at one moment, as numbers to learn from."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from slotwise.foresee.correction import GRID, REACH
from slotwise.foresee.ensemble import Outlook
from slotwise.foresee.history import F8, I8
from slotwise.foresee.whatif import demands_of

F4 = NDArray[np.float32]
NEWEST = (10, 50, 200)  # starts and submissions over which throughput is measured
LAST = 20  # newest starts, for the mean wait
# curves are read at 12, 50 and 88 %
READ = tuple(np.searchsorted(GRID, (-2.0, 0.0, 2.0)).tolist())
MIDDLES = (-5, -2)  # the columns of the middles of runs and of recent waits
SMALLEST_SHARE = 1e-6  # of the cluster; keeps logarithms finite


def features(outlook: Outlook, sources: F8, which: I8 | None = None) -> F4:
    """Return the features of waiting jobs, (jobs, features). `sources`: their curves (`correction.sources_of`). `which`: their positions (default: all jobs).

    Lengths of time and numbers of jobs are logarithms. NaN: not known."""
    rows = np.arange(outlook.n_waiting) if which is None else which
    own = [column[rows] for column in (*_of_queue(outlook), _last_waits(outlook))]
    alike = [np.full(len(rows), value) for value in (*_of_cluster(outlook), *_of_past(outlook))]
    return np.asarray(np.column_stack([*own, *alike, *sources[:, 0, READ].T, *sources[:, 1, READ].T]), np.float32)


def centre(known: F4) -> F8:
    """Return the mean of the middles of runs and recent waits of each row of features: a log-wait."""
    runs, waits = np.minimum(known[:, MIDDLES].T.astype(np.float64), math.log(REACH))
    return np.asarray(np.where(np.isnan(waits), runs, 0.5 * (runs + waits)))


def _share(outlook: Outlook, kinds: list[int], demand: list[list[int]] | None) -> F8:
    """Return the largest share of a resource of the cluster that each job takes."""
    situation = outlook.situation
    servers = situation.servers
    count = np.bincount(
        [c for c, status in zip(servers.server_class, servers.status, strict=True) if status != "absent"],
        minlength=len(situation.classes),
    )
    capacity = count @ np.array([[float(x) for x in one.capacity] for one in situation.classes])
    own = demands_of(situation, np.array(kinds, np.int64), demand)
    return np.asarray((own / np.maximum(capacity, 1e-300)).max(axis=1, initial=0.0))


def _work(outlook: Outlook) -> F8:
    """Return the share of the cluster that each waiting job takes, times its limit, or the mean service time where there is none."""
    waiting = outlook.situation.waiting
    mean = outlook.services.mean if np.isfinite(outlook.services.mean) else 0.0
    limit = outlook.limit[: outlook.n_waiting]
    return np.asarray(_share(outlook, waiting.type, waiting.demand) * np.where(np.isnan(limit), mean, limit))


def _of_queue(outlook: Outlook) -> list[F8]:
    """Return share, limit, age, and what waits with the job: jobs and work ahead of it, jobs of its type and the age of the oldest of them."""
    waiting, W = outlook.situation.waiting, outlook.n_waiting
    submitted, kinds, work = (
        np.array(waiting.submitted, np.float64),
        np.array(waiting.type, np.int64),
        _work(outlook),
    )
    age = outlook.situation.now - submitted
    order = np.lexsort((np.array(waiting.sequence), submitted))
    ahead, work_ahead, ahead_of_type, of_type, oldest = np.empty((5, W))
    ahead[order], work_ahead[order] = np.arange(W), np.cumsum(work[order]) - work[order]
    for j in np.unique(kinds):
        mine = order[kinds[order] == j]
        ahead_of_type[mine], of_type[mine], oldest[mine] = np.arange(len(mine)), len(mine), age[mine].max()
    share = np.log(_share(outlook, waiting.type, waiting.demand) + SMALLEST_SHARE)
    counted = (age, ahead, ahead_of_type, of_type, work_ahead, oldest)
    return [share, np.log(outlook.limit[:W]), *(np.log1p(one) for one in counted)]


def _last_waits(outlook: Outlook) -> F8:
    """Return the mean of the last waits of the type of each waiting job."""
    history, own = outlook.history, outlook.history_type[: outlook.n_waiting]
    begun = _begun(outlook)
    wait, kind, found = (
        history.started[begun] - history.submitted[begun],
        history.type[begun],
        np.full(len(own), np.nan),
    )
    for j in np.unique(own):
        if len(last := wait[kind == j][-LAST:]):
            found[own == j] = np.log1p(last.mean())
    return found


def _begun(outlook: Outlook) -> I8:
    """Return the jobs of the history that have started, in order of their starts."""
    begun = np.flatnonzero(~np.isnan(outlook.history.started))
    return begun[np.argsort(outlook.history.started[begun], kind="stable")]


def _of_cluster(outlook: Outlook) -> list[float]:
    """Return how much waits, how old the oldest job is, how much of the cluster is used and free, and the hour."""
    situation = outlook.situation
    waiting, running = situation.waiting, situation.running
    used = float(_share(outlook, running.type, running.demand).sum())
    oldest = situation.now - min(waiting.submitted, default=situation.now)
    counted = (len(waiting.job), float(_work(outlook).sum()), oldest, used, max(0.0, 1.0 - used))
    hour = 2 * np.pi * (situation.now % outlook.day) / outlook.day
    return [*map(float, np.log1p(counted)), float(np.sin(hour)), float(np.cos(hour))]


def _of_past(outlook: Outlook) -> list[float]:
    """Return the mean of the last waits, and how long the newest starts and submissions took."""
    history, now, begun = outlook.history, outlook.situation.now, _begun(outlook)
    wait = (history.started - history.submitted)[begun[-LAST:]]
    spans = [
        now - times[-n] if len(times) >= n else np.nan
        for n in NEWEST
        for times in (history.started[begun], history.submitted)
    ]
    return [float(np.log1p(wait.mean())) if len(wait) else np.nan, *map(float, np.log1p(spans))]
