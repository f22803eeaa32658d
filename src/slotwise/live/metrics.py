"""What /metrics shows, in Prometheus' words."""

from __future__ import annotations

import math
from collections import Counter as Counts
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from slotwise.live.board import Board
from slotwise.live.ledger import Ledger
from slotwise.live.observed import Load
from slotwise.live.server_books import AWAY, DRAINING, UP
from slotwise.live.store.records import Batch
from slotwise.scheduling.figures import Moment

REGISTRY = CollectorRegistry()
SHORT = (1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2, 0.1, 1.0)
LONG = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)

DECISION = Histogram(
    "slotwise_decision_seconds", "Time to decide one event, and to note it", buckets=SHORT, registry=REGISTRY
)
COMMIT = Histogram("slotwise_commit_seconds", "Time to make a batch durable", buckets=SHORT, registry=REGISTRY)
BATCH = Histogram(
    "slotwise_batch_rows",
    "Journal rows of one commit",
    buckets=(1, 3, 10, 30, 100, 300, 1000, 3000, 10_000),
    registry=REGISTRY,
)
WAIT = Histogram("slotwise_wait_seconds", "From submission to placement", ["type"], buckets=LONG, registry=REGISTRY)
ENDED = Counter("slotwise_jobs_ended", "Jobs that have ended since the start", ["state"], registry=REGISTRY)
UNEXPECTED = Gauge(
    "slotwise_unexpected_facts", "Facts of engines that could not be, since the start", ["kind"], registry=REGISTRY
)
WAITING = Gauge("slotwise_waiting_jobs", "Jobs that wait", ["type"], registry=REGISTRY)
RUNNING = Gauge("slotwise_running_jobs", "Jobs that are placed or run", ["type"], registry=REGISTRY)
LIVE = Gauge("slotwise_live_jobs", "Jobs that are placed or run, of all types", registry=REGISTRY)
HEADROOM = Gauge(
    "slotwise_headroom_jobs", "More jobs of this type alone that would fit now", ["type"], registry=REGISTRY
)
CAPACITY = Gauge("slotwise_capacity", "What all servers that are there have", ["resource"], registry=REGISTRY)
USED = Gauge("slotwise_used", "What running jobs hold", ["resource"], registry=REGISTRY)
TURNING = Gauge("slotwise_turning_servers", "Servers that turn to another mix of jobs", registry=REGISTRY)
SERVERS = Gauge("slotwise_servers", "Servers", ["status"], registry=REGISTRY)
FAULT = Gauge("slotwise_policy_fault", "1: the policy has failed since the start", registry=REGISTRY)
INBOX = Gauge("slotwise_inbox", "Requests and facts that wait for the loop", registry=REGISTRY)
ROWS = Gauge("slotwise_journal_rows", "Rows of the journal since the beginning", registry=REGISTRY)
READY = Gauge("slotwise_ready", "1: the service takes requests", registry=REGISTRY)

INTENSITY = Gauge(
    "slotwise_load_intensity",
    "Observed load of the last hour; 1 is the most that any policy carries",
    registry=REGISTRY,
)
LOAD_HEADROOM = Gauge(
    "slotwise_load_headroom", "Share by which the observed load may grow; negative: outside the capacity region",
    registry=REGISTRY,
)  # fmt: skip
GUARANTEE = Gauge(
    "slotwise_guarantee_share", "Intensity up to which the policy is proven to be stable; 0: nothing is proven",
    registry=REGISTRY,
)  # fmt: skip
OLDEST = Gauge(
    "slotwise_oldest_wait_seconds", "How long the oldest waiting job has waited", ["type"], registry=REGISTRY
)
ALARM = Gauge("slotwise_alarm", "1: this alarm is raised", ["kind"], registry=REGISTRY)
KINDS = ("trouble", "fault", "servers", "starvation", "overload", "hooks", "forecast")  # see `slotwise.live.alarms`


def show_alarms(alarms: Sequence[Mapping[str, Any]], load: Load | None, board: Board) -> None:
    """Show alarms, the observed load and the oldest waits of a board. What is not known yet is NaN."""
    raised = {alarm["kind"] for alarm in alarms}
    for kind in KINDS:
        ALARM.labels(kind).set(kind in raised)
    INTENSITY.set(math.nan if load is None or load.intensity is None else load.intensity)
    LOAD_HEADROOM.set(math.nan if load is None or load.headroom is None else load.headroom)
    GUARANTEE.set(math.nan if load is None or load.intensity is None else load.share or 0.0)
    OLDEST.clear()
    for name, (_, _, since) in board.queues.items():
        OLDEST.labels(name).set(0.0 if since is None else max(0.0, board.now - since))


def measure(ledger: Ledger, _now: float) -> Callable[[], None]:
    """Collect metrics on request. The loop thread takes a copy; the requesting thread computes the values, so the loop
    is not delayed."""
    core = ledger.core
    waiting, live, rows, fault = core.waiting, len(ledger.live), ledger.seq, ledger.fault is not None
    servers, lies, moment = list(ledger.servers.values()), dict(ledger.lies), Moment.of(core)

    def show() -> None:
        figures = moment.figures()
        for gauge, values in (
            (WAITING, waiting),
            (RUNNING, figures.running),
            (HEADROOM, figures.room),
            (CAPACITY, figures.capacity),
            (USED, figures.used),
            (SERVERS, dict.fromkeys((UP, DRAINING, AWAY), 0) | Counts(server.status for server in servers)),
            (UNEXPECTED, lies),
        ):
            gauge.clear()  # types come and go
            for name, value in values.items():
                gauge.labels(name).set(value)
        LIVE.set(live)
        ROWS.set(rows)
        TURNING.set(moment.turning)
        FAULT.set(fault)

    return show


def count(batch: Batch) -> None:
    """Jobs that ended with a batch, once it is durable."""
    for columns in batch.changes.values():
        if "ended" in columns:
            ENDED.labels(columns["state"]).inc()
