"""`slotwise logs`."""

from __future__ import annotations

import json

from slotwise.cli.connecting import CONNECTION, ID, connected, number_of
from slotwise.cli.light import LightCommand, Option, positive
from slotwise.cli.waiting import tell, write
from slotwise.live.client import Client
from slotwise.live.redirect import filled


def logs(
    *,
    number: int | str,
    follow: bool,
    attempt: int | None,
    server: str | None,
    profile: str | None,
    as_json: bool,
) -> None:
    """Print the output of a job."""
    with connected(server, profile) as client:
        number = number_of(client, number)
        pieces = client.output(
            number, follow=follow, attempt=attempt, on_away=lambda error: tell(f"{error}; waiting for it")
        )
        if as_json:
            print(json.dumps({"id": number, "output": b"".join(pieces).decode("utf-8", "replace")}))
            return
        written = 0
        for piece in pieces:
            write(piece)
            written += len(piece)
        if not written:
            say_where(client, number)


def say_where(client: Client, number: int) -> None:
    """Tell where the output of a job is that writes to files of its own."""
    job = client.detail(number)
    files = dict.fromkeys(
        filled(job[key], number, job["attempt"], job["array"], job["array_index"])
        for key in ("stdout", "stderr")
        if job[key]
    )
    if files:
        tell(f"job {number} writes to {' and '.join(files)}")


LOGS = LightCommand(
    logs,
    "Print the output of a job.",
    (
        ID,
        Option("follow", "-f, --follow", "print until the job has ended, also across restarts of the service"),
        Option("attempt", "--attempt", "the output of this attempt (default: the last)", "N", positive),
        *CONNECTION,
    ),
    ("slotwise logs -f 7",),
)
