"""Alarms: what needs a person's attention now, each with a kind that does not change and a sentence that says what is wrong.

| kind | raised when |
|---|---|
| trouble | the store cannot be written, or the loop has failed |
| fault | the policy has failed |
| servers | a server is down |
| starvation | the oldest waiting job of a type has waited `OVERDUE` times the mean time in the system, and at least a minute |
| overload | the observed load is outside the capacity region of the servers that are up: no policy can carry it |
| hooks | an event could not be delivered to a hook |
| forecast | forecasts miss: their 80 % intervals hold much more or less than 80 % of the starts |
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from typing import Any

from slotwise.errors import SlotwiseError
from slotwise.live.board import STATUSES, Board
from slotwise.live.observed import Load, observe
from slotwise.live.server_books import AWAY, UP
from slotwise.live.service import Service

log = logging.getLogger(__name__)
OVERDUE = 10.0  # times the mean time in the system
LEAST_WAIT = 60.0  # seconds: a job that has waited less does not starve
FRESH_SECONDS = 30.0  # the load is a mean over an hour, and moves slowly
COST_SHARE = 0.02  # of one CPU's time at most goes into locating the load
COVERAGE_RANGE = (0.70, 0.90)  # of 80 % intervals
LEAST_FORECASTS = 200  # fewer do not tell a coverage of 70 % from one of 80 %


class Alarms:
    """What is wrong now, and since when. Locating the load takes a while, so a thread does that now and then."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._since: dict[str, float] = {}
        self._load: Load | None = None
        self._next_look = 0.0
        self._looking = threading.Lock()
        self._coverage: tuple[float | None, int] = (None, 0)
        """coverage of the forecasts, and of how many"""

    @property
    def load(self) -> Load | None:
        """The observed load; None before it was located for the first time."""
        return self._load

    def now(self, board: Board) -> list[dict[str, Any]]:
        """Return the alarms, each with `kind`, `text` and `since`."""
        self._look()
        found = dict(self._found(board))
        self._since = {kind: self._since.get(kind, board.now) for kind in found}
        return [{"kind": kind, "text": text, "since": self._since[kind]} for kind, text in found.items()]

    def _found(self, board: Board) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        trouble = self._service.loop.trouble
        if trouble is not None:
            found.append(("trouble", trouble))
        if board.fault is not None:
            found.append(("fault", f"the policy {board.policy} failed: {board.fault}"))
        away = [
            name for (name, _), row in zip(board.names, board.rows, strict=True) if row[0] == STATUSES.index(AWAY)
        ]
        if away:
            found.append(("servers", f"{_several(len(away), 'server is', 'servers are')} down: {_some(away)}"))
        overdue = self._overdue(board)
        if overdue:
            found.append(("starvation", f"jobs of {_some(overdue)} have waited far longer than usual"))
        undelivered = self._service.hooks.troubles()
        if undelivered:
            found.append(("hooks", undelivered[0]))
        load = self._load
        if load is not None and load.outside:
            at = "" if load.intensity is None else f" (intensity {load.intensity:.2f})"
            text = f"the load of the last {load.window / 60:.0f} min is outside the capacity region{at}: queues grow under any policy"
            found.append(("overload", text))
        coverage, of = self._coverage
        if (
            coverage is not None
            and of >= LEAST_FORECASTS
            and not COVERAGE_RANGE[0] <= coverage <= COVERAGE_RANGE[1]
        ):
            found.append(("forecast", f"80 % intervals of forecasts held {coverage:.0%} of the last {of:,} starts"))
        return found

    def _overdue(self, board: Board) -> list[str]:
        """Types whose oldest waiting job has waited far too long."""
        seen = {} if self._load is None else self._load.seen
        late = []
        for name, (_, _, since) in board.queues.items():
            if since is None:
                continue
            usual = seen.get(name)
            in_system = 0.0 if usual is None else (usual.wait or 0.0) + (usual.service or 0.0)
            if in_system > 0 and board.now - since > max(LEAST_WAIT, OVERDUE * in_system):
                late.append(name)
        return late

    def _look(self) -> None:
        """Locate the load anew in a thread, if it is time to and no thread does."""
        if time.monotonic() >= self._next_look and self._looking.acquire(blocking=False):
            threading.Thread(target=self._locate, name="slotwise-load", daemon=True).start()

    def _locate(self) -> None:
        began = time.monotonic()
        loop = self._service.loop
        try:
            core, servers = loop.ledger.core, list(loop.ledger.servers.values())
            up = Counter(server.server_class for server in servers if server.status == UP)
            self._load = observe(
                self._service.store, core.cluster, list(core.types), core.policy, up, loop.clock.now()
            )
            if self._service.forecasts.is_ready:
                told = self._service.forecasts.ask("coverage").get("all", {})
                self._coverage = told.get("coverage"), told.get("of", 0)
        except (
            SlotwiseError,
            RuntimeError,
        ) as error:  # the loop has changed a table meanwhile, or the store is away
            log.info("the load could not be located: %s", error)
        finally:
            took = time.monotonic() - began
            self._next_look = time.monotonic() + max(FRESH_SECONDS, took / COST_SHARE)
            self._looking.release()


def _several(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"


def _some(names: list[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"
