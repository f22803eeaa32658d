"""`slotwise servers`, `drain`, `resume`, `explain` and `watch`."""

from __future__ import annotations

import json
import shutil
import sys

from slotwise.cli.columns import clock, table
from slotwise.cli.connecting import CONNECTION, connected, number_of
from slotwise.cli.light import Argument, LightCommand, Option, whole
from slotwise.cli.waiting import tell
from slotwise.display.numbers import printable
from slotwise.live.after import element

NAME = Argument("name", "NAME", "the name of a server")


def servers(*, server: str | None, profile: str | None, as_json: bool) -> None:
    """List the servers."""
    with connected(server, profile) as client:
        found = client.servers()
        known = {} if as_json else client.cluster()
    if as_json:
        print(json.dumps(found))
        return
    sizes = {one["name"]: zip(known["resources"], one["capacity"], strict=True) for one in known["classes"]}
    has = {name: ", ".join(f"{resource}={amount}" for resource, amount in size) for name, size in sizes.items()}
    rows = [
        [one["name"], one["server_class"], has.get(one["server_class"], ""), one["status"], one["reason"] or ""]
        for one in found
    ]
    table(["name", "class", "has", "status", "reason"], rows, ("class", "has", "reason"))


def drain(*, name: str, reason: str, server: str | None, profile: str | None, as_json: bool) -> None:
    """Drain a server."""
    with connected(server, profile) as client:
        found = client.drain(name, reason)
    print(json.dumps(found) if as_json else printable(f"server {found['name']}: {found['status']}"))


def resume(*, name: str, server: str | None, profile: str | None, as_json: bool) -> None:
    """Let a drained server take jobs again."""
    with connected(server, profile) as client:
        found = client.resume(name)
    print(json.dumps(found) if as_json else printable(f"server {found['name']}: {found['status']}"))


def explain(*, what: str, server: str | None, profile: str | None, as_json: bool) -> None:
    """Say why a job runs or waits, or what a server does."""
    import textwrap

    is_job = what.isdecimal() or element(what) is not None
    with connected(server, profile) as client:
        named = number_of(client, what) if is_job else what
        text = client.explain(named)
    if as_json:
        print(json.dumps({"id" if is_job else "name": named, "text": text}))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else len(text)
        print("\n".join(textwrap.wrap(printable(text), max(20, width))))


def watch(*, after: int | None, follow: bool, server: str | None, profile: str | None, as_json: bool) -> None:
    """Print rows of the journal as they are written."""
    with connected(server, profile) as client:
        for row in client.events(after, follow=follow, on_away=lambda error: tell(f"{error}; waiting for it")):
            if as_json:
                print(json.dumps(row), flush=True)
                continue
            what = "".join(f" {key} {row[key]}" for key in ("job", "server", "type") if key in row)
            placed = "".join(f"; job {one[0]} goes to {one[1]}" for one in row["placements"])
            print(
                f"{row['seq']:>8}  {clock(row.get('now'))}  {printable(row['event'] + what + placed)}", flush=True
            )


SERVERS = LightCommand(servers, "List the servers.", CONNECTION, ("slotwise servers",))
DRAIN = LightCommand(
    drain,
    "Drain a server: it takes no more jobs, and its jobs go on.",
    (NAME, Option("reason", "--reason", "shown by `slotwise servers`", "TEXT", default="asked for"), *CONNECTION),
    ('slotwise drain node1 --reason "new disk"',),
)
RESUME = LightCommand(
    resume, "Let a drained server take jobs again.", (NAME, *CONNECTION), ("slotwise resume node1",)
)
EXPLAIN = LightCommand(
    explain,
    "Say why a job runs or waits, or what a server does.",
    (Argument("what", "ID|NAME", "the number of a job, or the name of a server"), *CONNECTION),
    ("slotwise explain 7", "slotwise explain node1"),
)
WATCH = LightCommand(
    watch,
    "Print the rows of the journal as they are written, also across restarts of the service.",
    (
        Option("after", "--after", "begin with this row of the journal", "SEQ", whole),
        Option(
            "follow",
            "--follow",
            "wait for new rows, or end after the last row",
            default=True,
            negative="--no-follow",
        ),
        *CONNECTION,
    ),
    ("slotwise watch --after 0 --no-follow",),
)
