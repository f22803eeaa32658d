"""What the store knows of jobs that have not ended, as the books need it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from slotwise.errors import InputError
from slotwise.live.ledger import Ledger
from slotwise.live.newjob import NewJob
from slotwise.live.quotas import QuotaJob, charge_of
from slotwise.live.replay import WRONG
from slotwise.live.retries import Retry
from slotwise.live.spec import AT_ONCE, plain
from slotwise.live.store.protocol import Store
from slotwise.live.store.records import HELD, PLACED, RUNNING, WAITING
from slotwise.live.store.records import Job as JobRow


def connect(ledger: Ledger, store: Store) -> None:
    """Let the books look into the store."""

    def kept(number: int) -> tuple[NewJob, int | None, int]:
        row, body = store.specs([number])[number]
        return kept_job(row, body), row.array_id, row.attempt

    ledger.look, ledger.kept = store.members, kept
    ledger.all_jobs = lambda: all_jobs(store, ledger)


def all_jobs(store: Store, ledger: Ledger) -> Iterator[QuotaJob]:
    """Yield all jobs that have not ended, with what they count against quotas."""
    resources = ledger.core.cluster.resources
    sizes = {one.name: dict(zip(resources, one.demand, strict=True)) for one in ledger.core.types}
    charges = {}
    for state in (HELD, WAITING, PLACED, RUNNING):  # one by one, as the index has them in order
        rows = store.ask(
            "SELECT job.id, tenant, job.type, job.spec, spec.demand FROM job JOIN spec ON spec.id = job.spec"
            " WHERE state = ?",
            [state],
        )
        for number, tenant, kind, spec, demand in rows:
            if (kind, spec) not in charges:
                # submissions of early versions do not say what they are charged
                charged = sizes.get(kind, {}) if demand is None else json.loads(demand)
                charges[kind, spec] = charge_of(charged)
            yield QuotaJob(int(number), tenant, state, charges[kind, spec])


def kept_job(row: JobRow, body: str) -> NewJob:
    """Return what the ledger must know of a job that is in the store. Raise InputError if it is damaged."""
    try:
        spec = plain(body)
        expected = [one for one in (spec.get("duration"), spec.get("time")) if one is not None]
        return NewJob(
            row.tenant,
            spec.get("type"),
            spec.get("needs", {}),
            spec.get("requires", {}),
            duration=min(expected, default=None),
            at_once=spec.get(AT_ONCE),
            retry=Retry.of(spec),
            limit=spec.get("time"),
            deadline=spec.get("deadline"),
        )
    except WRONG as error:
        raise InputError(
            f"is damaged: {error}", where=f"the submission of job {row.id}", remedy="restore a backup"
        ) from None
