"""The engine `libvirt` against real libvirtd and QEMU without hardware support: see tools/system/with-libvirt.

SLOTWISE_LIBVIRT_MACHINES, SLOTWISE_LIBVIRT_KILLS and SLOTWISE_LIBVIRT_PATIENCE (seconds) make the run with kills larger.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from processes import Process
from real_libvirt import Census, RealHosts
from tiny_guest import HELLO, tiny_guest

from slotwise.live.client import Client, Job
from slotwise.live.replay import replay
from slotwise.live.store import open_store

FOLDER = os.environ.get("SLOTWISE_TEST_LIBVIRT", "")
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not FOLDER, reason="no hosts of libvirt here: see tools/system/with-libvirt"),
]
PATIENCE = float(os.environ.get("SLOTWISE_LIBVIRT_PATIENCE", "300"))
MACHINES = int(os.environ.get("SLOTWISE_LIBVIRT_MACHINES", "24"))
KILLS = int(os.environ.get("SLOTWISE_LIBVIRT_KILLS", "4"))
SIZES = {"host1": (4, 200), "host2": (6, 400), "host3": (8, 500)}  # CPUs and MB that jobs may use
MB, MIB = 1e6, 1 << 20
POWER_DOWN = "reboot: Power down\r\n"  # as Linux writes


class Kind(NamedTuple):
    """A kind of guest, and how its job ends."""

    image: bytes
    end: tuple[str, int]
    told: bool = False
    """its console says how it ended, so that the end is known even if libvirtd does not know it"""
    runs_on: bool = False
    """it ends only if it is stopped"""
    limit: float | None = None


GUESTS = {
    "zero": Kind(tiny_guest(2, "slotwise-exit: 0\r\n"), ("done", 0), told=True),
    "seven": Kind(tiny_guest(3, "slotwise-exit: 7\r\n"), ("failed", 7), told=True),
    "linux": Kind(tiny_guest(2, POWER_DOWN), ("done", 0), told=True),
    "panic": Kind(tiny_guest(1, "Kernel panic - not syncing\r\n"), ("failed", -6), told=True),
    "silent": Kind(tiny_guest(2), ("done", 0)),
    "stopped": Kind(tiny_guest(hears=True), ("cancelled", -15), runs_on=True),
    "deaf": Kind(tiny_guest(), ("cancelled", -9), runs_on=True),
    "limited": Kind(tiny_guest(), ("failed", -15), limit=3.0),
}
LOST = ("lost", None)


@pytest.fixture(scope="module")
def compiled() -> None:
    """Compile the policy before any clock runs: on a busy machine that takes minutes."""
    subprocess.run([sys.executable, "-m", "slotwise", "warm", "guarded"], check=True)


@pytest.fixture
def hosts(compiled: None) -> Iterator[RealHosts]:
    """All hosts, with one image for each kind of guest."""
    made = RealHosts(Path(FOLDER))
    made.make_pools({name: one.image for name, one in GUESTS.items()})
    yield made
    made.clean_up()


@pytest.fixture
def serving(hosts: RealHosts, tmp_path: Path, serve: Callable[..., Process]) -> Process:
    """A service."""
    tables = ["[libvirt]", 'domain_type = "qemu"', "lost_after = 8", "disk_reserve = 1"]
    for name in hosts.names:
        cpu, memory = SIZES[name]
        tables += ["[[libvirt.hosts]]", f'name = "{name}"', f'uri = "{hosts.uri(name)}"']
        tables += [f"capacity = {{ cpu = {cpu}, memory = {memory} }}", f'labels = {{ host = "{name}" }}']
    (tmp_path / "hosts.toml").write_text("\n".join(tables))
    return serve(tmp_path, "hosts.toml", "--engine", "libvirt", "--store", f"sqlite:///{tmp_path}/store.db")


def token_of(process: Process) -> str:
    """Return the operator's token."""
    port = process.address.rpartition(":")[2]
    (path,) = (Path(process.environment["XDG_STATE_HOME"]) / "slotwise").glob(f"token-*-{port}")
    return path.read_text().strip()


@pytest.fixture
def client(serving: Process) -> Iterator[Client]:
    """A client, which bears that the service is away."""
    with Client(serving.address, token=token_of(serving)) as made:
        yield made


def until(condition: Callable[[], Any], serving: Process) -> Any:
    """Wait until something is so, and return it."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, (serving.folder / "errors").read_text()[-3000:]
        time.sleep(0.1)
    return found


def submission(name: str, memory: int = 32, **more: Any) -> dict[str, Any]:
    """Return a virtual machine as it is submitted."""
    spec = {"vm": {"image": name}, "name": name, "needs": {"cpu": 1, "memory": memory}, "grace": 1.0, **more}
    limit = GUESTS[name].limit
    return spec if limit is None else {**spec, "time": limit}


class Trouble:
    """Everything that is done to the machines while they run; it knows which ends may follow."""

    def __init__(self, serving: Process, client: Client, hosts: RealHosts, rng: random.Random) -> None:
        self.serving, self.client, self.hosts, self.rng = serving, client, hosts, rng
        self.away: set[str] = set()
        """hosts whose libvirtd was killed: it may not know how a machine ended"""
        self.lost = ""
        self.killed: set[int] = set()
        """jobs whose QEMU was killed"""
        self.stopped: set[int] = set()

    def allowed(self, job: Job) -> set[tuple[str, int | None]]:
        """Return the ends that a job may have."""
        kind = GUESTS[job.name]
        ends: set[tuple[str, int | None]] = {("failed", -6) if job.id in self.killed else kind.end}
        if job.server == self.lost or (job.server in self.away and (not kind.told or job.id in self.killed)):
            ends.add(("cancelled", None) if job.id in self.stopped else LOST)
        return ends

    def kill_service(self) -> None:
        self.serving.end(signal.SIGKILL)
        self.serving.start()

    def kill_daemon(self) -> None:
        """Kill libvirtd, and start it again a while later."""
        host = self.rng.choice([one for one in self.hosts.names if one != self.lost])
        self.away.add(host)
        self.hosts.kill_daemon(host)
        time.sleep(self.rng.uniform(0.0, 2.0))
        self.hosts.start(host)

    def kill_machine(self) -> None:
        """Kill the QEMU of a machine that would run on."""
        running = {one.id for one in self.running() if GUESTS[one.name].runs_on} - self.stopped
        for machine in self.hosts.machines():
            number = int(machine.name.split("-")[2])
            if number in running:
                self.killed.add(number)
                os.kill(machine.pid, signal.SIGKILL)
                return

    def lose_host(self) -> None:
        """Kill all that runs on the largest host, as a power cut does; it comes back after its jobs have ended or moved."""
        self.lost = "host3"
        self.hosts.lose(self.lost)

        def settled() -> bool:
            return not any(one.server == self.lost and not one.has_ended for one in self.client.jobs())

        until(settled, self.serving)
        self.hosts.start(self.lost)

    def running(self) -> list[Job]:
        return list(self.client.jobs(state="running"))

    def stop_some(self) -> None:
        """Stop machines that would run on."""
        for one in self.running():
            if GUESTS[one.name].runs_on and one.id not in self.stopped | self.killed:
                self.stopped.add(one.id)
                self.client.stop(one.id)


def consoles(serving: Process) -> dict[tuple[int, int], bytes]:
    """Return the copies of all consoles, by job and attempt."""
    found = {}
    for path in serving.folder.rglob("consoles/*"):
        if not path.name.endswith(".at"):
            job, attempt = path.name.split(".")
            found[int(job), int(attempt)] = path.read_bytes()
    return found


def test_kills_of_everything_leave_each_machine_run_once_and_every_end_told(
    serving: Process, client: Client, hosts: RealHosts
) -> None:
    rng = random.Random(31)
    census = Census(hosts)
    names = [list(GUESTS)[n % len(GUESTS)] for n in range(MACHINES)]
    rng.shuffle(names)
    client.submit_many(
        [submission(name, rng.choice([16, 32, 64]), on_loss=rng.choice(["fail", "requeue"])) for name in names]
    )
    trouble = Trouble(serving, client, hosts, rng)
    until(lambda: any(GUESTS[one.name].runs_on for one in trouble.running()), serving)
    for kill in range(KILLS):
        time.sleep(rng.uniform(0.5, 3.0))
        if kill % 3 == 0:
            trouble.kill_machine()
        trouble.stop_some()
        if kill % 4 == 1:
            trouble.kill_daemon()
        if kill == KILLS // 2:
            trouble.lose_host()
        trouble.kill_service()

    def over() -> bool:
        trouble.stop_some()
        return all(one.has_ended for one in client.jobs())

    until(over, serving)
    jobs = list(client.jobs())
    until(lambda: not hosts.machines(), serving)
    census.close()
    serving.end()
    assert trouble.killed
    check_runs(jobs, consoles(serving), census)
    for host, (cpu, memory) in census.most.items():
        assert cpu <= SIZES[host][0], host
        assert memory * MIB / MB <= SIZES[host][1], host
        left = [name for name in hosts.virsh(host, "list", "--all", "--name").split() if "service" not in name]
        assert left == [], host
        assert sorted(one.name for one in (hosts.folder / host / "images").iterdir()) == sorted(GUESTS), host
    store = open_store(f"sqlite:///{serving.folder}/store.db")
    try:
        again = replay(store)
    finally:
        store.close()
    assert again.differences == []
    check_ends(jobs, trouble)
    print(
        f"{MACHINES} machines, {KILLS} kills: {again.placements} placements, {len(trouble.killed)} QEMU killed, {census.counts} counts, "
        f"most {census.most} of {SIZES}, ends {Counter((one.state, one.exit_code) for one in jobs)}"
    )


def check_ends(jobs: list[Job], trouble: Trouble) -> None:
    """Each job is there once and ended as its guest and what was done to it imply."""
    assert [one.id for one in sorted(jobs)] == list(range(1, MACHINES + 1))
    wrong = [
        (one.id, one.name, one.server, one.state, one.exit_code, one.reason)
        for one in jobs
        if (one.state, one.exit_code) not in trouble.allowed(one)
    ]
    assert wrong == []


def check_runs(jobs: list[Job], written: dict[tuple[int, int], bytes], census: Census) -> None:
    """No guest was let go twice, and each whose end is known ran. An attempt has one host."""
    for key, text in written.items():
        assert text.count(HELLO.strip().encode()) <= 1, key
    for one in jobs:
        if one.state in ("done", "failed") and not (one.name == "limited" or one.exit_code == -6):
            assert written[one.id, one.attempt].count(HELLO.strip().encode()) == 1, one
        if one.state != "lost" and one.attempt == 1:
            assert len([key for key in written if key[0] == one.id]) <= 1, one
    for name, places in census.places.items():
        assert len({host for host, _ in places}) == 1, (name, places)


FOREIGN = "<domain type='qemu'><name>foreign</name><memory unit='MiB'>64</memory><vcpu>3</vcpu><os><type>hvm</type></os></domain>"
NO_SUCH_DEVICE = (
    "<domain><devices><disk type='file' device='disk'><target dev='vdz' bus='none'/></disk></devices></domain>"
)


def test_what_goes_wrong_is_told(serving: Process, client: Client, hosts: RealHosts, tmp_path: Path) -> None:
    """Real libvirt refuses in its own words; each refusal ends the job or is tried elsewhere, and nothing is left behind."""
    wrong: list[tuple[dict[str, Any], int, str]] = [
        ({"image": "missing"}, 127, "no image 'missing'"),
        ({"image": "zero", "network": "nowhere"}, 126, "nowhere"),
        ({"image": "zero", "disk": 0.5}, 126, "less than the image"),
        ({"image": "zero", "domain": NO_SUCH_DEVICE}, 126, "bus"),
    ]
    numbers = [client.submit_many([{**submission("zero"), "vm": vm}])[0].id for vm, _, _ in wrong]
    ended = client.wait(numbers, PATIENCE)
    for one, (vm, code, text) in zip(sorted(ended), wrong, strict=True):
        assert (one.state, one.exit_code) == ("failed", code), (vm, one)
        assert text in (one.reason or ""), (vm, one)
    # a domain of another user is used capacity
    file = tmp_path / "foreign.xml"
    file.write_text(FOREIGN)
    hosts.virsh("host1", "create", str(file))

    def left() -> float:
        """Return the CPUs of host1's class, which come first."""
        name = next(one["server_class"] for one in client.servers() if one["name"] == "host1")
        classes = {one["name"]: one for one in client.cluster()["classes"]}
        return float(classes[name]["capacity"][0])

    until(lambda: left() == SIZES["host1"][0] - 3, serving)
    hosts.virsh("host1", "destroy", "foreign")
    until(lambda: left() == SIZES["host1"][0], serving)
    # a template keeps what it says, and a seed comes as a second disk; all of it goes with the machine
    template = "<domain><memoryBacking><nosharepages/></memoryBacking></domain>"
    vm = {"image": "deaf", "user_data": "#cloud-config\n", "domain": template, "disk": 20.0}
    (handle,) = client.submit_many([{**submission("deaf"), "vm": vm, "requires": {"host": ["host2"]}}])
    (machine,) = until(hosts.machines, serving)
    xml = hosts.virsh("host2", "dumpxml", machine.name)
    assert "<nosharepages/>" in xml
    assert f"{machine.name}.iso" in xml
    assert machine.host == "host2"
    until(lambda: HELLO.encode().strip() in b"".join(client.output(handle.id)), serving)
    hosts.virsh("host2", "destroy", machine.name)  # by hand, as an administrator may do
    (job,) = client.wait([handle], PATIENCE)
    assert (job.state, job.exit_code, job.reason) == ("cancelled", -9, "destroyed on its host")
    images = hosts.folder / "host2" / "images"
    until(lambda: sorted(one.name for one in images.iterdir()) == sorted(GUESTS), serving)


def test_a_host_that_hangs_is_lost_and_its_machines_end_when_it_comes_back(
    serving: Process, client: Client, hosts: RealHosts
) -> None:
    (handle,) = client.submit_many([{**submission("deaf"), "requires": {"host": ["host1"]}}])
    until(lambda: client.job(handle.id).state == "running", serving)
    daemon = hosts.daemon("host1")
    os.kill(daemon, signal.SIGSTOP)
    try:
        (job,) = client.wait([handle], PATIENCE)
        assert (job.state, "no connection" in (job.reason or "")) == ("lost", True)
        assert [one.host for one in hosts.machines()] == ["host1"]
    finally:
        os.kill(daemon, signal.SIGCONT)
    until(lambda: not hosts.machines(), serving)
    assert client.job(handle.id).state == "lost"


LINUX = """<domain>
  <os><type>hvm</type><kernel>{folder}/vmlinuz</kernel><initrd>{folder}/initrd</initrd><cmdline>console=ttyS0 quiet</cmdline></os>
</domain>"""
REPORT = """#!/bin/sh
cat /seed/meta-data
echo "CPUs $(grep -c ^processor /proc/cpuinfo), KiB $(awk '/MemTotal/ {print $2}' /proc/meminfo), sectors $(cat /sys/block/vda/size)"
exit 5
"""


@pytest.mark.skipif(
    "SLOTWISE_TEST_GUEST" not in os.environ, reason="no Linux guest here: see tools/system/debian-guest"
)
def test_a_linux_guest_of_debian(serving: Process, client: Client, hosts: RealHosts) -> None:
    """Linux boots in it, sees its size and its disk, executes its user data, and tells its exit status."""
    domain = LINUX.format(folder=os.environ["SLOTWISE_TEST_GUEST"])
    vm = {"image": "zero", "disk": 20.0, "user_data": REPORT, "domain": domain}
    (handle,) = client.submit_many([{"vm": vm, "needs": {"cpu": 2, "memory": 192}}])
    (job,) = client.wait([handle], PATIENCE)
    text = b"".join(client.output(job.id)).decode()
    assert (job.state, job.exit_code, job.reason) == ("failed", 5, "the guest told exit status 5"), text
    name = f"-{job.id}-1"
    assert re.search(rf"local-hostname: slotwise\S*{name}", text), text
    found = re.search(r"CPUs (\d+), KiB (\d+), sectors (\d+)", text)
    assert found is not None, text
    cpus, kibibytes, sectors = map(int, found.groups())
    assert (cpus, sectors) == (2, 20_000_000 // 512), text
    assert 100_000 < kibibytes < 192_000, "192 MB less what the kernel takes"


def test_the_guide(hosts: RealHosts, tmp_path: Path, serve: Callable[..., Process]) -> None:
    """Every command of docs/guides/libvirt.md, in its order, with its file of hosts; a tiny guest stands for Debian."""
    text = (Path(__file__).parents[2] / "docs/guides/libvirt.md").read_text()
    table = re.findall(r"```toml\n(.*?)```", text, re.S)[0]
    uris = iter(hosts.uri(name) for name in hosts.names)
    table = re.sub(r'uri = "[^"]*"', lambda _: f'uri = "{next(uris)}"', table)
    table = table.replace("cpu = 2, memory = 4000", "cpu = 0, memory = 1000").replace(
        'pool = "default"', 'pool = "default"\ndomain_type = "qemu"\ndisk_reserve = 1'
    )
    (tmp_path / "hosts.toml").write_text(table)
    (tmp_path / "setup.yaml").write_text("#cloud-config\n")
    for name in hosts.names:
        (hosts.folder / name / "images" / "debian.qcow2").write_bytes(GUESTS["seven"].image)
    first, *others = [shlex.split(line) for line in re.findall(r"^\$ (.*)$", text, re.M)]
    assert first[:2] == ["slotwise", "serve"]
    process = serve(tmp_path, *first[2:])
    for program, *argv in others:
        assert program == "slotwise"
        ran = process.command(*argv)
        assert ran.returncode == 0, (argv, ran)
        if argv[0] == "logs":
            assert "slotwise-exit: 7" in ran.stdout
    assert "the guest told exit status 7" in ran.stdout
