"""The expensive part: runs ahead from every origin, kept in a file, so that what is made of them can be changed without running again."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.forecasts.logs import Log
from benchmarks.forecasts.replaying import Replay, Replayed, actual
from slotwise.foresee.ensemble import Outlook, ensemble
from slotwise.foresee.recent import RecentWaits
from slotwise.simulation.run.forward import Coming

BESIDE = 7  # further waiting jobs of each origin whose outcomes teach the correction; they are not scored


def write_members(log: Log, file: Path, *, targets: int, runs: int) -> None:
    """Replay the log, make the runs of every origin, and write them with what the baselines need."""
    write_runs(Replay(log).run(targets), file, runs=runs)


def write_runs(replayed: Replayed, file: Path, *, runs: int) -> None:
    """Make the runs of every origin of a log that was replayed."""
    log, rng = replayed.log, np.random.default_rng(7)
    history = replayed.history()
    asked = [one for one in replayed.origins if one.situation is not None]
    columns: dict[str, list[object]] = {
        name: [] for name in ("members", "oracle", "plan", "seconds", "beside", "beside_job", "waits")
    }
    nothing = Coming(np.zeros(0), np.zeros(0, np.int64), np.zeros(0))
    began = time.monotonic()
    for at, one in enumerate(asked):
        situation = one.situation
        assert situation is not None
        owners = {job: int(log.owner[job]) for job in (*situation.waiting.job, *situation.running.job)}
        # the service forecasts every waiting job, and learns from all: some more jobs beside the one that is scored stand for them
        target = situation.waiting.job.index(one.job)
        others = np.delete(np.arange(len(situation.waiting.job)), target)
        others = rng.permutation(others)[:BESIDE]
        watched = np.array([target, *others])
        outlook = Outlook(situation, history, owners=owners, day=log.day)
        made = ensemble(outlook, runs, at + 1, watched=watched)
        columns["members"].append(np.sort(made.starts[:, watched[0]]))
        beside = np.full((BESIDE, runs), np.nan)
        beside[: len(others)] = made.starts[:, others].T
        columns["beside"].append(np.sort(beside, axis=1))
        names = [situation.waiting.job[at] for at in others]
        columns["beside_job"].append(np.array([*names, *([-1] * (BESIDE - len(names)))]))
        columns["seconds"].append(made.seconds)
        asked_too = np.array([one.job, *names])
        waits = RecentWaits(history.until(one.now)).curves(log.type[asked_too], one.now - log.arrival[asked_too])
        columns["waits"].append(np.concatenate([waits, np.full((BESIDE - len(names), waits.shape[1]), np.nan)]))
        truth = {job: float(log.duration[job]) for job in owners}
        outlook.know(truth)
        true = ensemble(outlook, max(8, runs // 2), at + 1, watched=watched[:1])
        columns["oracle"].append(np.sort(true.starts[:, watched[0]]))
        plan = np.nan
        if not np.isnan(outlook.limit).any():
            course = outlook.forward.run(outlook.limit, nothing, 1e9, watched=watched[:1])
            plan = float(course.start[watched[0]])
        columns["plan"].append(plan)
        if at % 50 == 49:
            spent = time.monotonic() - began
            print(f"{log.name}: {at + 1} of {len(asked)} origins, {spent:.0f} s", file=sys.stderr, flush=True)
    everyone = replayed.origins
    np.savez_compressed(
        file,
        **{name: np.array(values) for name, values in columns.items()},  # type: ignore[arg-type]
        now=np.array([one.now for one in asked]),
        job=np.array([one.job for one in asked]),
        age=np.array([one.age for one in asked]),
        actual=actual(replayed, asked),
        started=replayed.started,
        job_type=log.type,
        type=log.type[[one.job for one in asked]],
        position=np.array([one.position for one in asked]),
        throughput=np.array([one.throughput for one in asked]),
        recent=np.array([_padded(one.recent) for one in asked]),
        features=np.array([one.features for one in asked]),
        all_features=np.array([one.features for one in everyone]),
        all_now=np.array([one.now for one in everyone]),
        all_actual=actual(replayed, everyone),
        all_job=np.array([one.job for one in everyone]),
        types=np.array([one.name for one in log.types]),
        counts=np.array([replayed.at_once, replayed.waited]),
        part=np.array(log.part),
    )


def _padded(values: list[float], length: int = 200) -> list[float]:
    return [*values[-length:], *([np.nan] * (length - len(values[-length:])))]
