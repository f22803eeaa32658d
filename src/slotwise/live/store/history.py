"""Questions about the past: queue lengths and waits over time, jobs on servers in a window, rows of the journal about one job.

All answers come from the job table and the journal; nothing is sampled. A job was there in a window that begins at `since` if it has not ended
before, which the index on `ended` finds. A requeued job counts as placed at its last placement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from slotwise.live.store.protocol import Store
from slotwise.live.store.reading import literal
from slotwise.live.store.records import Entry

GROUPS = ("type", "tenant")
THERE = "(ended IS NULL OR ended >= ?)"
LEFT = "coalesce(placed, ended)"  # when a job left its queue: it was placed, or cancelled
MOST_SPANS = 20_000
SCANNED = (
    20_000  # rows of the journal that one search reads at most: 60 ms in SQLite; the caller goes on from there
)


class RowKind(NamedTuple):
    """Rows of the journal that a search looks for."""

    condition: str
    values: tuple[str, ...] = ()


def about(*names: str) -> RowKind:
    """Rows about one of these events: a row begins with the name of its event."""
    return RowKind(
        "(" + " OR ".join("event LIKE ?" for _ in names) + ")", tuple(f'{{"event":"{name}"%' for name in names)
    )


def _trouble() -> RowKind:
    """Rows about failures: of jobs, of servers, of the policy."""
    events = about("requeue", "fail", "stop")
    noted = "note LIKE ? OR (note LIKE ? AND note NOT LIKE ? AND note NOT LIKE ?)"
    codes = ('%"exit_code":%', '%"exit_code":0%', '%"exit_code":null%')
    return RowKind(f"({events.condition} OR {noted})", (*events.values, '%"fault":%', *codes))


KINDS = {
    "starts": RowKind("placements <> '[]'"),
    "changes": about(
        "join", "drain", "resume", "remove", "fail", "change", "epoch", "maintenance", "maintenance-over"
    ),
    "trouble": _trouble(),
}


class Series(NamedTuple):
    """One type or one tenant over time; each list has a value for each step."""

    name: str
    length: list[int]
    """waiting jobs at the end of the step"""
    arrivals: list[int]
    starts: list[int]
    wait: list[float | None]
    """mean wait in seconds of the jobs that were placed in the step"""


class Span(NamedTuple):
    """A job on a server."""

    job: int
    type: str
    tenant: str
    name: str
    state: str
    server: str
    placed: float
    ended: float | None


def queues(
    store: Store, *, since: float, until: float, points: int, by: str = "type", tenant: str | None = None
) -> list[Series]:
    """Return the history of each queue in `points` steps of equal length, for one tenant or for all."""
    assert by in GROUPS
    step = max(
        1, round((until - since) * 1000 / points)
    )  # in milliseconds: whole numbers divide alike in both databases
    condition, own = ("AND tenant = ?", [tenant]) if tenant is not None else ("", [])

    def place(column: str) -> str:
        return f"CAST(({column} - ?) * 1000 AS BIGINT) / {step}"

    arrived = store.ask(
        f"SELECT {by}, {place('submitted')}, count(*) FROM job"
        f" WHERE {THERE} AND submitted >= ? AND submitted < ? {condition} GROUP BY 1, 2",
        [since, since, since, until, *own],
    )
    left = store.ask(
        f"SELECT {by}, {place(LEFT)}, count(*), count(placed), sum(placed - submitted) FROM job"
        f" WHERE {THERE} AND {LEFT} >= ? AND {LEFT} < ? {condition} GROUP BY 1, 2",
        [since, since, since, until, *own],
    )
    before = store.ask(
        f"SELECT {by}, count(*) FROM job WHERE {THERE} AND submitted < ?"
        f" AND ({LEFT} IS NULL OR {LEFT} >= ?) {condition} GROUP BY 1",
        [since, since, since, *own],
    )
    lengths = dict(before)
    arrivals = {(name, min(at, points - 1)): count for name, at, count in arrived}
    leaves = {(name, min(at, points - 1)): rest for name, at, *rest in left}
    found = []
    for name in sorted({*lengths, *(name for name, _ in arrivals), *(name for name, _ in leaves)}):
        length, lengths_of, waits = int(lengths.get(name, 0)), [], []
        came = [int(arrivals.get((name, at), 0)) for at in range(points)]
        started = []
        for at in range(points):
            gone, placed, waited = leaves.get((name, at), (0, 0, None))
            length += came[at] - int(gone)
            lengths_of.append(length)
            started.append(int(placed))
            waits.append(float(waited or 0.0) / int(placed) if placed else None)
        found.append(Series(name, lengths_of, came, started, waits))
    return found


def beginning(store: Store, end: float) -> float:
    """Return the time of the oldest row of the journal or of the oldest job, whichever is earlier; `end` if there is neither."""
    rows = store.ask("SELECT time FROM journal ORDER BY seq LIMIT 1")
    rows += store.ask("SELECT submitted FROM job ORDER BY id LIMIT 1")
    return min((float(row[0]) for row in rows), default=end)


def spans(
    store: Store, servers: Sequence[str], *, since: float, until: float, tenant: str | None = None
) -> list[Span]:
    """Return the jobs that were on these servers in a window, newest first, at most `MOST_SPANS`."""
    if not servers:
        return []
    condition, own = ("AND tenant = ?", [tenant]) if tenant is not None else ("", [])
    rows = store.ask(
        "SELECT id, type, tenant, name, state, server, placed, ended FROM job"
        f" WHERE {THERE} AND placed IS NOT NULL AND placed < ? {condition}"
        f" AND server IN ({', '.join('?' * len(servers))}) ORDER BY id DESC LIMIT {MOST_SPANS}",
        [since, until, *own, *servers],
    )
    return [Span(*row) for row in rows]


def entries_before(store: Store, before: int, *, limit: int) -> list[Entry]:
    """Return journal rows before this one, newest first."""
    rows = store.ask(
        "SELECT seq, time, event, placements, note FROM journal WHERE seq < ? ORDER BY seq DESC LIMIT ?",
        [before, limit],
    )
    return [Entry(*row) for row in rows]


def entries_of_kind(
    store: Store, kind: str, before: int, *, after: int = 0, limit: int
) -> tuple[list[Entry], int | None]:
    """Return the newest journal rows of a kind between two rows, and the row before which the search goes on.

    One search reads at most `SCANNED` rows. The second value is None where nothing is left to search.
    """
    low = max(after + 1, before - SCANNED, 1)
    rows = store.ask(
        f"SELECT seq, time, event, placements, note FROM journal WHERE seq < ? AND seq >= ? AND {KINDS[kind].condition}"
        " ORDER BY seq DESC LIMIT ?",
        [before, low, *KINDS[kind].values, limit],
    )
    found = [Entry(*row) for row in rows]
    if len(found) == limit:
        return found, found[-1].seq
    oldest = max(after + 1, store.first_seq() or 1)
    return found, low if low > oldest else None


def first_row_at(store: Store, time: float) -> int:
    """Return the number of the first journal row at or after a time, by bisection: rows are in the order of time."""
    low, high = store.first_seq() or 1, (last.seq + 1 if (last := store.last_entry()) else 1)
    while low < high:
        middle = (low + high) // 2
        row = store.ask("SELECT time FROM journal WHERE seq >= ? ORDER BY seq LIMIT 1", [middle])
        if row and row[0][0] < time:
            low = middle + 1
        else:
            high = middle
    return low


def of_job(store: Store, job: int, *, since: float, until: float | None, limit: int = 200) -> list[Entry]:
    """Return the journal rows about a job, oldest first: its own events, and those that placed it."""
    last = 2**62 if until is None else first_row_at(store, until + 1.0)
    patterns = [f'%"job":{job},%', f'%"job":{job}}}%', f"%{literal('[')}{job},%"]
    rows: list[Any] = store.ask(
        "SELECT seq, time, event, placements, note FROM journal WHERE seq >= ? AND seq <= ?"
        " AND (event LIKE ? OR event LIKE ? OR placements LIKE ?) ORDER BY seq LIMIT ?",
        [first_row_at(store, since), last, *patterns, limit],
    )
    return [Entry(*row) for row in rows]
