"""What the Slurm engine does without Slurm: its scripts and files, and how it reads what Slurm prints."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from slotwise.live.engines import slurm, slurm_commands, slurm_records
from slotwise.live.engines.protocol import (
    Arrived,
    Ended,
    Fact,
    Lost,
    Refused,
    ServerDrained,
    ServerLost,
    ServerUp,
    Start,
    Withdrawn,
)
from slotwise.live.engines.slurm import SlurmAttempt, SlurmEngine
from slotwise.live.engines.slurm_arrivals import SeenArrivals
from slotwise.live.engines.slurm_commands import SEPARATOR, QueueRow, SlurmError
from slotwise.live.engines.slurm_records import Foreign, SlurmRecords

KEY = (7, 1)
JOB = Foreign("12", 1_000_000, os.getuid(), "c0ffee", 0.0, 5.5)


@pytest.fixture
def records(tmp_path: Path) -> SlurmRecords:
    shared = tmp_path / "shared"
    shared.mkdir()
    made = SlurmRecords(tmp_path / "own", shared)
    made.open()
    return made


def start(argv: list[str], **spec: Any) -> Start:
    return Start(*KEY, "node1", {"argv": argv, **spec}, {"cpu": 1.0})


def execute(records: SlurmRecords, *argv: str, **spec: Any) -> subprocess.CompletedProcess[str]:
    text = records.script(start(list(argv), **spec))
    return subprocess.run(["sh", "-s"], input=text, capture_output=True, text=True, check=False)


def test_a_script_is_executed_once_and_tells_how_it_ended(records: SlurmRecords, tmp_path: Path) -> None:
    script = 'echo "$A $SLOTWISE_JOB_ID $SLOTWISE_ARRAY_INDEX $(pwd)"; exit 9'
    options = {"env": {"A": "b 'c'"}, "cwd": str(tmp_path), "array_index": 4}
    assert not records.claimed(KEY)
    first = execute(records, "sh", "-c", script, **options)
    assert (first.returncode, first.stdout) == (9, f"b 'c' 7 4 {tmp_path}\n")
    assert (records.claimed(KEY), records.exit_code(KEY)) == (True, 9)
    again = execute(records, "sh", "-c", script, **options)
    assert (again.returncode, again.stdout, records.exit_code(KEY)) == (0, "", 9)


def test_variables_that_a_shell_cannot_name(records: SlurmRecords) -> None:
    assert "odd-name=2\n" in execute(records, "env", env={"odd-name": "2"}, cwd="/").stdout


def test_what_was_taken_back_is_not_executed(records: SlurmRecords) -> None:
    assert records.claim(KEY)
    assert records.claim(KEY)  # a service that starts anew may not remember
    assert execute(records, "echo", "ran").stdout == ""
    assert records.exit_code(KEY) is None


@pytest.mark.parametrize(
    ("argv", "code"), [(["/no/such/command"], 127), (["sh", "-c", "kill -9 $$"], 137), (["true"], 0)]
)
def test_codes_of_a_shell(records: SlurmRecords, argv: list[str], code: int) -> None:
    execute(records, *argv, cwd="/")
    assert records.exit_code(KEY) == code


def test_a_folder_that_is_not_there(records: SlurmRecords) -> None:
    done = execute(records, "echo", "ran", cwd="/no/such/folder")
    assert (done.stdout, records.exit_code(KEY)) == ("", 125)
    assert "/no/such/folder" in done.stderr


def test_a_folder_of_claims_that_is_not_there(records: SlurmRecords) -> None:
    text = records.script(start(["echo", "ran"]))
    (records.folder / "claims").rmdir()
    done = subprocess.run(["sh", "-s"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot write" in done.stderr


def test_a_signal_goes_on_to_the_command(records: SlurmRecords) -> None:
    text = records.script(start(["sh", "-c", "trap 'exit 3' TERM; echo up; while :; do sleep 0.01; done"], cwd="/"))
    with subprocess.Popen(["sh", "-c", text], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == "up\n"
        shell.send_signal(signal.SIGTERM)
        assert shell.wait() == 3
    assert records.exit_code(KEY) == 3


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_signal_at_the_end_does_not_hide_the_code(tmp_path: Path, shell: str) -> None:
    """Slurm signals all processes: the command has ended by itself when the signal reaches the shell that waits for it."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    ends = "outer=$(cut -d' ' -f4 /proc/$PPID/stat); trap 'exit 3' TERM; kill -TERM $outer; kill -TERM $$; while :; do :; done"
    for n in range(25):
        records = SlurmRecords(tmp_path / f"a folder {n}", None)
        records.open()
        text = records.script(start(["sh", "-c", ends], cwd="/"))
        assert subprocess.run([shell, "-c", text], check=False).returncode == 3
        assert records.exit_code(KEY) == 3


def test_the_lines_of_the_sites_plugin(records: SlurmRecords, tmp_path: Path) -> None:
    """What job_submit.lua puts into users' scripts: executed once, with the script's own code; elsewhere it is not in the way."""
    lua = (Path(__file__).parents[2] / "packaging/slurm/job_submit.lua").read_text()
    lines = lua.split("local lines = [[\n")[1].split("]]")[0]
    assert records.shared is not None
    text = lines % (records.shared, JOB.records) + "echo ran\nexit 6\n"
    environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "12"}

    def run(text: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-s"], input=text, env=environment | more, capture_output=True, text=True, check=False
        )

    first = run(text)
    assert (first.returncode, first.stdout, records.ended(JOB), records.again(JOB)) == (6, "ran\n", 6, False)
    second = run(text)
    assert (second.returncode, second.stdout, records.ended(JOB), records.again(JOB)) == (0, "", 6, True)
    task = JOB._replace(id="12_3")
    assert run(text, SLURM_ARRAY_JOB_ID="12", SLURM_ARRAY_TASK_ID="3").returncode == 6
    assert records.ended(task) == 6
    away = text.replace(str(records.shared), str(tmp_path / "not mounted"))
    assert (run(away).returncode, run(away).stdout) == (6, "ran\n")


def test_another_users_record_proves_nothing(records: SlurmRecords) -> None:
    assert records.shared is not None
    (records.shared / f"12-{JOB.records}.ended").write_text("0\n")
    assert records.ended(JOB) == 0
    assert records.ended(JOB._replace(user=JOB.user + 1)) is None
    assert records.ended(JOB._replace(records="0ff1ce")) is None  # an earlier job of this number
    assert records.ended(JOB._replace(records="")) is None


def test_files_are_kept_while_slurm_might_start_a_job_again(records: SlurmRecords) -> None:
    old = time.time() - 2 * slurm_records.KEPT_SECONDS
    for key in ((1, 1), (2, 1), (3, 1)):
        records.claim(key)
        if key != (3, 1):
            os.utime(records.folder / "claims" / records.name(key), (old, old))
    records.forget({records.name((2, 1))})
    assert [records.claimed(key) for key in ((1, 1), (2, 1), (3, 1))] == [False, True, True]


def test_a_service_that_wakes_up_late_leaves_jobs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(slurm, "run", lambda *command, **_: commands.append(command) or "")
    first, second = SlurmEngine(tmp_path / "slurm"), SlurmEngine(tmp_path / "slurm")
    for engine, expected in ((first, 1), (second, 2), (first, 2)):
        if engine is not first or expected == 1:
            engine.records.open()
        engine.start([Start(expected, 1, "node1", {"argv": ["x"]}, {"cpu": 1.0})])
        engine._work.put(None)
        engine._give_on()
        assert len(commands) == expected


# -- what Slurm prints, and what is made of it -----------------------------------------------------------------------------------


def test_rows_of_squeue() -> None:
    name = f"evil{SEPARATOR}name"
    cells = ["12_3", "FAILED", "512", "None", "watched", "1", "cpu=2,mem=1.5G,node=1", "2026-11-17T02:00:00", "0",
             "(null)", "a name", f"slotwise-records=1f{SEPARATOR}{name}"]  # fmt: skip
    row = slurm_commands.row_of(SEPARATOR.join(cells))
    assert (row.id, row.exit_code, row.tres["mem"], row.features, row.over) == ("12_3", 2, 1536.0, "", True)


@pytest.mark.parametrize(
    ("state", "kind"),
    [("idle", ServerUp), ("mixed", ServerUp), ("allocated", ServerUp), ("completing", ServerUp), ("idle*", ServerDrained),
     ("drained", ServerDrained), ("draining", ServerDrained), ("down*", ServerLost), ("down", ServerLost), ("unknown*", type(None))],
)  # fmt: skip
def test_states_of_nodes(state: str, kind: type) -> None:
    assert isinstance(slurm_commands.fact_of(ServerUp("n", {}), state, state), kind)


@pytest.mark.parametrize(
    ("text", "final"),
    [("Invalid job id specified", True), ("Requested node configuration is not available", True),
     ("Unable to contact slurm controller (connect failure)", False), ("Socket timed out; invalid state", False),
     ("Invalid authentication credential", False), ("Zero Bytes were transmitted or received", False)],
)  # fmt: skip
def test_answers_that_will_not_change(text: str, final: bool) -> None:
    assert SlurmError(text).final is final


ROW = QueueRow("12", "PENDING", 0, "Resources", "watched", 1, {}, JOB.submitted, JOB.user, "", "x", "")


def own(**changes: Any) -> QueueRow:
    return ROW._replace(**changes)


@pytest.mark.parametrize(
    ("row", "claimed", "waited", "expected"),
    [
        (own(state="RUNNING"), True, 99.0, "started"),
        (own(), False, 59.0, None),
        (own(), False, 61.0, Refused),
        (own(), True, 61.0, None),  # it comes back from an old state of the controller
        (None, False, 5.0, None),
        (None, False, 11.0, Refused),
        (None, True, 11.0, Lost),
        (own(state="COMPLETED"), False, 11.0, Refused),
        (own(state="NODE_FAIL"), True, 11.0, Lost),
        (own(state="CANCELLED"), True, 11.0, Ended),
        (own(state="TIMEOUT"), True, 11.0, Ended),
    ],
)
def test_what_becomes_of_our_attempts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    row: QueueRow | None,
    claimed: bool,
    waited: float,
    expected: Any,
) -> None:
    monkeypatch.setattr(slurm_commands, "booted", lambda: 0)
    monkeypatch.setattr(slurm, "run", lambda *command, **_: "")
    engine = SlurmEngine(tmp_path / "slurm")
    engine.records.open()
    if claimed:
        (engine.records.folder / "claims" / engine.records.name(KEY)).touch()
    fact = engine._judge(KEY, SlurmAttempt(None, 0.0, given=True), row, waited)
    if expected == "started":
        assert type(fact).__name__ == "Started"
    else:
        assert isinstance(fact, expected) if expected else fact is None
    if expected is Refused:
        assert engine.records.taken_back(KEY)  # no user can execute it any more


@pytest.mark.parametrize(
    ("row", "files", "job", "seen", "booted", "waited", "expected"),
    [
        (own(state="RUNNING"), (), JOB, False, 0, 0.0, "started"),
        (own(state="COMPLETED"), (), JOB, True, 0, 0.0, Ended),
        (own(state="CANCELLED"), (), JOB, True, 0, 0.0, Ended),
        (
            own(state="CANCELLED"),
            (),
            JOB._replace(records=""),
            False,
            2e9,
            121.0,
            Lost,
        ),  # a new controller may be wrong
        (own(state="CANCELLED"), (), JOB, False, 2e9, 121.0, Ended),
        # started long ago, but after the job was released: it may have released it once more, and a node refused that
        (own(state="CANCELLED"), (), JOB._replace(records=""), True, 9, 11.0, None),
        (own(state="CANCELLED"), (), JOB._replace(records=""), True, 9, 121.0, Lost),
        (own(state="CANCELLED"), ("began",), JOB, True, 9, 11.0, None),
        (own(state="NODE_FAIL"), (), JOB, True, 0, 11.0, Lost),
        (None, (), JOB, True, 0, 11.0, Lost),
        (None, (), JOB, False, 0, 11.0, Ended),
        (None, (), JOB._replace(records=""), False, 0, 11.0, Lost),  # it may have run
        (own(state="COMPLETED"), ("began", "again"), JOB, True, 0, 11.0, Lost),
        # held again: the controller has forgotten that it was released
        (own(reason="JobHeldUser"), (), JOB, False, 9, 11.0, Refused),  # it keeps records, and there is none
        (own(reason="JobHeldUser"), ("began",), JOB, False, 9, 11.0, None),
        (own(reason="JobHeldUser"), ("began",), JOB, False, 9, 121.0, Lost),
        (own(reason="JobHeldUser"), (), JOB._replace(records=""), False, 9, 11.0, Lost),
        (own(reason="JobHeldUser"), (), JOB._replace(records=""), False, 5, 11.0, Lost),  # in the same second
        (own(reason="JobHeldUser"), (), JOB._replace(records=""), False, 4, 11.0, Refused),  # its user holds it
        (own(reason="JobHeldUser"), (), JOB._replace(records=""), True, 9, 121.0, Lost),
        (own(reason="JobHeldUser"), (), JOB, False, 9, 5.0, None),
    ],
)
def test_what_becomes_of_users_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: QueueRow | None, files: tuple[str, ...], job: Foreign, seen: bool,
    booted: int, waited: float, expected: Any,
) -> None:  # fmt: skip
    monkeypatch.setattr(slurm_commands, "booted", lambda: booted)
    monkeypatch.setattr(slurm, "run", lambda *command, **_: "")
    engine = SlurmEngine(tmp_path / "slurm", partition="watched", records=tmp_path)
    engine.records.open()
    for what in files:
        (tmp_path / f"12-{JOB.records}.{what}").touch()
    placed = SlurmAttempt(None, 0.0, job, given=True, started=seen)
    engine._placed[KEY] = placed
    fact: Fact | None = engine._judge_foreign(KEY, placed, row, waited)
    if expected == "started":
        assert type(fact).__name__ == "Started"
    else:
        assert isinstance(fact, expected) if expected else fact is None


def test_a_user_cancels_a_job_that_runs_under_a_new_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was seen to run for a while, so that the controller knows it: its word counts at once."""
    monkeypatch.setattr(slurm_commands, "booted", lambda: 9)
    engine = SlurmEngine(tmp_path / "slurm", partition="watched", records=tmp_path)
    engine.records.open()
    placed = SlurmAttempt(None, 0.0, JOB._replace(records=""), given=True)
    for now in (1.0, 6.0, 12.0):
        engine._judge_foreign(KEY, placed, own(state="RUNNING"), now)
    fact = engine._judge_foreign(KEY, placed, own(state="CANCELLED"), 12.5)
    assert isinstance(fact, Ended)
    assert fact.by_user


def test_a_number_that_is_given_again(tmp_path: Path) -> None:
    """The controller has forgotten a job that was released, and gives its number to another: that one arrives at once, whatever becomes of the first."""
    records = SlurmRecords(tmp_path / "slurm", tmp_path)
    records.open()
    arrivals = SeenArrivals("watched", records)
    new = own(reason="JobHeldUser", submitted=JOB.submitted + 5)
    later = [
        own(id=number, reason="JobHeldUser", submitted=JOB.submitted + 6) for number in ("100", "20_10", "20_9")
    ]
    keys = [fact.key for fact in arrivals.look([*later, new], [JOB], []) if isinstance(fact, Arrived)]
    numbers = ["12-1000005", "20_9-1000006", "20_10-1000006", "100-1000006"]
    assert keys == [f"slurm-{number}" for number in numbers]
    assert arrivals.look([new, *later], [JOB], []) == []  # told once
    assert [fact.key for fact in arrivals.look(later, [JOB], []) if isinstance(fact, Withdrawn)] == [keys[0]]
    old = own(reason="JobHeldUser")
    assert arrivals.look([old, *later], [JOB], []) == []  # it is placed, and about to be released


@pytest.mark.parametrize(("now", "done"), [(JOB.submitted, True), (JOB.submitted + 5, False), (None, False)])
def test_nothing_is_done_to_another_job_of_the_same_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: int | None, done: bool
) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(slurm, "run", lambda *command, **_: commands.append(command) or "")
    row = None if now is None else own(reason="JobHeldUser", submitted=now)
    monkeypatch.setattr(slurm_commands, "job", lambda number: row)
    engine = SlurmEngine(tmp_path / "slurm", partition="watched", records=tmp_path)
    engine.records.open()
    placed = SlurmAttempt(start(["x"]), 0.0, JOB)
    fact = engine._release(KEY, placed)
    engine._cancel(KEY, placed)
    assert [command[:2] for command in commands] == (
        [("scontrol", "update"), ("scontrol", "release"), ("scancel", "12")] if done else []
    )
    assert fact is None if done else isinstance(fact, Ended) and fact.by_user
