"""One host: a thread that keeps the connection, starts and ends virtual machines, and tells what it sees.

All that is done on a host is done by its thread, one thing after the other. Events of libvirt only wake it: what counts is a look at all domains,
which follows every event and every new connection, and comes now and then without one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from math import floor

from slotwise.errors import InputError
from slotwise.live.engines.libvirt.connection import (
    PAUSED,
    Connection,
    Found,
    GoneError,
    HostError,
    MissingError,
    Open,
    SeenDomain,
    Size,
    StorageFullError,
    WrongError,
)
from slotwise.live.engines.libvirt.consoles import Consoles
from slotwise.live.engines.libvirt.ends import NOT_FOUND, NOT_STARTED, STOPPED, end_of
from slotwise.live.engines.libvirt.hosts import Host, Hosts
from slotwise.live.engines.libvirt.making import CONSOLE, drop_parts, make_machine
from slotwise.live.engines.libvirt.marks import (
    Mark,
    epoch_of,
    fence_uuid,
    fence_xml,
    is_ours,
    key_of,
    name_of,
    read_mark,
    uuid_of,
)
from slotwise.live.engines.libvirt.opening import Opening
from slotwise.live.engines.libvirt.placed import Placed, Stale, deadline_of, must_end
from slotwise.live.engines.protocol import (
    Attempt,
    Deposed,
    Ended,
    Fact,
    Known,
    Lost,
    Refused,
    ServerDrained,
    ServerLost,
    ServersChanged,
    ServerUp,
    Start,
    Started,
    Tell,
    UnknownAttempt,
)

log = logging.getLogger(__name__)
LOOK_SECONDS = 10.0  # between two looks at all domains without an event
SWEEP_SECONDS = 600.0  # between two searches for volumes that belong to nothing
AGAIN_SECONDS = 1.0  # between two tries to connect
OPEN_SECONDS = 5.0  # that an attempt to connect is waited for; it goes on behind that
AWAY_SECONDS = 5.0  # without a connection until the host takes no more jobs; libvirtd restarts in less
PRESS_SECONDS = 5.0  # between two presses of the power button: a guest that boots may miss the first


class Worker:
    """See above. Methods without underscore are for other threads."""

    def __init__(self, host: Host, hosts: Hosts, store: str, consoles: Consoles, connect: Open) -> None:
        self.host, self.hosts, self.store, self.consoles = host, hosts, store, consoles
        self._open = connect
        self.placed: dict[Attempt, Placed] = {}
        self.connection: Connection | None = None
        self._opening: Opening | None = None
        self.found: Found | None = None
        self.first = threading.Event()
        """set after the first try to connect"""
        self.trouble = "not connected yet"
        self.epoch = 0
        self.tell: Tell = lambda facts: None
        self._taken_up = False
        self._queue: deque[Attempt] = deque()
        self._settled: deque[Attempt] = deque()
        self._seen: dict[Attempt, SeenDomain] = {}
        self._foreign: dict[str, Size] = {}
        self._stale: dict[Attempt, Stale] = {}
        self._told: Fact | None = None
        self._away_since = time.monotonic()
        self._lost = self._full = False
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._next_look = self._next_sweep = 0.0
        self._thread: threading.Thread | None = None

    # -- for other threads --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name=f"slotwise-libvirt-{self.host.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; domains go on."""
        self._closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        if self._opening is not None:
            self._opening.abandon()
        if self.connection is not None:
            self.connection.close()

    def take_up(self, keys: Sequence[Attempt]) -> dict[Attempt, Known]:
        """Return what is known of these attempts, which are all that an earlier service may have started here."""
        found: dict[Attempt, Known] = {}
        with self._lock:
            for key in keys:
                mark = self._mark(key) if key in self._seen else None
                begun = None if mark is None else mark.begun
                if begun is not None and self._seen[key].state == PAUSED and not self.consoles.has(key):
                    begun = None  # the service before was killed just before it let the guest go
                runs = begun is not None and not self._seen[key].has_ended
                self.placed[key] = Placed(None, mark, unsure=True, given=begun is not None, started=runs)
                found[key] = Started(*key, begun) if runs and begun is not None else UnknownAttempt()
            self._taken_up = True
        self.look_soon()
        return found

    def start(self, start: Start) -> None:
        """Start an attempt, unless it is started already."""
        key = start.job, start.attempt
        with self._lock:
            known = self.placed.get(key)
            if known is not None and known.given:
                return
            unsure = known is not None and known.unsure
            self.placed[key] = Placed(start, unsure=unsure, stop=known is not None and known.stop)
            if key not in self._queue:
                self._queue.append(key)
        self._wake.set()

    def stop(self, key: Attempt) -> None:
        """End an attempt."""
        with self._lock:
            if key in self.placed:
                self.placed[key].stop = True
        self._wake.set()

    def settle(self, key: Attempt) -> None:
        """Forget an attempt whose end is written down."""
        with self._lock:
            self._settled.append(key)
        self._wake.set()

    def look_soon(self) -> None:
        """Look at all domains as soon as possible."""
        self._next_look = 0.0
        self._wake.set()

    def up(self) -> ServerUp | None:
        """Return the host as a server; None if it takes no jobs now."""
        with self._lock:
            return self._up() if self.connection is not None and not self._full else None

    def tell_from_now_on(self) -> None:
        """The service has heard `up`; tell changes from there."""
        with self._lock:
            self._told = self.up() and ServersChanged((self._up(),))

    def output(self, key: Attempt) -> None:
        """Copy what is new on a console, if the host can be reached."""
        connection = self.connection
        if connection is not None and key in self.placed:
            with suppress(HostError):
                self.consoles.copy(key, connection, name_of(self.store, key) + CONSOLE)

    # -- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                if self.connection is None:
                    self._connect()
                self.round()
                self.first.set()  # before the wait, which may last: a start of the service waits for this
                self._wait()
            except GoneError as error:
                self._disconnected(str(error))
                self._closing.wait(AGAIN_SECONDS)
            except Exception:
                log.exception("host %s: the work failed, and is tried again", self.host.name)
                self._closing.wait(AGAIN_SECONDS)
            finally:
                self.first.set()

    def round(self) -> None:
        """Do one round of everything that is due."""
        connection = self._connected()
        if not connection.alive():
            raise GoneError("the connection was closed")
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_SECONDS
            self._look(connection)
        self._end_some(connection)
        while self._settled:
            self._clear(self._settled[0], connection)
            self._settled.popleft()
        if self._queue:
            self._give_next(connection)

    def _wait(self) -> None:
        """Sleep until something is due."""
        if self._queue or self._settled:
            return
        due = [self._next_look]
        with self._lock:
            if any(one.stop or one.asked is not None for one in self.placed.values()) or self._stale:
                due.append(time.monotonic() + 0.2)
            limits = [at for one in self.placed.values() if (at := deadline_of(one.mark)) is not None]
        due += [time.monotonic() + max(0.0, at - time.time()) for at in limits]
        self._wake.wait(max(0.0, min(due) - time.monotonic()))
        self._wake.clear()

    def _connected(self) -> Connection:
        if self.connection is None:
            raise GoneError("not connected")
        return self.connection

    def _connect(self) -> None:
        opening = self._opening or Opening(
            lambda: self._open(self.host.uri, self.hosts.pool, self.look_soon), self.host.name
        )
        self._opening = None
        try:
            connection = opening.result(OPEN_SECONDS)
        except HostError as error:
            raise GoneError(str(error)) from None
        if connection is None:
            self._opening = opening
            raise GoneError("it does not answer")
        try:
            found = connection.look()
            self._fence(connection)
            connection.free()
            self.found, self._next_look, self._next_sweep = found, 0.0, 0.0
            self.connection = connection
            self._look(connection)
        except HostError as error:
            self.connection = None
            connection.close()
            raise GoneError(str(error)) from None  # without a pool, for instance, the host cannot be used
        log.info("host %s is connected (%s)", self.host.name, self.host.uri)
        self._lost = False

    def _disconnected(self, reason: str) -> None:
        """Remember since when the host is away; tell so after a while, and that it is lost after a long while."""
        now = time.monotonic()
        if self.connection is not None:
            with suppress(HostError):
                self.connection.close()
            self.connection, self._away_since = None, now
        if reason != self.trouble:
            log.warning("host %s cannot be reached: %s", self.host.name, reason)
        self.trouble = reason
        away = now - self._away_since
        if away < AWAY_SECONDS or self._lost:
            return
        with self._lock:
            facts: list[Fact] = [ServerDrained(self.host.name, f"no connection: {reason}")]
            for key in [key for key in self._queue if not self.placed[key].unsure]:
                self._forget(key)
                facts.append(Refused(*key, f"host {self.host.name} cannot be reached: {reason}"))
            if away >= self.hosts.lost_after:
                facts.append(ServerLost(self.host.name, f"no connection for {away:.0f} s: {reason}"))
                self.placed.clear()
                self._queue.clear()
                self._lost = True
            if len(facts) > 1 or facts[0] != self._told:
                self._told = facts[0]
                self.tell(facts)

    def _fence(self, connection: Connection) -> None:
        """Make sure that no newer service uses this host, and tell older ones that this one does."""
        if not self.epoch:
            return  # only capacities are asked for
        carried = epoch_of(connection.mark(fence_uuid(self.store)))
        if carried > self.epoch:
            self.tell([Deposed(f"host {self.host.name} is used by a newer service of this store")])
            self._closing.set()
            raise GoneError("a newer service has taken over")
        if carried < self.epoch:
            connection.define(fence_xml(self.store, self.epoch, self.hosts.domain_type))

    # -- looking ------------------------------------------------------------------------------------------------

    def _look(self, connection: Connection) -> None:
        """Compare all domains of the host with what is known, and tell the difference."""
        domains = connection.domains()
        seen, others = {}, {}
        for one in domains:
            key = is_ours(self.store, one.name, one.uuid)
            if key is not None:
                seen[key] = one
            elif not one.has_ended:
                others[one.uuid] = one
        self._foreign = {uuid: self._foreign.get(uuid) or self._size(connection, uuid) for uuid in others}
        self._full = connection.free() < self.hosts.disk_reserve
        with self._lock:
            self._seen = seen
            if not self._taken_up:
                return
            known = {key: one for key, one in self.placed.items() if one.given and not one.told}
            strangers = [key for key in seen if key not in self.placed]
        facts = [fact for key, one in known.items() if (fact := self._judge(key, one, seen.get(key), connection))]
        if facts:
            self.tell(facts)
        for key in strangers:
            self._end_stale(key, seen[key], connection)
        self._tell_state()
        if time.monotonic() >= self._next_sweep:
            self._next_sweep = time.monotonic() + SWEEP_SECONDS
            self._sweep(connection)

    def _size(self, connection: Connection, uuid: str) -> Size:
        try:
            return connection.size(uuid)
        except MissingError:
            return Size(0.0, 0.0)

    def _judge(self, key: Attempt, one: Placed, seen: SeenDomain | None, connection: Connection) -> Fact | None:
        """Return what has become of an attempt that was started; None: nothing new."""
        if seen is None:
            one.told = True
            return Lost(*key, f"its domain is gone from host {self.host.name}")
        if one.mark is None or one.mark.begun is None:
            one.mark = read_mark(connection.mark(seen.uuid)) or one.mark
        if not seen.has_ended:
            if one.started or one.mark is None or one.mark.begun is None:
                return None
            one.started = True
            return Started(*key, one.mark.begun)
        if one.mark is None:
            one.told = True
            return Lost(*key, "its domain says nothing of the job any more")
        volume = name_of(self.store, key) + CONSOLE
        self.consoles.copy(key, connection, volume)
        one.told = True
        return end_of(
            one.mark,
            seen,
            self.consoles.tail(connection, volume),
            time.time(),
            stop=one.asked is not None or one.stop or one.mark.asked is not None or one.mark.pulled is not None,
        )

    def _mark(self, key: Attempt) -> Mark | None:
        connection = self.connection
        if connection is None:
            return None
        try:
            return read_mark(connection.mark(uuid_of(self.store, key)))
        except HostError:
            return None

    def _up(self) -> ServerUp:
        """Return the host with what is left of it for jobs: never less than those hold that have not ended, since they go on."""
        assert self.found is not None
        whole = self.hosts.capacity(self.host, self.found.size)
        held = [one.held() for one in self.placed.values() if not one.told]
        foreign = list(self._foreign.values())
        cpu = max(whole.cpu - sum(one.cpu for one in foreign), sum(one.cpu for one in held))
        memory = max(whole.memory - sum(one.memory for one in foreign), sum(one.memory for one in held))
        capacity = {"cpu": float(floor(cpu * 1000) / 1000), "memory": float(floor(memory * 1000) / 1000)}
        return ServerUp(self.host.name, capacity, {**self.found.labels, **self.host.labels})

    def _tell_state(self) -> None:
        """Tell whether the host takes jobs, and how much it has, if that has changed."""
        with self._lock:
            fact: Fact
            if self._full:
                free = f"its pool {self.hosts.pool} has less than {self.hosts.disk_reserve:g} MB free"
                fact = ServerDrained(self.host.name, free)
            else:
                fact = ServersChanged((self._up(),))
            if fact != self._told:
                self._told = fact
                self.tell([fact])

    # -- starting -----------------------------------------------------------------------------------------------

    def _give_next(self, connection: Connection) -> None:
        key = self._queue[0]
        one = self.placed.get(key)
        if one is not None and one.start is not None and not one.given:
            fact = self._give(key, one, one.start, connection)
            if fact is not None:
                if isinstance(fact, Refused):
                    self._forget(key)
                one.told = True
                self.tell([fact])
        with self._lock:
            if key in self._queue:
                self._queue.remove(key)
        self._next_look = 0.0

    def _give(self, key: Attempt, one: Placed, start: Start, connection: Connection) -> Fact | None:
        """Define and start a domain, or go on where an earlier try ended; return what else became of it."""
        self._fence(connection)
        uuid = uuid_of(self.store, key)
        one.mark = read_mark(connection.mark(uuid))
        if one.mark is None and self.consoles.has(key):
            return Lost(*key, f"its domain is gone from host {self.host.name}")
        begun = one.mark is not None and one.mark.begun is not None
        if one.stop and not begun:
            self._clear_parts(key, connection)
            return Ended(*key, STOPPED, time.time(), "stopped before it started")
        one.unsure = True
        try:
            if one.mark is None:
                one.mark = make_machine(connection, start, self.store, self.hosts.domain_type)
            if one.mark.begun is None:
                connection.create(uuid)
                mark = one.mark._replace(begun=time.time())
                connection.set_mark(uuid, mark.xml())
                connection.resume(uuid)
                one.mark = mark
            elif not self.consoles.has(key) and self._is_paused(key, connection):
                connection.resume(uuid)
        except GoneError:
            raise
        except (HostError, InputError) as error:
            self._clear_parts(key, connection)
            return self._failed(key, error)
        self.consoles.begin(key)
        one.given = True
        return None

    def _failed(self, key: Attempt, error: Exception) -> Fact:
        """Return the end of an attempt that the host did not start: of the job if it is to blame, else of the attempt."""
        if isinstance(error, MissingError):
            return Ended(*key, NOT_FOUND, time.time(), f"host {self.host.name}: {error}")
        if isinstance(error, WrongError | InputError):
            return Ended(*key, NOT_STARTED, time.time(), f"cannot be started: {error}")
        if isinstance(error, StorageFullError):
            self.tell([ServerDrained(self.host.name, f"its storage is full: {error}")])
            self._told, self._full = None, True
        return Refused(*key, f"host {self.host.name} refused it: {error}")

    def _is_paused(self, key: Attempt, connection: Connection) -> bool:
        """Return whether a domain waits to be let go: an earlier service was killed just before it did."""
        seen = next((one for one in connection.domains() if is_ours(self.store, one.name, one.uuid) == key), None)
        return seen is not None and seen.state == PAUSED

    # -- ending -------------------------------------------------------------------------------------------------

    def _end_some(self, connection: Connection) -> None:
        """Shut down what was stopped, is over its time limit or is stale; destroy what has not ended in time."""
        with self._lock:
            due = {key: one for key, one in self.placed.items() if one.given and not one.told and must_end(one)}
        for key, one in due.items():
            now = time.monotonic()
            one.asked = now if one.asked is None else one.asked
            assert one.mark is not None
            if now >= one.asked + one.mark.grace:
                if one.mark.pulled is None:
                    self._note(key, one, one.mark._replace(pulled=time.time()), connection)
                self._destroy(key, connection)
            elif now >= one.pressed + PRESS_SECONDS:
                one.pressed = now
                if one.mark.asked is None:
                    self._note(key, one, one.mark._replace(asked=time.time()), connection)
                self._shut_down(key, connection)
        for key, stale in self._stale.items():
            if time.monotonic() >= stale.asked + stale.grace:
                self._destroy(key, connection)

    def _note(self, key: Attempt, one: Placed, mark: Mark, connection: Connection) -> None:
        """Write on the domain what is about to be done to it: a service that starts after its end knows why it ended."""
        try:
            connection.set_mark(uuid_of(self.store, key), mark.xml())
        except GoneError:
            raise
        except HostError as error:  # it has just ended, for instance
            log.debug("host %s: job %d cannot be marked: %s", self.host.name, key[0], error)
        one.mark = mark

    def _shut_down(self, key: Attempt, connection: Connection) -> None:
        """Press the power button. A guest that does not hear it is destroyed later."""
        try:
            connection.shutdown(uuid_of(self.store, key))
        except GoneError:
            raise
        except HostError as error:  # it has just ended, for instance
            log.debug("host %s: job %d cannot be shut down: %s", self.host.name, key[0], error)
        self._next_look = 0.0

    def _destroy(self, key: Attempt, connection: Connection) -> None:
        with suppress(MissingError):
            connection.destroy(uuid_of(self.store, key))
        self._next_look = 0.0

    def _end_stale(self, key: Attempt, seen: SeenDomain, connection: Connection) -> None:
        """End a domain whose attempt has ended for the service: it was told as lost, and may have been started anew elsewhere."""
        if seen.has_ended:
            self._stale.pop(key, None)
            self._clear_parts(key, connection)
        elif key not in self._stale:
            log.warning(
                "host %s still runs attempt %d of job %d, which has ended here: it is ended",
                self.host.name,
                *key[::-1],
            )
            mark = read_mark(connection.mark(seen.uuid))
            self._stale[key] = Stale(time.monotonic(), 10.0 if mark is None else mark.grace)
            self._shut_down(key, connection)

    # -- forgetting ---------------------------------------------------------------------------------------------

    def _forget(self, key: Attempt) -> None:
        with self._lock:
            self.placed.pop(key, None)
            if key in self._queue:
                self._queue.remove(key)

    def _clear(self, key: Attempt, connection: Connection) -> None:
        """Remove an attempt from the host, and forget it."""
        one = self.placed.get(key)
        if one is not None and not one.told:
            return  # it runs: a late report of another service was settled
        self._clear_parts(key, connection)
        self._forget(key)
        self._tell_state()

    def _clear_parts(self, key: Attempt, connection: Connection) -> None:
        uuid = uuid_of(self.store, key)
        try:
            with suppress(MissingError):
                connection.destroy(uuid)
            connection.undefine(uuid)
            drop_parts(connection, self.store, key)
        except GoneError:
            raise
        except HostError as error:  # the next sweep tries again
            log.warning("host %s: job %d leaves something behind: %s", self.host.name, key[0], error)

    def _sweep(self, connection: Connection) -> None:
        """Delete volumes of attempts that are gone."""
        keys = {key for name in connection.volumes() if (key := key_of(self.store, name)) is not None}
        for key in keys:
            if key not in self._seen and key not in self.placed:
                drop_parts(connection, self.store, key)
