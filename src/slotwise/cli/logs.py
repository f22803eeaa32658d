"""`slotwise logs`."""

from __future__ import annotations

import json

from slotwise.cli.connecting import CONNECTION, ID, connected
from slotwise.cli.light import Command, Option, positive
from slotwise.cli.waiting import tell, write


def logs(
    *,
    number: int,
    follow: bool,
    attempt: int | None,
    server: str | None,
    profile: str | None,
    as_json: bool,
) -> None:
    """Print what a job wrote."""
    with connected(server, profile) as client:
        pieces = client.output(
            number, follow=follow, attempt=attempt, on_away=lambda error: tell(f"{error}; waiting for it")
        )
        if as_json:
            print(json.dumps({"id": number, "output": b"".join(pieces).decode("utf-8", "replace")}))
            return
        for piece in pieces:
            write(piece)


LOGS = Command(
    logs,
    "Print what a job wrote.",
    (
        ID,
        Option("follow", "-f, --follow", "until the job has ended, also if the service restarts meanwhile"),
        Option("attempt", "--attempt", "of this attempt (default: the last)", "N", positive),
        *CONNECTION,
    ),
    ("slotwise logs -f 7",),
)
