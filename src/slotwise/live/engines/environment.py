"""What a job inherits of the service's environment; all else it must be given."""

from __future__ import annotations

import os

KEPT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ")


def inherited() -> dict[str, str]:
    """Who and where one is, and the language; nothing that may be a secret."""
    names = [name for name in os.environ if name in KEPT or name.startswith("LC_")]
    return {name: os.environ[name] for name in names}
