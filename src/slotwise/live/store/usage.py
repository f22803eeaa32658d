"""Accounting: who used how much in a window of time, how long jobs waited, and how they ended. All of it is worked out from the store.

A job holds what it is charged from its placement to its end, on every attempt; only the part inside the window counts. Starts, waits and ends
count if they are in the window. A wait is the time in which nothing but the queue held a job: it ends at the placement. The jobs that it was to start
after, the back-off of a retry and the quota of its tenant are no part of its wait.

The store drops ended jobs after a time that the operator chooses (`slotwise serve --keep-days`). What was used before is not known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from slotwise.errors import InputError
from slotwise.live.store.protocol import Store

KEYS = {
    "tenant": "job.tenant",
    "type": "job.type",
    "user": "coalesce(spec.account, '')",
    "state": "job.state",
    "name": "job.name",
    "server": "coalesce(job.server, '')",
}
HOUR = 3600.0  # seconds
QUANTILES = (50, 95)  # percent
Group = tuple[str, ...]


class UsagePeriod(NamedTuple):
    """A time from which and a time to which use is counted; of one tenant, or of all."""

    since: float
    until: float
    tenant: str | None = None


@dataclass
class UsageTotals:
    """What the jobs of one group have used."""

    started: int = 0
    ended: int = 0
    retried: int = 0
    """attempts that ended and after which the job was executed again"""
    wait: tuple[float, float, float] | None = None
    """mean, median and 95 % quantile in seconds of the waits that ended; None: no job was placed"""
    hours: dict[str, float] = field(default_factory=dict)
    """by resource"""
    exit_codes: dict[int, int] = field(default_factory=dict)
    """how many jobs ended with which"""


class UsageQuery:
    """The SQL of one window and one list of keys."""

    def __init__(self, by: Sequence[str], window: UsagePeriod) -> None:
        self.window = window
        self.keys = [KEYS[one] for one in by]
        self.needs_spec = "user" in by
        self.own = "" if window.tenant is None else " AND job.tenant = ?"
        self.own_values = [] if window.tenant is None else [window.tenant]

    def grouped(self, *more: str) -> tuple[str, str]:
        """Return the columns of a SELECT and its GROUP BY."""
        columns = [*self.keys, *more]
        return ", ".join(columns), f" GROUP BY {', '.join(columns)}" if columns else ""

    def spec(self) -> str:
        """Return the join that the keys need."""
        return " JOIN spec ON spec.id = job.spec" if self.needs_spec else ""

    def held(self, table: str) -> tuple[str, list[Any]]:
        """Return seconds on servers by group, type and demand, of the last attempts (`job`) or of those before (`attempt`)."""
        since, until, _ = self.window
        columns, group = self.grouped("job.type", "spec.demand")
        begin, end = f"{table}.placed", f"{table}.ended"
        other = " JOIN job ON job.id = attempt.job" if table == "attempt" else ""
        text = (
            f"SELECT {columns}, sum((CASE WHEN {end} IS NULL OR {end} > ? THEN ? ELSE {end} END)"
            f" - (CASE WHEN {begin} < ? THEN ? ELSE {begin} END)) FROM {table}{other} JOIN spec ON spec.id = job.spec"
            f" WHERE {begin} IS NOT NULL AND {begin} < ? AND ({end} IS NULL OR {end} > ?){self.own}{group}"
        )
        return text, [until, until, since, since, until, since, *self.own_values]

    def ends(self) -> tuple[str, list[Any]]:
        """Return how many jobs ended, by group and exit code."""
        columns, group = self.grouped("job.exit_code")
        text = f"SELECT {columns}, count(*) FROM job{self.spec()} WHERE job.ended >= ? AND job.ended < ?{self.own}{group}"
        return text, [self.window.since, self.window.until, *self.own_values]

    def retries(self) -> tuple[str, list[Any]]:
        """Return how many attempts ended that were not the last, by group."""
        columns, group = self.grouped()
        text = (
            f"SELECT {columns + ', ' if columns else ''}count(*) FROM attempt JOIN job ON job.id = attempt.job{self.spec()}"
            f" WHERE attempt.ended >= ? AND attempt.ended < ?{self.own}{group}"
        )
        return text, [self.window.since, self.window.until, *self.own_values]

    def waits(self) -> tuple[str, list[Any]]:
        """Return starts, mean wait and the quantiles by group. A quantile is the smallest wait that so many waits do not exceed."""
        names = [f"k{at}" for at in range(len(self.keys))]
        columns = "".join(f"{key} AS {name}, " for key, name in zip(self.keys, names, strict=True))
        partition = f"PARTITION BY {', '.join(names)}" if names else ""
        listed = ", ".join(names)
        quantiles = ", ".join(f"max(CASE WHEN place = (n * {q} + 99) / 100 THEN wait END)" for q in QUANTILES)
        wait = "job.placed - coalesce(job.ready, job.submitted)"
        text = (
            f"SELECT {listed + ', ' if listed else ''}count(*), avg(wait), {quantiles} FROM ("
            f"SELECT {listed + ', ' if listed else ''}wait, row_number() OVER ({partition} ORDER BY wait) AS place,"
            f" count(*) OVER ({partition}) AS n FROM ("
            f"SELECT {columns}CASE WHEN {wait} > 0 THEN {wait} ELSE 0 END AS wait FROM job{self.spec()}"
            f" WHERE (job.ended IS NULL OR job.ended >= ?) AND job.placed >= ? AND job.placed < ?{self.own}"
            f") AS waits) AS ranked{f' GROUP BY {listed}' if listed else ''}"
        )
        return text, [self.window.since, self.window.since, self.window.until, *self.own_values]


def usage(
    store: Store, by: Sequence[str], window: UsagePeriod, sizes: Mapping[str, Mapping[str, float]]
) -> dict[Group, UsageTotals]:
    """Return what was used in a window, by group; `sizes` is what jobs of a type are charged whose own demand an earlier version did not keep."""
    ask, found = UsageQuery(by, window), dict[Group, UsageTotals]()
    width = len(by)

    def use_of(row: Sequence[Any]) -> UsageTotals:
        return found.setdefault(tuple(map(str, row[:width])), UsageTotals())

    for table in ("job", "attempt"):
        for row in store.ask(*ask.held(table)):
            kind, demand, seconds = row[width:]
            charged = sizes.get(kind, {}) if demand is None else json.loads(demand)
            hours = use_of(row).hours
            for resource, amount in charged.items():
                hours[resource] = hours.get(resource, 0.0) + amount * seconds / HOUR
    for row in store.ask(*ask.ends()):
        code, count = row[width:]
        use = use_of(row)
        use.ended += int(count)
        if code is not None:
            use.exit_codes[int(code)] = int(count)
    for row in store.ask(*ask.retries()):
        if row[width]:
            use_of(row).retried = int(row[width])
    for row in store.ask(*ask.waits()):
        count, *wait = row[width:]
        if count:
            use = use_of(row)
            use.started, use.wait = int(count), (float(wait[0]), float(wait[1]), float(wait[2]))
    return found


def check_keys(text: str) -> list[str]:
    """Return the keys of a list such as "tenant,type". Raise InputError if one of them does not exist."""
    keys = list(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))
    for one in keys:
        if one not in KEYS:
            raise InputError(f"{one!r} is no key", where="by", remedy=f"use some of: {', '.join(KEYS)}")
    return keys
