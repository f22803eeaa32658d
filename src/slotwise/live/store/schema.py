"""The tables, as numbered migrations: a store of any earlier version is brought up to date when it is opened.

A migration is never edited once it has been released; a change is a new one at the end.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE journal (
            seq {int} PRIMARY KEY, time {real} NOT NULL, event TEXT NOT NULL, placements TEXT NOT NULL, note TEXT)""",
        "CREATE TABLE spec (id {int} PRIMARY KEY, body TEXT NOT NULL)",
        """CREATE TABLE job (
            id {int} PRIMARY KEY, tenant TEXT NOT NULL, type TEXT NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL,
            server TEXT, attempt {int} NOT NULL, exit_code {int}, reason TEXT, stop_asked {int} NOT NULL,
            submitted {real} NOT NULL, placed {real}, started {real}, ended {real},
            array_id {int}, array_index {int}, key TEXT, spec {int} NOT NULL)""",
        "CREATE INDEX job_live ON job (state, id) WHERE state IN ('placed', 'running')",
        "CREATE UNIQUE INDEX job_key ON job (tenant, key) WHERE key IS NOT NULL",
        "CREATE INDEX job_array ON job (array_id, array_index) WHERE array_id IS NOT NULL",
        "CREATE TABLE server (name TEXT PRIMARY KEY, server_class TEXT NOT NULL, status TEXT NOT NULL, reason TEXT)",
        """CREATE TABLE checkpoint (
            seq {int} PRIMARY KEY, time {real} NOT NULL, epoch {int} NOT NULL, body TEXT NOT NULL)""",
        """CREATE TABLE token (
            id TEXT PRIMARY KEY, role TEXT NOT NULL, tenant TEXT NOT NULL, digest TEXT NOT NULL, created {real} NOT NULL)""",
        """CREATE TABLE writer (
            one {int} PRIMARY KEY, epoch {int} NOT NULL, heartbeat {real} NOT NULL, session TEXT NOT NULL)""",
        "INSERT INTO writer VALUES (1, 0, 0, '')",
    ),
    (
        "ALTER TABLE writer ADD COLUMN batch {int} NOT NULL DEFAULT 0",
        """CREATE TABLE identity (
            one {int} PRIMARY KEY, identity TEXT NOT NULL, host TEXT NOT NULL, folder TEXT NOT NULL)""",
        "INSERT INTO identity VALUES (1, '{identity}', '', '')",
        "ALTER TABLE spec ADD COLUMN on_loss TEXT NOT NULL DEFAULT 'fail'",
        "UPDATE spec SET on_loss = 'requeue' WHERE {on_loss} = 'requeue'",
    ),
    # jobs that were there in a window of time: for the history of queues and the timeline, and for the trim of ended jobs
    ("CREATE INDEX job_ended ON job (ended)",),
    ("ALTER TABLE token ADD COLUMN account TEXT",),
    (
        "ALTER TABLE job ADD COLUMN retries {int} NOT NULL DEFAULT 0",
        "ALTER TABLE job ADD COLUMN due {real}",
        "CREATE INDEX job_held ON job (id) WHERE state = 'held'",
        "CREATE TABLE dependency (job {int} NOT NULL, kind TEXT NOT NULL, other {int} NOT NULL)",
        "CREATE INDEX dependency_job ON dependency (job)",
        "CREATE INDEX dependency_other ON dependency (other)",
    ),
    # for `slotwise usage`: who executes a job, what it is charged, since when it waited, and attempts before the last one
    (
        "ALTER TABLE spec ADD COLUMN account TEXT",
        "ALTER TABLE spec ADD COLUMN demand TEXT",
        "UPDATE spec SET account = {user}",
        "UPDATE spec SET demand = {needs} WHERE {type} IS NULL",
        "ALTER TABLE job ADD COLUMN ready {real}",
        """CREATE TABLE attempt (job {int} NOT NULL, number {int} NOT NULL, server TEXT NOT NULL, placed {real} NOT NULL,
            ended {real} NOT NULL, exit_code {int})""",
        "CREATE INDEX attempt_ended ON attempt (ended)",
        "CREATE INDEX attempt_job ON attempt (job)",
    ),
    # how far each hook has come, as JSON
    ("CREATE TABLE hook (name TEXT PRIMARY KEY, state TEXT NOT NULL)",),
    (
        """CREATE TABLE maintenance (id {int} PRIMARY KEY, server TEXT NOT NULL, begins {real} NOT NULL, ends {real} NOT NULL,
            reason TEXT NOT NULL, assumed {real} NOT NULL, state TEXT NOT NULL)""",
    ),
    # windows in which a server is reserved for a tenant
    ("ALTER TABLE maintenance ADD COLUMN tenant TEXT NOT NULL DEFAULT ''",),
)

NEWEST = len(MIGRATIONS)
# Tables that a backup holds.
TABLES = ("journal", "spec", "job", "server", "checkpoint", "token", "dependency", "attempt", "hook", "maintenance")


def statements(after: int, *, integer: str, real: str, key: Callable[[str], str]) -> list[tuple[int, list[str]]]:
    """Return the migrations with higher numbers, in the words of one database; each store gets an identity of its own.

    `key` gives the expression for a value of the body of a submission.
    """
    words = {"{int}": integer, "{real}": real, "{identity}": secrets.token_hex(16)}
    words |= {f"{{{name}}}": key(name) for name in ("on_loss", "user", "needs", "type")}

    def spelled(text: str) -> str:
        for word, meaning in words.items():
            text = text.replace(word, meaning)
        return text

    return [(number, [spelled(text) for text in MIGRATIONS[number - 1]]) for number in range(after + 1, NEWEST + 1)]
