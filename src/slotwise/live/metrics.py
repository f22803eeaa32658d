"""What /metrics shows, in Prometheus' words."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

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
LIES = Counter("slotwise_unexpected_facts", "Facts of engines that could not be", registry=REGISTRY)
WAITING = Gauge("slotwise_waiting_jobs", "Jobs that wait", ["type"], registry=REGISTRY)
LIVE = Gauge("slotwise_running_jobs", "Jobs that are placed or run", registry=REGISTRY)
SERVERS = Gauge("slotwise_servers", "Servers", ["status"], registry=REGISTRY)
FAULT = Gauge("slotwise_policy_fault", "1: the policy has failed since the start", registry=REGISTRY)
INBOX = Gauge("slotwise_inbox", "Requests and facts that wait for the loop", registry=REGISTRY)
ROWS = Gauge("slotwise_journal_rows", "Rows of the journal since the beginning", registry=REGISTRY)
READY = Gauge("slotwise_ready", "1: the service takes requests", registry=REGISTRY)


def measure(ledger: Any, _now: float) -> None:
    """What is looked at when somebody asks; in the loop, which owns it."""
    core = ledger.core
    for name, count in core.waiting.items():
        WAITING.labels(name).set(count)
    LIVE.set(len(ledger.live))
    ROWS.set(ledger.seq)
    for status in ("up", "draining", "lost"):
        SERVERS.labels(status).set(sum(server.status == status for server in ledger.servers.values()))
    FAULT.set(ledger.fault is not None)
