"""What a job inherits of the service's environment, and what the service tells it; all else it must be given."""

from __future__ import annotations

import os

from slotwise.live.engines.protocol import Start

KEPT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ")


def inherited() -> dict[str, str]:
    """Who and where one is, and the language; nothing that may be a secret."""
    names = [name for name in os.environ if name in KEPT or name.startswith("LC_")]
    return {name: os.environ[name] for name in names}


def told(start: Start) -> dict[str, str]:
    """Return the variables that tell a job what it is.

    The server's name is not in SLOTWISE_SERVER: that is the address of the service, for jobs that submit jobs.
    """
    found = {
        "SLOTWISE_JOB_ID": str(start.job),
        "SLOTWISE_ATTEMPT": str(start.attempt),
        "SLOTWISE_SERVER_NAME": start.server,
    }
    if start.spec.get("array_index") is not None:
        found["SLOTWISE_ARRAY_INDEX"] = str(start.spec["array_index"])
    if start.spec.get("array_id") is not None:
        found["SLOTWISE_ARRAY_ID"] = str(start.spec["array_id"])
    return found
