"""Requests that outlast a restart of the service. Standard library only: the client imports this module."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from slotwise.live.client import Rhythm
from slotwise.live.transport import ServiceError

T = TypeVar("T")
TOO_MANY = 429  # status: more jobs of the tenant would wait than the service allows


def patiently(
    request: Callable[[], T],
    on_away: Callable[[ServiceError], None] | None = None,
    patience: float | None = None,
) -> T:
    """Return what a request returns. Repeat the request while the service is away, or while too many jobs wait.

    The request must be safe to repeat: a submission needs a key. `on_away` is called once, with the first error. After
    `patience` seconds without the service (by default ten minutes), its error is raised.
    """
    rhythm, told = Rhythm(None, patience), False
    while True:
        try:
            return request()
        except ServiceError as error:
            if error.status != TOO_MANY:
                rhythm.bear(error)
            if not told and on_away is not None:
                on_away(error)
            told = True
            time.sleep(rhythm.pause(False))
