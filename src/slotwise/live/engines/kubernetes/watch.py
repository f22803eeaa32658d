"""List, then watch: an up-to-date copy of one kind of objects, whatever the API server and the network do.

A watch goes on from the version of the list. It ends now and then, and is resumed from the last version seen. When that version is too old (410,
as a status or as an event inside a 200), the objects are listed anew; what is missing in the list is gone. Objects are also listed anew
every `RELIST_SECONDS`, so that nothing a watch has lost stays lost.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slotwise.errors import SlotwiseError
from slotwise.live.engines.kubernetes.http import ApiClient, StatusError

log = logging.getLogger(__name__)
PAGE = 500  # objects of one answer to a list
LIST_SECONDS = 60.0
WATCH_SECONDS = 300  # after which the server ends a watch
SILENCE_SECONDS = WATCH_SECONDS + 30.0
RELIST_SECONDS = 900.0  # between two full lists, in case a watch has lost something
LONGEST_PAUSE = 5.0  # seconds between two tries, which begin closer together
GONE = 410  # HTTP status: the resource version is too old for a watch
GOING = ("ADDED", "MODIFIED")

Object = Mapping[str, Any]


class VersionGoneError(SlotwiseError):
    """The version from which to go on is too old."""


class Reflector:
    """A copy of the objects under one path. `listed` gets all of them, `changed` one event: its kind and the object."""

    def __init__(
        self,
        client: ApiClient,
        path: str,
        *,
        listed: Callable[[Sequence[Object]], None],
        changed: Callable[[str, Object], None],
        params: Mapping[str, str] | None = None,
        relist: float = RELIST_SECONDS,
        pause: float = 0.2,
        on_trouble: Callable[[str | None], None] = lambda trouble: None,
    ) -> None:
        self.client, self.path, self.params = client, path, dict(params or {})
        self.listed, self.changed, self.relist, self.pause = listed, changed, relist, pause
        self.on_trouble = on_trouble
        self.synced = asyncio.Event()
        self._version = ""
        self._asked, self._done = 1, 0  # lists that were asked for, and the newest of them that was answered
        self._watching: asyncio.Task[None] | None = None
        self._interrupted = False

    async def refresh(self) -> None:
        """List anew, and return when that is done."""
        self._asked += 1
        wanted = self._asked
        self.synced.clear()
        if self._watching is not None and not self._watching.done():
            self._interrupted = True
            self._watching.cancel()
        while self._done < wanted:
            await self.synced.wait()

    async def run(self) -> None:
        """Go on until cancelled."""
        failures, told = 0, False
        next_list = 0.0
        while True:
            try:
                if not self._version or self._done < self._asked or time.monotonic() >= next_list:
                    asked = self._asked
                    await self._list()
                    next_list = time.monotonic() + self.relist * random.uniform(0.9, 1.1)
                    self._done = asked
                    if asked == self._asked:
                        self.synced.set()
                if told:
                    told = False
                    log.info("%s: the API server answers again", self.path)
                self.on_trouble(None)
                failures = 0
                self._watching = asyncio.create_task(self._watch(next_list))
                try:
                    await self._watching
                except asyncio.CancelledError:
                    if not self._interrupted:
                        raise
                    self._interrupted = False
            except VersionGoneError:
                self._version = ""
            except (SlotwiseError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
                # 403 just after a restart of the server is as temporary as a refused connection; and what is no list
                # and no event comes from a proxy in between
                if isinstance(error, StatusError) and error.status == GONE:
                    self._version = ""
                failures += 1
                self.on_trouble(f"{self.path}: {error}")
                if failures == 3:
                    told = True
                    log.warning("%s: %s; trying on", self.path, error)
                await asyncio.sleep(min(LONGEST_PAUSE, self.pause * 2 ** min(failures, 8)) * random.uniform(0.5, 1))

    async def _list(self) -> None:
        found: list[Object] = []
        params: dict[str, Any] = {**self.params, "limit": PAGE}
        while True:
            answer = await self.client.call("GET", self.path, params=params, timeout=LIST_SECONDS)
            found += answer.get("items") or ()
            meta = answer["metadata"]
            if not meta.get("continue"):
                break
            params["continue"] = meta["continue"]
        self._version = meta["resourceVersion"]
        self.listed(found)

    async def _watch(self, until: float) -> None:
        left = max(1, min(WATCH_SECONDS, int(until - time.monotonic())))
        params = {
            **self.params,
            "watch": "true",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": left,
        }
        async for line in self.client.lines(self.path, params, SILENCE_SECONDS):
            if not line.strip():
                continue
            event = json.loads(line)
            kind, seen = event["type"], event["object"]
            if kind == "ERROR":
                if seen.get("code") == GONE:
                    raise VersionGoneError(str(seen.get("message") or "too old"))
                raise StatusError(int(seen.get("code") or 500), seen)
            if kind in GOING or kind == "DELETED":
                self.changed(kind, seen)
            self._version = seen["metadata"]["resourceVersion"]
