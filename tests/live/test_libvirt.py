"""The engine for libvirt against hosts in memory. Rounds are made by hand, without threads: nothing here waits for time to pass."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fake_libvirt import RUNNING, FakeHost
from processes import PATIENCE

from slotwise.errors import InputError
from slotwise.live.engines.libvirt import engine as engine_module
from slotwise.live.engines.libvirt import worker as module
from slotwise.live.engines.libvirt.connection import (
    BY_GUEST,
    CRASHED,
    DESTROYED,
    FAILED,
    PAUSED,
    SAVED,
    SHUTOFF,
    GoneError,
    HostError,
    SeenDomain,
    Size,
    WrongError,
)
from slotwise.live.engines.libvirt.consoles import Consoles
from slotwise.live.engines.libvirt.domains import Paths, domain_xml, mark_for
from slotwise.live.engines.libvirt.ends import end_of
from slotwise.live.engines.libvirt.engine import LibvirtEngine
from slotwise.live.engines.libvirt.hosts import checked_hosts, read_hosts
from slotwise.live.engines.libvirt.marks import Mark, is_ours, key_of, name_of, read_mark, uuid_of
from slotwise.live.engines.libvirt.opening import Opening
from slotwise.live.engines.libvirt.seed import seed
from slotwise.live.engines.libvirt.worker import Worker
from slotwise.live.engines.protocol import (
    Attempt,
    Deposed,
    Ended,
    Fact,
    Lost,
    Refused,
    ServerDrained,
    ServerLost,
    ServersChanged,
    Start,
    Started,
    UnknownAttempt,
)
from slotwise.live.spec import check_work

STORE = "0123456789abcdef"
ONE: Attempt = (1, 1)


def hosts(**more: Any) -> Any:
    return checked_hosts({"hosts": [{"name": "h", "uri": "qemu:///system"}], **more}, "file")


class House:
    """A worker of one host, whose rounds are made by hand; `again` is a restart of the service."""

    def __init__(self, folder: Path, host: FakeHost | None = None, **more: Any) -> None:
        self.host = host or FakeHost()
        self.folder, self.hosts, self.epoch = folder, hosts(**more), 0
        self.facts: list[Fact] = []
        self.again([])

    def again(self, live: list[Attempt]) -> dict[Attempt, Any]:
        self.epoch += 1
        consoles = Consoles(self.folder)
        consoles.open()
        self.worker = Worker(self.hosts.hosts[0], self.hosts, STORE, consoles, self.host.open)
        self.worker.tell, self.worker.epoch = self.facts.extend, self.epoch
        self.worker.first.set()
        with suppress(GoneError):
            self.worker._connect()
        known = self.worker.take_up(live)
        self.worker.tell_from_now_on()
        return known

    def start(self, key: Attempt = ONE, **spec: Any) -> None:
        vm = {"image": "image", **spec.pop("vm", {})}
        self.worker.start(Start(*key, "h", {"vm": vm, **spec}, {"cpu": 1.0, "memory": 100.0}))

    def rounds(self, count: int = 3) -> list[Fact]:
        """Make rounds, with new connections where they are lost; return what was told."""
        before = len(self.facts)
        for _ in range(count):
            try:
                if self.worker.connection is None:
                    self.worker._connect()
                self.worker.look_soon()
                self.worker.round()
            except GoneError as error:
                self.worker._disconnected(str(error))
        return self.facts[before:]

    def told(self, kind: Any) -> list[Any]:
        return [one for one in self.facts if isinstance(one, kind)]


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_a_machine_from_start_to_end(house: House) -> None:
    house.start(vm={"user_data": "#!/bin/sh\n", "network": "default"})
    assert [type(one) for one in house.rounds()] == [Started]
    domain = house.host.named("-1-1")
    assert domain.state == RUNNING
    assert domain.xml.findtext("vcpu") == "1"
    assert domain.xml.findtext("memory") == str(int(100e6 // 2**20) * 1024)  # QEMU takes whole MiB
    assert domain.xml.find("devices/interface/source[@network='default']") is not None
    assert b"cidata" in house.host.volumes[f"{domain.name}.iso"]
    house.host.power_off("-1-1", b"hello\n")
    (ended,) = house.rounds()
    assert ended[:3] == (1, 1, 0)
    assert ended.reason == "powered off"
    house.worker.settle(ONE)
    house.rounds()
    assert [one.name for one in house.host.all.values()] == [f"slotwise-{STORE[:8]}-service"]
    assert list(house.host.volumes) == ["image"]
    assert house.worker.consoles.read(ONE, 0, 100) == (b"hello\n", 6)


STEPS = ["look", "domains", "mark", "image", "make_volume", "define", "create", "set_mark", "resume"]


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_cut_anywhere_a_guest_runs_once(tmp_path: Path, step: str, after: bool, killed: bool) -> None:
    """The connection is lost, or the service is killed, before or after any call: the guest is let go exactly once."""
    house = House(tmp_path)
    times = iter([True])

    def cut(call: str) -> bool:
        return call == step and next(times, False)

    if after:
        house.host.cut_after = cut
    else:
        house.host.cut = cut
    house.start()
    house.rounds(1)
    if killed:
        known = house.again([ONE])
        if isinstance(known[ONE], UnknownAttempt):
            house.start()
        else:
            house.facts.append(known[ONE])
    house.rounds(5)
    assert list(house.host.runs.values()) == [1]
    assert house.host.named("-1-1").state == RUNNING
    assert [type(one) for one in house.facts if not isinstance(one, ServersChanged)] == [Started]


def test_an_end_while_the_service_was_away(house: House) -> None:
    house.start()
    house.rounds()
    house.host.power_off("-1-1", b"slotwise-exit: 7\r\n")
    assert house.again([ONE]) == {ONE: UnknownAttempt()}
    house.start()  # as the service does with what is not known to run
    house.rounds()
    assert [one.exit_code for one in house.told(Ended)] == [7]
    assert list(house.host.runs.values()) == [1]


def test_a_domain_that_was_removed_is_lost_and_not_started_again(house: House) -> None:
    house.start()
    house.rounds()
    house.host.all.clear()
    assert house.again([ONE]) == {ONE: UnknownAttempt()}
    house.start()
    house.rounds()
    assert [one[:2] for one in house.told(Lost)] == [ONE]
    assert sum(house.host.runs.values()) == 1


@pytest.mark.parametrize(
    ("call", "error", "fact", "text"),
    [
        ("image", None, Ended, "no image"),
        ("define", WrongError("unsupported"), Ended, "unsupported"),
        ("define", HostError("already exists"), Refused, "already exists"),
        ("create", HostError("cannot allocate memory"), Refused, "allocate"),
    ],
)
def test_what_a_host_refuses_is_stated(house: House, call: str, error: Any, fact: Any, text: str) -> None:
    if error is None:
        house.start(vm={"image": "other"})
    else:
        house.host.refuses[call] = error
        house.start()
    house.rounds()
    (told,) = house.told((Ended, Refused))
    assert isinstance(told, fact)
    assert text in told.reason
    if fact is Ended:
        assert told.exit_code in (126, 127)
    assert list(house.host.volumes) == ["image"]
    assert len(house.host.all) == 1


def test_a_name_that_is_taken_is_left_alone(house: House) -> None:
    name = name_of(STORE, ONE)
    house.worker._connected().define(f"<domain><name>{name}</name><uuid>{'0' * 8}</uuid></domain>")
    house.host.all["0" * 8].uuid = "00000000-0000-0000-0000-000000000000"
    house.host.all["00000000-0000-0000-0000-000000000000"] = house.host.all.pop("0" * 8)
    house.start()
    house.rounds()
    (told,) = house.told(Refused)
    assert "already exists" in told.reason
    assert [one.name for one in house.host.all.values()].count(name) == 1


def test_a_full_pool_drains_the_host_until_there_is_space(house: House) -> None:
    house.host.free = 0
    house.start()
    house.rounds()
    assert "No space left" in house.told(Refused)[0].reason
    assert house.told(ServerDrained)
    assert house.worker.up() is None
    house.host.free = 1e6
    assert isinstance(house.rounds()[-1], ServersChanged)


def test_a_host_that_is_away_is_drained_then_lost(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.start()
    house.rounds()
    house.host.up = False
    monkeypatch.setattr(module, "AWAY_SECONDS", 1e6)
    house.start((2, 1))
    house.rounds()
    assert not house.told(ServerDrained)
    monkeypatch.setattr(module, "AWAY_SECONDS", 0.0)
    house.worker._away_since -= 1e6
    facts = house.rounds()
    kinds = [type(one) for one in facts]
    assert kinds.index(ServerDrained) < kinds.index(Refused) < kinds.index(ServerLost)
    assert next(one for one in facts if isinstance(one, Refused))[:2] == (2, 1)
    # it comes back, and its machine still runs, although the job has ended as lost: the machine is ended, not counted on
    house.host.up = True
    house.rounds()
    assert house.host.named("-1-1").state == RUNNING
    house.worker._stale[ONE].asked = float("-inf")
    house.rounds()
    assert [one.name for one in house.host.all.values()] == [f"slotwise-{STORE[:8]}-service"]


def test_a_machine_that_has_ended_makes_its_host_no_larger(house: House) -> None:
    """The service places the next job as soon as an end is told, before that end is written down and settled."""
    for number in range(1, 5):
        house.start((number, 1))
    house.rounds(6)
    house.host.power_off("-1-1")
    house.rounds()
    house.start((5, 1))
    house.rounds()
    assert house.told(Ended)
    assert house.worker.up().capacity["cpu"] == 4  # type: ignore[union-attr]
    assert all(one.servers[0].capacity["cpu"] == 4 for one in house.told(ServersChanged))


def test_hosts_that_cannot_be_reached_are_named(tmp_path: Path) -> None:
    host = FakeHost()
    host.up = False
    engine = LibvirtEngine(tmp_path, hosts(), STORE, connect=host.open)
    try:
        engine.open(lambda facts: None, 1)
        assert engine.troubles() == ["host h cannot be reached: connection refused"]
    finally:
        engine.close()


def test_a_start_waits_for_connections_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for the worker's next look, too: 10 s, twice."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 1e6)
    monkeypatch.setattr(engine_module, "CONNECT_SECONDS", PATIENCE)
    engine = LibvirtEngine(tmp_path, hosts(), STORE, connect=FakeHost().open)
    try:
        engine.open(lambda facts: None, 1)
        assert all(one.first.is_set() for one in engine._workers.values())
    finally:
        engine.close()


def test_a_host_that_hangs_is_away_and_is_asked_once(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """libvirt's open has no time limit: the worker goes on without it, and uses a late connection."""
    house.start()
    house.rounds()
    answers, opened, held = threading.Event(), [], house.worker._open

    def hang(*values: Any) -> Any:
        opened.append(values)
        answers.wait()
        return held(*values)

    house.worker._open = hang
    house.worker.connection.dead = True  # type: ignore[union-attr]
    monkeypatch.setattr(module, "OPEN_SECONDS", 0.01)
    monkeypatch.setattr(module, "AWAY_SECONDS", 0.0)
    house.rounds(4)
    assert len(opened) == 1
    assert "does not answer" in house.told(ServerDrained)[-1].reason
    answers.set()
    monkeypatch.setattr(module, "OPEN_SECONDS", 60.0)
    house.rounds()
    assert len(opened) == 1
    assert isinstance(house.facts[-1], ServersChanged)
    assert house.worker.connection is not None


def test_a_connection_that_comes_too_late_is_closed(house: House) -> None:
    answers, made = threading.Event(), house.host.open("", "", lambda: None)

    def hang() -> Any:
        answers.wait()
        return made

    opening = Opening(hang, "h")
    assert opening.result(0.0) is None
    opening.abandon()
    answers.set()
    assert opening.result(60.0) is None
    while not made.dead:
        threading.Event().wait(0.001)


def test_foreign_domains_are_used_capacity(house: House) -> None:
    house.worker._connected().define(
        "<domain><name>other</name><uuid>8f3c1b1e-0000-4000-8000-000000000001</uuid><vcpu>3</vcpu><memory>1000000</memory></domain>"
    )
    house.rounds()
    assert house.worker.up().capacity["cpu"] == 4  # type: ignore[union-attr]
    house.host.named("other").state = RUNNING
    (changed,) = house.rounds(1)
    assert isinstance(changed, ServersChanged)
    assert changed.servers[0].capacity == {"cpu": 1.0, "memory": 4000 - 1024 - 1024.0}
    # jobs that are there go on, so the capacity is never below what they hold
    house.start()
    house.start((2, 1))
    house.rounds(4)
    assert house.worker.up().capacity["cpu"] == 2  # type: ignore[union-attr]


def test_stop_presses_the_button_and_then_pulls_the_plug(house: House) -> None:
    house.start(grace=1000.0)
    house.rounds()
    house.worker.stop(ONE)
    house.rounds()
    assert "shutdown" in house.host.calls
    assert "destroy" not in house.host.calls
    house.worker.placed[ONE].asked = float("-inf")
    house.rounds()
    (ended,) = house.told(Ended)
    assert (ended.exit_code, ended.by_user) == (-9, True)
    assert ended.reason == "destroyed after it was asked to shut down"


def test_a_machine_that_hears_the_button_while_the_service_restarts_was_stopped(house: House) -> None:
    house.start(grace=1000.0)
    house.rounds()
    house.worker.stop(ONE)
    house.rounds()
    house.host.power_off("-1-1")
    house.again([ONE])
    house.rounds()  # before the new service has repeated the stop
    (ended,) = house.told(Ended)
    assert (ended.exit_code, ended.reason) == (-15, "shut down")


@pytest.mark.parametrize("reason", [CRASHED, FAILED, 0])
def test_libvirtd_that_dies_while_the_plug_is_pulled_does_not_make_it_a_crash(house: House, reason: int) -> None:
    house.start(grace=0.0)
    house.rounds()
    house.worker.stop(ONE)
    house.host.cut_after = lambda call: call == "destroy"
    house.rounds(1)
    house.host.cut_after = lambda call: False
    house.host.named("-1-1").reason = reason  # QEMU has ended, and libvirtd knows no better when it is back
    house.again([ONE])
    house.rounds()
    (ended,) = house.told(Ended)
    assert (ended.exit_code, ended.reason) == (-9, "destroyed after it was asked to shut down")


def test_a_time_limit_ends_a_machine(house: House) -> None:
    house.start(time=1e-9, grace=0.0)
    house.rounds(4)
    (ended,) = house.told(Ended)
    assert ended.over_time
    assert "time limit" in ended.reason


def test_a_stop_before_the_start_starts_nothing(house: House) -> None:
    house.start()
    house.worker.stop(ONE)
    house.rounds()
    (ended,) = house.told(Ended)
    assert ended.reason == "stopped before it started"
    assert not house.host.runs


def test_an_older_service_starts_nothing(house: House, tmp_path: Path) -> None:
    old = house.worker
    house.again([])
    house.worker, new = old, house.worker
    house.start()
    house.rounds()
    assert house.told(Deposed)
    assert not house.host.runs
    assert new.epoch == 2


MARK = Mark(1, 1, 1.0, 100.0, None, 10.0, 1000.0)
ENDS: list[tuple[int, bytes, dict[str, Any], Callable[[Any], bool]]] = [
    (BY_GUEST, b"", {}, lambda one: one.exit_code == 0 and one.reason == "powered off"),
    (BY_GUEST, b"slotwise-exit: 3\r\n", {}, lambda one: one.exit_code == 3),
    (BY_GUEST, b"slotwise-exit: 3\nslotwise-exit: 0\n", {}, lambda one: one.exit_code == 0),
    (BY_GUEST, b"x slotwise-exit: 3\n", {}, lambda one: one.reason == "powered off"),
    (
        BY_GUEST,
        b"[ 1.0] Kernel panic - not syncing: x",
        {},
        lambda one: one.exit_code == -6 and "panic" in one.reason,
    ),
    (BY_GUEST, b"", {"stop": True}, lambda one: one.exit_code == -15),
    (CRASHED, b"", {}, lambda one: one.exit_code == -6),
    (FAILED, b"", {}, lambda one: one.exit_code == -6 and "QEMU" in one.reason),
    (DESTROYED, b"", {}, lambda one: one.by_user and one.reason == "destroyed on its host"),
    (0, b"", {}, lambda one: isinstance(one, Lost)),
    (0, b"slotwise-exit: 0\n", {}, lambda one: one.exit_code == 0),
    (0, b"[ 2.0] reboot: Power down\r\n", {}, lambda one: one.exit_code == 0),
]


@pytest.mark.parametrize("case", range(len(ENDS)))
def test_ends_are_told_apart(case: int) -> None:
    reason, console, options, check = ENDS[case]
    found = end_of(MARK, SeenDomain("n", "u", SHUTOFF, reason), console, 2000.0, **{"stop": False, **options})
    assert check(found), found


def test_a_saved_or_paused_domain_has_not_ended() -> None:
    assert not SeenDomain("n", "u", SHUTOFF, SAVED).has_ended
    assert not SeenDomain("n", "u", PAUSED, 1).has_ended


def test_identity() -> None:
    assert read_mark(MARK.xml()) == MARK
    assert key_of(STORE, name_of(STORE, (12, 3)) + ".qcow2") == (12, 3)
    assert key_of("another0", name_of(STORE, (12, 3))) is None
    assert is_ours(STORE, name_of(STORE, ONE), uuid_of(STORE, ONE)) == ONE
    assert is_ours(STORE, name_of(STORE, ONE), uuid_of(STORE, (1, 2))) is None


def start_with(template: str | None = None, **demand: float) -> Start:
    vm = {"image": "i"} if template is None else {"image": "i", "domain": template}
    return Start(1, 1, "h", {"vm": vm}, {"cpu": 2.0, "memory": 1024.0, **demand})


def xml_of(template: str) -> str:
    start = start_with(template)
    return domain_xml(start, STORE, mark_for(start), "kvm", Paths("/c", "/d", None))


def test_a_template_keeps_all_but_size_and_identity() -> None:
    text = xml_of(
        "<domain type='xen'><name>mine</name><memory unit='GiB'>64</memory><vcpu cpuset='0-3' current='1'>64</vcpu>"
        "<memoryBacking><hugepages/></memoryBacking><numatune><memory mode='strict' nodeset='0'/></numatune></domain>"
    )
    assert "<hugepages" in text
    assert "nodeset" in text
    assert 'cpuset="0-3">2</vcpu>' in text
    assert 'unit="KiB">999424</memory>' in text
    assert "mine" not in text
    assert 'type="kvm"' in text


@pytest.mark.parametrize(
    "template",
    [
        "<domain",
        "<network/>",
        "<domain><devices><memory model='dimm'/></devices></domain>",
        "<domain><cpu><numa><cell memory='4' unit='GiB'/></numa></cpu></domain>",
    ],
)
def test_a_template_that_would_hold_more_is_refused(template: str) -> None:
    with pytest.raises(InputError):
        xml_of(template)


def test_sizes_of_machines_are_checked() -> None:
    for wrong in ({"cpu": 0.5}, {"memory": 0.0}):
        with pytest.raises(InputError):
            mark_for(start_with(**wrong))
    assert check_work({"vm": {"image": "i"}}, machines=True)["needs"] == {"cpu": 1.0, "memory": 1024.0}
    wrong_specs: list[tuple[Any, bool]] = [
        ({}, False), ({"argv": ["x"]}, True), ({"vm": {"image": "i"}}, False),
        ({"vm": {"image": "i"}, "cwd": "/"}, True), ({"vm": {"image": "i"}, "needs": {"cpu": 1.5}}, True),
    ]  # fmt: skip
    for spec, machines in wrong_specs:
        with pytest.raises(InputError):
            check_work(spec, machines=machines)


def test_the_hosts_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text(
        '[libvirt]\ncpu_overcommit = 2\n[[libvirt.hosts]]\nname = "a"\nuri = "qemu:///system"\nreserve = { cpu = 1, memory = 500 }\n'
    )
    found, others = read_hosts(str(file))
    assert found.capacity(found.hosts[0], Size(4, 2000)) == Size(6, 1500)
    assert "slow each other down" in found.consequences()[0]
    assert not others
    for text in ("", "[libvirt]\n", "[libvirt]\nhosts = []\nx = 1\n", "[cluster]\n[libvirt]\nhosts=[{name='a',uri='x'}]\n",
                 "[libvirt]\nhosts=[{name='a',uri='x'},{name='a',uri='y'}]\n"):  # fmt: skip
        file.write_text(text)
        with pytest.raises(InputError):
            read_hosts(str(file))


def test_without_a_file_the_host_is_that_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIBVIRT_DEFAULT_URI", "qemu+tcp://127.0.0.1/session")
    found, others = read_hosts(None)
    assert [one.uri for one in found.hosts] == ["qemu+tcp://127.0.0.1/session"]
    assert not others
    monkeypatch.delenv("LIBVIRT_DEFAULT_URI")
    for user, uri in ((0, "qemu:///system"), (1000, "qemu:///session")):
        monkeypatch.setattr("slotwise.live.engines.libvirt.hosts.os.geteuid", lambda user=user: user)
        monkeypatch.setattr("slotwise.live.engines.libvirt.hosts.SYSTEM_SOCKET", Path("/nonexistent"))
        assert read_hosts(None)[0].hosts[0].uri == uri


def test_the_seed_is_an_iso_image(tmp_path: Path) -> None:
    data = seed("slotwise-1", "x" * 5000)
    assert len(data) % 2048 == 0
    assert data[16 * 2048 + 1 : 16 * 2048 + 6] == b"CD001"
    assert data[16 * 2048 + 40 : 16 * 2048 + 46] == b"cidata"
    file = tmp_path / "seed.iso"
    file.write_bytes(data)
    try:
        text = subprocess.run(["isoinfo", "-x", "/USER-DATA;1", "-i", file], capture_output=True, check=True).stdout
    except FileNotFoundError:
        text = data[21 * 2048 :].rstrip(b"\0")
    assert text == b"x" * 5000
