"""Waiting for the service and for jobs, as all shims do it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from slotwise.live.client import Client
from slotwise.live.transport import ServiceError

AWAY = 60.0  # seconds that a shim waits for a service that restarts


def say_away(command: str) -> Callable[[ServiceError], None]:
    """Return what tells that the service does not answer."""
    return lambda error: print(f"{command}: {error}; waiting for it", file=sys.stderr, flush=True)


def wait_for(client: Client, numbers: Sequence[int]) -> int:
    """Wait until jobs have ended; the largest exit code."""
    jobs = client.wait(numbers)
    codes = [(job.exit_code or 0) if job.state == "done" else job.exit_code or 1 for job in jobs]
    return max((128 - code if code < 0 else code for code in codes), default=1)
