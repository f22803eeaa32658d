"""Deliveries: each hook has a thread that follows the journal and tells its events in order.

The queue of a hook is the journal itself, so it takes no memory, and events of the time in which the service was down are delivered, too. The
position of each hook is kept in the store, a few seconds late: after a crash the last events may be delivered once more, with the same identity.
An event that does not arrive is tried again, after 1, 2, 4, ... seconds and at most a minute, and later events wait behind it. It is given up when
it is a day old, or when its receiver has refused it `REFUSALS` times. The loop that decides does nothing for hooks but keep their positions.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from slotwise.errors import SlotwiseError
from slotwise.live.hooks import events
from slotwise.live.hooks.definition import Hook
from slotwise.live.hooks.events import Event
from slotwise.live.hooks.sending import DeliveryError, deliver
from slotwise.live.loop import Loop
from slotwise.live.store.protocol import Store

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.5  # between two looks at the journal
SAVE_SECONDS = 5.0  # between two times that a position is kept
FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 60.0  # seconds
GIVE_UP_SECONDS = 86_400.0  # age of an event that is not tried again
REFUSALS = 5  # tries of an event that its receiver refuses (answers 300 to 499)
END_SECONDS = 2.0  # that the end of the service waits for a delivery
LIMIT = 100  # rows that one search gives
RECENT = 20  # deliveries and failures that are shown
TROUBLED = 3  # tries of one event after which `slotwise status` tells of it


@dataclass
class HookState:
    """What is kept of a hook."""

    seq: int
    delivered: int = 0
    given_up: int = 0
    missed: int = 0
    """rows of the journal that were dropped before the hook came to them"""
    last: float | None = None
    """when an event was last delivered"""
    failures: list[dict[str, Any]] = field(default_factory=list)
    """the newest events that were given up"""


@dataclass
class PendingEvent:
    """An event that is not delivered yet."""

    id: str
    event: str
    since: float
    tries: int
    error: str
    next: float


class HookThread:
    """One hook and its thread."""

    def __init__(self, hook: Hook, store: Store, loop: Loop, state: HookState, identity: str) -> None:
        self.hook, self.state = hook, state
        self.trial: PendingEvent | None = None
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT)
        self._store, self._loop, self._identity = store, loop, identity
        self._ending = threading.Event()
        self._saved, self._saved_at = state.seq, time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"slotwise-hook-{hook.name}", daemon=True)

    def start(self) -> None:
        """Begin to follow the journal."""
        self._thread.start()

    def end(self) -> None:
        """Ask the thread to end."""
        self._ending.set()

    def join(self) -> None:
        """Wait a moment until the thread has ended. A delivery that takes longer is made again after the next start."""
        self._thread.join(END_SECONDS)

    def _run(self) -> None:
        while not self._ending.is_set() and not self._loop.ended.is_set():
            try:
                is_moved = self.state.seq < self._loop.ledger.seq and self._advance()
            except Exception:  # the store may be away for a moment, and no mistake here may end the hook
                log.exception("hook %s: cannot read the journal; trying again", self.hook.name)
                is_moved = False
            self._save(SAVE_SECONDS)
            if not is_moved:
                self._ending.wait(LOOK_SECONDS)
        self._save(0.0)

    def _advance(self) -> bool:
        """Deliver the next events; return whether there was anything to read."""
        state = self.state
        first = self._store.first_seq()
        if first is not None and first > state.seq + 1:
            state.missed += first - state.seq - 1
            log.warning(
                "hook %s: the journal was trimmed before row %d; what it held is not told", self.hook.name, first
            )
            state.seq = first - 1
        entries, searched = events.search(self._store, self.hook.events, state.seq, LIMIT)
        if searched == state.seq:
            return False
        for entry in entries:
            for event in events.of_entry(entry):
                if event.name in self.hook.events and not self._tell(event):
                    return False
            state.seq = entry.seq
            self._save(SAVE_SECONDS)
        state.seq = searched
        return True

    def _tell(self, event: Event) -> bool:
        """Deliver an event, however often it has to be tried; return False if the service ends before."""
        body = events.body_of(event, self._store, self._identity, self.hook.tenant)
        if body is None:
            return True
        identity, since, tries, refusals = event.identity(self._identity), time.time(), 0, 0
        while not self._ending.is_set() and not self._loop.ended.is_set():
            try:
                deliver(self.hook, identity, event.name, body)
            except DeliveryError as error:
                tries += 1
                refusals += error.is_refused
                now = time.time()
                if refusals >= REFUSALS or now - event.time > GIVE_UP_SECONDS:
                    self._give_up(identity, event, str(error))
                    return True
                if tries == TROUBLED:
                    log.warning("hook %s: %s is not delivered: %s", self.hook.name, identity, error)
                wait = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(tries - 1, 20))
                self.trial = PendingEvent(identity, event.name, since, tries, str(error), now + wait)
                self._save(SAVE_SECONDS)
                self._ending.wait(wait)
            else:
                self.trial = None
                self.state.delivered += 1
                self.state.last = time.time()
                self.recent.append(
                    {"id": identity, "event": event.name, "time": self.state.last, "tries": tries + 1}
                )
                return True
        return False

    def _give_up(self, identity: str, event: Event, error: str) -> None:
        log.warning("hook %s: %s is given up: %s", self.hook.name, identity, error)
        self.trial = None
        self.state.given_up += 1
        lost = {"id": identity, "event": event.name, "time": time.time(), "error": error}
        self.state.failures = [*self.state.failures, lost][-RECENT:]

    def _save(self, after: float) -> None:
        """Keep the state in the store, if it has changed and was not kept for so many seconds."""
        if self.state.seq == self._saved or time.monotonic() - self._saved_at < after:
            return
        name, text, seq = self.hook.name, json.dumps(asdict(self.state)), self.state.seq

        def act(ledger: Any, now: float) -> None:
            ledger.batch.hooks[name] = text

        try:
            self._loop.ask(act).result(self.hook.timeout)
        except (SlotwiseError, TimeoutError) as error:
            log.info("hook %s: its position is not kept now: %s", name, error)
        else:
            self._saved = seq
        self._saved_at = time.monotonic()

    def view(self) -> dict[str, Any]:
        """Return what is shown of the hook."""
        return {
            "name": self.hook.name,
            "on": sorted(self.hook.events),
            "target": self.hook.target,
            "tenant": self.hook.tenant,
            "behind": max(0, self._loop.ledger.seq - self.state.seq),
            **asdict(self.state),
            "trial": None if self.trial is None else asdict(self.trial),
            "recent": list(self.recent),
        }

    def trouble(self, now: float) -> str | None:
        """Return what is wrong with the hook; None: nothing."""
        trial, lost = self.trial, [one for one in self.state.failures if one["time"] > now - GIVE_UP_SECONDS]
        if trial is not None and trial.tries >= TROUBLED:
            return f"hook {self.hook.name}: {trial.event} was not delivered in {trial.tries} tries: {trial.error}"
        if lost:
            return f"hook {self.hook.name} gave up {len(lost)} events in the last 24 h: {lost[-1]['error']}"
        return None


class HookDelivery:
    """All hooks of a service."""

    def __init__(self, hooks: Sequence[Hook], store: Store, loop: Loop) -> None:
        kept = store.hook_states() if hooks else {}
        identity = store.identity().identity if hooks else ""
        begin = loop.ledger.seq  # a new hook is told what happens from now on
        self.followers = {
            hook.name: HookThread(hook, store, loop, state_of(kept.get(hook.name), begin), identity)
            for hook in hooks
        }

    def start(self) -> None:
        """Begin to deliver."""
        for one in self.followers.values():
            log.info("hook %s: %s to %s", one.hook.name, ", ".join(sorted(one.hook.events)), one.hook.target)
            one.start()

    def close(self) -> None:
        """End all deliveries; those that wait are made after the next start."""
        for one in self.followers.values():
            one.end()
        for one in self.followers.values():
            one.join()

    def views(self) -> list[dict[str, Any]]:
        """Return what is shown of all hooks."""
        return [one.view() for one in self.followers.values()]

    def troubles(self) -> list[str]:
        """Return what is wrong, a line for each hook."""
        now = time.time()
        return [text for one in self.followers.values() if (text := one.trouble(now)) is not None]

    def test(self, name: str) -> str | None:
        """Send a test event at once; return what went wrong, or None."""
        follower = self.followers[name]
        now = time.time()
        body = {"id": f"test-{now:.3f}", "event": events.TEST, "time": now}
        try:
            deliver(follower.hook, str(body["id"]), events.TEST, json.dumps(body).encode())
        except DeliveryError as error:
            return str(error)
        return None


def state_of(text: str | None, begin: int) -> HookState:
    """Return the state that the store kept; that of a new hook if there is none, or if it is damaged."""
    if text is not None:
        try:
            found = HookState(**json.loads(text))
            if isinstance(found.seq, int) and isinstance(found.failures, list):
                return found
        except (ValueError, TypeError):
            log.warning("the state of a hook is damaged; it begins anew")
    return HookState(begin)
