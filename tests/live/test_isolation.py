"""What a job of one user can do to another's, on a machine with two more users: nothing. `make test-system` makes the users."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE, Process, gone

from slotwise.live.client import Client
from slotwise.live.engines.supervisor import confining

USERS = os.environ.get("SLOTWISE_TEST_USERS", "").split()
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(len(USERS) < 2, reason="needs root and two more users: tools/system/with-users"),
]
SPAWN = "(setsid sh -c 'echo $$; exec sleep 1000' &); sleep 1000"
HIDE = "(setsid env -i sh -c 'echo $$; exec sleep 1000' &); sleep 1000"
# A process with 40 MB.
HOLD = "(setsid sh -c '(head -c 40000000 /dev/zero; sleep 1000) | tail' &)"


class Machine:
    """A service of root, and a client of each user."""

    def __init__(self, service: Process) -> None:
        self.service = service
        self.clients: list[Client] = []
        self.root = self._client(
            next(Path(service.environment["XDG_STATE_HOME"]).rglob("token-*")).read_text().strip()
        )
        self.a, self.b = (self._client(self.token(role="submit", tenant=name, user=name)) for name in USERS[:2])

    def token(self, **what: str) -> str:
        return str(self.root.call("POST", "/v1/tokens", json=what).json()["token"])

    def _client(self, token: str) -> Client:
        self.clients.append(Client(self.service.address, token))
        return self.clients[-1]

    def run(self, client: Client, *argv: str, **options: Any) -> tuple[int | None, str]:
        """A job's exit code and output."""
        job = client.submit(argv, **options)
        ended = job.result(PATIENCE)
        return ended.exit_code, job.output().decode()

    def shell(self, client: Client, script: str, **options: Any) -> tuple[int | None, str]:
        return self.run(client, "sh", "-c", script, **options)

    @property
    def files(self) -> list[Path]:
        """All files of the service: store, token, outputs, log."""
        return [path for path in self.service.folder.rglob("*") if path.is_file() or path.is_socket()]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("isolation")
    for above in (folder, *folder.parents):  # only the service's own rights keep users out, not pytest's
        if above.owner() == "root" and str(above).startswith("/tmp/"):
            above.chmod(0o755)
    service = Process(folder, "--local", "--store", f"sqlite:///{folder}/slotwise.db")
    service.start()
    made = Machine(service)
    yield made
    for client in made.clients:
        client.close()
    service.clean_up()


def output_of(machine: Machine, client: Client, script: str, **options: Any) -> tuple[Any, str]:
    """Start a job that goes on; the job, and the first line that it wrote."""
    job = client.submit(["sh", "-c", script], **options)
    deadline = time.monotonic() + PATIENCE
    while not (text := job.output().decode()).endswith("\n"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return job, text.strip()


def test_jobs_run_as_their_submitter(machine: Machine) -> None:
    for client, name in ((machine.a, USERS[0]), (machine.b, USERS[1])):
        code, text = machine.shell(client, "id -un; id -Gn; echo $HOME $USER; pwd; umask")
        home = pwd.getpwnam(name).pw_dir
        assert (code, text.split()[:4]) == (0, [name, name, home, name])
        assert text.split()[4] == home
    stranger = machine._client(machine.token(role="submit", tenant="far"))
    assert machine.run(stranger, "id", "-un") == (0, "nobody\n")


def test_tokens_without_an_account_share_nobody_and_are_confined(machine: Machine) -> None:
    """They have one account, and still reach neither each other's outputs and environments nor each other's processes."""
    one, other = (machine._client(machine.token(role="submit", tenant=tenant)) for tenant in ("one", "other"))
    job, pid = output_of(machine, one, "echo $$; exec sleep 1000", env={"SECRET": "of one"})
    own = [
        str(path) for path in machine.files if "output" in path.parts and path.read_bytes() == f"{pid}\n".encode()
    ]
    assert len(own) == 1
    for path in (f"/proc/{pid}/environ", f"/proc/{pid}/fd/1", f"/proc/{pid}/mem", *own):
        code, text = machine.shell(other, f"cat {path} 2>&1")
        assert code != 0, text
        assert "ermission denied" in text
    if confining.keeps_signals():
        assert machine.shell(other, f"kill -9 {pid}")[0] != 0
        assert not gone(int(pid))
    machine.root.stop(job.id)
    assert job.result(PATIENCE).state == "cancelled"


def test_only_an_operator_names_the_user(machine: Machine) -> None:
    with pytest.raises(Exception, match="only an operator"):
        machine.a.submit(["id"], user=USERS[1])
    with pytest.raises(Exception, match="only an operator"):
        machine.a.submit(["id"], user="root")
    assert machine.run(machine.root, "id", "-un", user=USERS[1]) == (0, f"{USERS[1]}\n")


def test_no_file_of_the_service_can_be_read_or_written(machine: Machine) -> None:
    """The store, the token file, the log, the socket, and the outputs of every job."""
    machine.shell(machine.b, "echo a secret of b")
    files = machine.files
    assert any(path.name.startswith("token") for path in files)
    assert any(path.suffix == ".db" for path in files)
    assert any("output" in path.parts for path in files)
    skipped = {"errors"}  # of the test itself
    script = 'for f; do if cat "$f" >/dev/null 2>&1 || (echo x >>"$f") 2>/dev/null; then echo "$f"; fi; done'
    names = [str(path) for path in files if path.name not in skipped]
    assert machine.run(machine.a, "sh", "-c", script, "sh", *names) == (0, "")


def test_outputs_and_jobs_of_others_are_not_there(machine: Machine) -> None:
    job = machine.b.submit(["echo", "a secret of b"])
    job.result(PATIENCE)
    for what in (
        lambda: machine.a.job(job.id),
        lambda: list(machine.a.output(job.id)),
        lambda: machine.a.cancel(job.id),
    ):
        with pytest.raises(Exception, match=f"there is no job {job.id}"):
            what()
    assert job.output() == b"a secret of b\n"
    assert machine.shell(machine.b, "echo again > /dev/stdout") == (0, "again\n"), "its own output can be opened"


def test_environment_memory_and_signals_of_others(machine: Machine) -> None:
    job, pid = output_of(machine, machine.b, "echo $$; sleep 1000", env={"SECRET": "b"})
    for path in ("environ", "mem", "fd/1", "root/etc/passwd", "cwd/x"):
        code, text = machine.shell(machine.a, f"cat /proc/{pid}/{path} 2>&1")
        assert code != 0, text
        assert "ermission denied" in text
    for number in ("0", "15", "9"):
        code, text = machine.shell(machine.a, f"kill -{number} {pid} 2>&1")
        assert code != 0, text
    assert not gone(int(pid))
    supervisor = next(machine.service.folder.rglob("lock")).read_text()
    assert machine.shell(machine.a, f"kill -9 {supervisor} {machine.service.process.pid} 2>/dev/null")[0] != 0
    machine.root.stop(job.id)
    assert job.result(PATIENCE).state == "cancelled"


@pytest.mark.parametrize("script", [SPAWN, HIDE], ids=["setsid", "hiding"])
def test_time_limits_hold_for_everything(machine: Machine, script: str) -> None:
    job, pid = output_of(machine, machine.a, script, time=1.0, grace=0.1)
    ended = job.result(PATIENCE)
    assert ended.state == "failed"
    assert "time" in (ended.reason or "")
    until(lambda: gone(int(pid)))


def test_memory_limits_hold_for_everything(machine: Machine) -> None:
    """Each process stays below the limit, all together do not."""
    job = machine.a.submit(["sh", "-c", (HOLD + "; ") * 6 + " sleep 1000"], needs={"cpu": 1, "memory": 100})
    ended = job.result(PATIENCE)
    assert ended.state == "failed"
    assert "memory" in (ended.reason or "")
    alone = machine.a.submit(["sh", "-c", "head -c 400000000 /dev/zero | tail"], needs={"cpu": 1, "memory": 100})
    assert alone.result(PATIENCE).state == "failed"
    assert processes_of(USERS[0]) == []


def test_what_a_job_leaves_behind_ends(machine: Machine) -> None:
    code, _ = machine.shell(machine.a, SPAWN.removesuffix("sleep 1000"))
    assert code == 0
    until(lambda: processes_of(USERS[0]) == [])


def test_a_file_that_only_root_can_execute(machine: Machine) -> None:
    job = machine.a.submit(["/root/x"], cwd="/")
    ended = job.result(PATIENCE)
    assert ended.exit_code == 126
    assert "ermission denied" in (ended.reason or "")
    job = machine.a.submit(["id"], cwd="/root")
    assert "working directory" in (job.result(PATIENCE).reason or "")


def processes_of(user: str) -> list[str]:
    found = subprocess.run(["pgrep", "-u", user], capture_output=True, text=True, check=False)
    return found.stdout.split()


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.02)
