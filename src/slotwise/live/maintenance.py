"""The books of maintenance and reservations: when a server is closed for a window, and when it takes jobs again. `slotwise.live.windows` says by which rule.

Every closing, opening and placement on a reserved server is a row of the journal, so the journal replays without knowing of windows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from slotwise.errors import InputError
from slotwise.live.engines.protocol import ServerUp
from slotwise.live.held_books import HeldBooks
from slotwise.live.newjob import NewJob
from slotwise.live.server_books import AWAY, DRAINING, UP
from slotwise.live.store.records import CANCELLED, OVER, Window
from slotwise.live.windows import Expected, PlacementKey, can_hold
from slotwise.scheduling import Scheduler
from slotwise.scheduling.earliest import demand_of, free_of, keeps_free
from slotwise.scheduling.events import Event, Fail, Requeue

BY_MAINTENANCE = "maintenance "  # the reason of a server begins so where a window has closed it
BY_RESERVATION = "reservation "  # the same for a window of a tenant
FILL_SECONDS = 1.0  # between two placements of waiting jobs on reserved servers: each makes the core anew
FILL_SHARE = 0.05  # of the loop's time that such placements take at most


class MaintenanceBooks(HeldBooks):
    """Servers that are closed for windows."""

    def __init__(self, core: Scheduler, **numbers: int) -> None:
        super().__init__(core, **numbers)
        self.windows: dict[int, Window] = {}
        """planned windows by number"""
        self.next_window = 1
        self._expected: Expected | None = None
        """None: there is no window, and no job need be followed"""
        self.next_maintenance = float("inf")
        """when `maintain` has something to do, whatever else happens"""
        self._fitting: tuple[Any, dict[tuple[str, PlacementKey], bool]] = (None, {})
        """classes and types of the core, and which class can hold a job of which group"""
        self._returning: dict[str, ServerUp] = {}
        """servers that came back while they were to be closed"""
        self._next_fill = 0.0

    # -- what operators ask for -----------------------------------------------------------------------------------

    def follow_jobs(self) -> None:
        """Follow what is expected of new jobs from now on."""
        if self._expected is None:
            self._expected = Expected(lambda number: number in self.core and number not in self.live)

    def is_followed(self) -> bool:
        """Return whether what is expected of jobs must be known."""
        return bool(self.windows)

    def stop_following(self) -> None:
        """Forget what is expected of jobs, if nothing needs it any more."""
        if not self.is_followed():
            self._expected = None

    def know(self, jobs: Iterable[tuple[int, PlacementKey, float | None]], learnt: Mapping[str, float]) -> None:
        """Take in what the store says of jobs that were there before they were followed."""
        self.follow_jobs()
        expected = self._expected
        assert expected is not None
        expected.learnt = learnt
        for number, group, seconds in jobs:
            if number in self.core:
                expected.add(number, group, seconds)

    def plan(self, window: Window, now: float) -> Window:
        """Plan a window. Its number is given here. Jobs are followed, and `know` was called."""
        self._server(window.server)
        if window.tenant and not keeps_free(self.core):
            raise InputError(
                f"policy {self.core.policy.label} does not go by free capacity",
                where="tenant",
                remedy="use another policy, such as guarded or best-fit, to reserve servers for tenants",
            )
        if window.until <= window.begin:
            raise InputError("is not after from", where="until", remedy="give a window that has some length")
        if window.until <= now:
            raise InputError("is in the past", where="until", remedy="give a window that is not over")
        for other in self.windows.values():
            if other.server == window.server and other.begin < window.until and window.begin < other.until:
                raise InputError(
                    f"overlaps window {other.id}",
                    where=window.server,
                    remedy=f"cancel it: slotwise maintenance cancel {other.id}",
                )
        window = window._replace(id=self.next_window)
        self.next_window += 1
        self.windows[window.id] = self.batch.windows[window.id] = window
        row = {"event": "maintenance", "window": window.id, "server": window.server, "from": window.begin}
        row |= {"tenant": window.tenant} if window.tenant else {}
        self._note({**row, "until": window.until, "reason": window.reason, "now": now}, now)
        self.maintain(now)
        return window

    def cancel_window(self, number: int, now: float) -> Window:
        """Cancel a window that is planned, or end one that has begun: its server takes jobs again."""
        window = self.windows.get(number)
        if window is None:
            raise InputError(f"there is no planned window {number}", remedy="see slotwise maintenance list")
        self._end_window(window, CANCELLED, now)
        self.maintain(now)
        return window._replace(state=CANCELLED)

    def resume(self, name: str, now: float) -> None:
        """Let a draining server take jobs again, unless a window closes it."""
        window, server = self._closing(name, now), self.servers.get(name)
        if window is None or server is None or server.status != DRAINING:
            super().resume(name, now)
        elif is_ours(server.reason):
            raise InputError(
                f"server {name!r} is closed for {kind_of(window)}window {window.id}",
                remedy=f"slotwise maintenance cancel {window.id}",
            )
        else:
            self._put(server._replace(reason=reason_of(window)))

    def remove(self, name: str, now: float) -> None:
        """Forget a server without jobs, with its windows."""
        super().remove(name, now)
        for window in [one for one in self.windows.values() if one.server == name]:
            self._end_window(window, CANCELLED, now)

    # -- what happens ---------------------------------------------------------------------------------------------

    def maintain(self, now: float) -> None:
        """Close servers whose windows begin, or for which a job waits that would not end in time; open others again."""
        if not self.windows:
            return
        for over in [one for one in self.windows.values() if one.until <= now]:
            self._end_window(over, OVER, now)
        for name in sorted({one.server for one in self.windows.values()}):
            window = self._closing(name, now)
            if window is not None:
                self._close(name, window, now)
            else:
                self._open(name, now)
        self.next_maintenance = min(
            (self._next_change(one, now) for one in self.windows.values()), default=float("inf")
        )
        if any(one.tenant and one.begin <= now for one in self.windows.values()):
            self._fill_reserved(now)
            self.next_maintenance = min(self.next_maintenance, self._next_fill)

    def _next_change(self, window: Window, now: float) -> float:
        """Return when a window changes something by itself: it begins, it is over, or the longest waiting job would reach into it."""
        if window.begin <= now:
            return window.until
        server = self.servers.get(window.server)
        is_open = server is not None and server.status == UP
        return window.begin - self._longest(window) if is_open else window.begin

    def server_up(self, fact: ServerUp, now: float) -> None:
        """Let a server join. If a window closes it, it joins when the window is over."""
        server = self.servers.get(fact.name)
        if server is not None and server.status == AWAY and self._closing(fact.name, now) is not None:
            self._returning[fact.name] = fact
            return
        super().server_up(fact, now)

    def _apply(self, event: Event, note: dict[str, Any] | None = None) -> None:
        """Close servers before jobs come back to their queues that would not end in time."""
        expected = self._expected
        back: list[int] = []
        if expected is not None:
            if isinstance(event, Requeue):
                back = [int(str(event.job))]
            elif isinstance(event, Fail):
                back = [job for job, live in self.live.items() if live.server == event.server]
            for number in back:
                self._guard(*expected.known(number), event.now)
        super()._apply(event, note)
        for number in back:
            if expected is not None:
                expected.waits_again(number)

    def _expect(self, numbers: range, job: NewJob, group: PlacementKey, now: float) -> None:
        """Follow jobs that are about to be submitted to the core, and close servers that they must not come to."""
        if self._expected is None:
            return
        seconds = job.limit if job.limit is not None else job.duration
        for number in numbers:
            self._expected.add(number, group, seconds)
        self._guard(group, seconds, now)

    def _is_over(self, number: int, state: str) -> None:
        if self._expected is not None:
            self._expected.drop(number)
        super()._is_over(number, state)

    def is_closed(self, window: Window, now: float) -> bool:
        """Return whether the server of a window is closed for it now."""
        return self._closing(window.server, now) is window

    def expected_of(self, number: int, assumed: float) -> float:
        """Return how many seconds a job is expected to take."""
        if self._expected is None:
            return assumed
        group, seconds = self._expected.known(number)
        return self._expected.seconds(group, seconds, assumed)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _fill_reserved(self, now: float) -> None:
        """Place waiting jobs of tenants on the servers that are reserved for them, the oldest first."""
        if now < self._next_fill or self._expected is None:
            return
        began, places = time.perf_counter(), list[dict[str, Any]]()
        for window in [one for one in self.windows.values() if one.tenant and one.begin <= now]:
            server = self.servers.get(window.server)
            if server is None or server.status != DRAINING or not is_ours(server.reason):
                continue
            free, fits = free_of(self.core, window.server), self._fits(window)
            for number, group in self._expected.waiting_of(window.tenant):
                if any(one["job"] == number for one in places) or not fits(group):
                    continue
                demand = demand_of(self.core, number)
                if (demand <= free).all():
                    free = free - demand
                    places.append({"job": number, "server": window.server})
        if places:
            self._place(places, now)
        self._next_fill = now + max(FILL_SECONDS, (time.perf_counter() - began) / FILL_SHARE)

    def _place(self, places: list[dict[str, Any]], now: float) -> None:
        """Place jobs on servers that are closed for all others."""
        self._change(now, {"place": places})

    def _guard(self, group: PlacementKey, seconds: float | None, now: float) -> None:
        """Close the servers on which a job of this group could be started and would not end in time."""
        expected = self._expected
        if expected is None:
            return
        for window in self.windows.values():
            reaches = now < window.begin < now + expected.seconds(group, seconds, window.assumed)
            if reaches and self._must_end(window)(group):
                self._close(window.server, window, now)

    def _closing(self, name: str, now: float) -> Window | None:
        """Return the window for which a server must be closed now."""
        for window in self.windows.values():
            is_near = window.server == name and now < window.until
            if is_near and (window.begin <= now or now + self._longest(window) > window.begin):
                return window
        return None

    def _longest(self, window: Window) -> float:
        """Return how long the longest waiting job takes that the server of a window could hold."""
        return 0.0 if self._expected is None else self._expected.longest(self._must_end(window), window.assumed)

    def _must_end(self, window: Window) -> Callable[[PlacementKey], bool]:
        """Return a function that says whether a job of a group must have ended on the server of a window when the window begins."""
        fits = self._fits(window)
        return lambda group: not (window.tenant and group.tenant == window.tenant) and fits(group)

    def _fits(self, window: Window) -> Callable[[PlacementKey], bool]:
        """Return a function that says whether the server of a window could hold a job of a group."""
        server, classes, types = self.servers.get(window.server), self.core.cluster.servers, self.core.types
        if self._fitting[0] is None or self._fitting[0][0] is not classes or self._fitting[0][1] is not types:
            self._fitting = (classes, types), {}
        known = self._fitting[1]
        name = "" if server is None else server.server_class

        def fits(group: PlacementKey) -> bool:
            found = known.get((name, group))
            if found is None:
                server_class = next((one for one in classes if one.name == name), None)
                by_name = {one.name: one for one in types}
                found = server_class is not None and can_hold(
                    group, by_name, server_class, self.core.cluster.resources
                )
                known[name, group] = found
            return found

        return fits

    def _close(self, name: str, window: Window, now: float) -> None:
        server = self.servers.get(name)
        if server is not None and server.status == UP:
            self.drain(name, now, reason_of(window))

    def _open(self, name: str, now: float) -> None:
        server = self.servers.get(name)
        if name in self._returning:
            super().server_up(self._returning.pop(name), now)
        elif server is not None and server.status == DRAINING and is_ours(server.reason):
            super().resume(name, now)

    def _end_window(self, window: Window, state: str, now: float) -> None:
        del self.windows[window.id]
        self.batch.windows[window.id] = window._replace(state=state)
        self._note({"event": "maintenance-over", "window": window.id, "state": state, "now": now}, now)
        if not any(one.server == window.server for one in self.windows.values()):
            self._open(window.server, now)
        self.stop_following()


def is_ours(reason: str | None) -> bool:
    """Return whether a window has closed a server, by the reason that it has."""
    return (reason or "").startswith((BY_MAINTENANCE, BY_RESERVATION))


def kind_of(window: Window) -> str:
    """Return how the reason of a server begins that a window has closed."""
    return BY_RESERVATION if window.tenant else BY_MAINTENANCE


def reason_of(window: Window) -> str:
    """Return why a server is closed.

    >>> reason_of(Window(3, "node1", 1767225600.0, 1767229200.0, "new disk"))
    'maintenance window 3, 2026-01-01 00:00 to 2026-01-01 01:00 UTC: new disk'
    """
    begin, until = (time.strftime("%Y-%m-%d %H:%M", time.gmtime(at)) for at in (window.begin, window.until))
    owner = f", for tenant {window.tenant}" if window.tenant else ""
    return f"{kind_of(window)}window {window.id}, {begin} to {until} UTC{owner}" + (
        f": {window.reason}" if window.reason else ""
    )
