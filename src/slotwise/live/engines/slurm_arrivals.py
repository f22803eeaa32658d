"""Users' own jobs that wait, held, in the partition that is watched: which have come, and which were withdrawn."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from slotwise.live.engines.protocol import Arrived, Fact, ServerUp, Withdrawn
from slotwise.live.engines.slurm_commands import QueueRow
from slotwise.live.engines.slurm_records import MARK, Foreign, SlurmRecords

log = logging.getLogger(__name__)


class SeenArrivals:
    """What was seen the last time, so that each is told once."""

    def __init__(self, partition: str | None, records: SlurmRecords) -> None:
        self.partition, self.records = partition, records
        self._held: set[str] = set()
        self._skipped: set[str] = set()

    def look(self, rows: list[QueueRow], placed: Iterable[Foreign], nodes: Iterable[Fact | None]) -> list[Fact]:
        """Return what is new in the queue. Jobs that are placed already are not reported."""
        if self.partition is None:
            return []
        waiting = [row for row in rows if row.held and self.partition in row.partition.split(",")]
        held = {key_of(row.id, row.submitted): row for row in waiting if not self.records.ours(row.name)}
        ours = {key_of(one.id, one.submitted) for one in placed}
        up = [one.capacity for one in nodes if isinstance(one, ServerUp)]
        facts: list[Fact] = []
        for key, row in sorted(held.items(), key=lambda item: (item[1].submitted, item[1].number)):
            if key not in self._held and key not in ours:
                facts += self._arrived(key, row, up)
        here = {key_of(row.id, row.submitted) for row in rows if not row.over}
        facts += [Withdrawn(key) for key in sorted(self._held - here - ours)]
        self._held = set(held)
        return facts

    def _arrived(self, key: str, row: QueueRow, up: list[Mapping[str, float]]) -> list[Fact]:
        if row.nodes > 1 or any(sign in row.features for sign in "|[]()*"):
            if key not in self._skipped:
                self._skipped.add(key)
                log.warning(
                    "job %s is left held: jobs of several nodes or with alternative features are not for us", row.id
                )
            return []
        cpus, memory = row.tres.get("cpu", 1.0), row.tres.get("mem", 0.0)
        chosen = 0.0 if memory else usual_memory(cpus, up)
        mark = MARK.match(row.comment)
        job = Foreign(row.id, row.submitted, row.user, mark[1] if mark else "", chosen)
        spec = {
            "needs": {"cpu": cpus, "memory": memory or chosen},
            "requires": dict.fromkeys(filter(None, row.features.split("&")), ("yes",)),
            "name": row.name,
            "body": json.dumps({"slurm": job, "argv": [f"(job {row.id} of Slurm)"]}),
        }
        return [Arrived(key, spec)]


def usual_memory(cpus: float, up: list[Mapping[str, float]]) -> float:
    """No memory asked for means all of a node to Slurm: that of the smallest one that has the CPUs."""
    return min((one["memory"] for one in up if one["cpu"] >= cpus), default=0.0)


def foreign_of(spec: Any) -> Foreign | None:
    """The user's own job that a spec is about."""
    return Foreign(*spec["slurm"]) if "slurm" in spec else None


def key_of(number: str, submitted: int) -> str:
    """What a user's job is called here. The number alone is not enough: a controller that has forgotten a job gives it to another."""
    return f"slurm-{number}-{submitted}"
