"""Slurm's commands on a real `slotwise serve --local`, called as other programs call them."""

from __future__ import annotations

import doctest
import getpass
import importlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from processes import PATIENCE, Process, with_shims

from slotwise.cli.light import CommandGroup, parse
from slotwise.cli.main import COMMANDS as COMMANDS_OF_SLOTWISE
from slotwise.shims.install import COMMANDS, install
from slotwise.shims.options import read_words
from slotwise.shims.sbatch import OPTIONS, request

Run = Callable[..., subprocess.CompletedProcess[str]]
ME = getpass.getuser()
GUIDES = Path(__file__).parents[2] / "docs/guides"


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    made = with_shims(tmp_path_factory.mktemp("shims"))
    yield made
    assert made.end() == 0
    made.clean_up()


@pytest.fixture
def run(process: Process, tmp_path: Path) -> Run:
    """A command with the shims on PATH."""

    def act(*argv: str, code: int | None = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        path = f"{process.folder / 'bin'}:{os.environ['PATH']}"
        own = {**process.environment, "SLOTWISE_SERVER": process.address, "PATH": path, **environment}
        done = subprocess.run(
            argv,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env=own,
            timeout=PATIENCE,
            check=False,
        )
        assert code is None or done.returncode == code, (argv, done.returncode, done.stdout, done.stderr)
        return done

    return act


def script(folder: Path, *lines: str, interpreter: str = "/bin/sh") -> str:
    (folder / "job.sh").write_text("\n".join([f"#!{interpreter}", *lines, ""]))
    return "job.sh"


@pytest.mark.parametrize("name", ["times", "words", "script", "sbatch", "squeue", "scontrol"])
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"slotwise.shims.{name}")).failed == 0


def test_a_script_with_directives(run: Run, tmp_path: Path) -> None:
    name = script(
        tmp_path,
        "#SBATCH -J 'two words' # a comment",
        "#SBATCH --output=out-%x-%j.txt -t 5 --mem=100M -p debug",
        "#SBATCH --cpus-per-task=1",
        "",
        'echo "$@" $SLURM_JOB_NAME $SLURM_CPUS_PER_TASK $KEPT; echo wrong >&2; exit 3',
        "#SBATCH --nodes=7",
    )
    done = run("sbatch", "--parsable", "--wait", "-J", "mine", name, "a", "b c", code=3, KEPT="kept")
    number = done.stdout.strip()
    assert done.stderr == "sbatch: note: --partition: no effect here\n"
    assert (tmp_path / f"out-mine-{number}.txt").read_text() == "a b c mine 1 kept\nwrong\n"
    row = run(
        "sacct", "-P", "-n", "-o", "JobIDRaw,JobName,State,ExitCode,ReqMem,Timelimit,NCPUS", "-j", number
    ).stdout
    assert row == f"{number}|mine|FAILED|3:0|100M|00:05:00|1\n"
    shown = run("scontrol", "show", "job", number).stdout
    assert f"JobId={number} JobName=mine" in shown
    assert "JobState=FAILED" in shown
    assert f"StdOut={tmp_path}/out-mine-{number}.txt" in shown


def test_another_interpreter_and_standard_input(run: Run, process: Process, tmp_path: Path) -> None:
    name = script(
        tmp_path,
        "import os, sys",
        "print(sys.argv[1:], os.environ['SLURM_SUBMIT_DIR'])",
        interpreter="/usr/bin/env python3",
    )
    run("sbatch", "-o", "python.txt", "--wait", name, "x")
    assert (tmp_path / "python.txt").read_text() == f"['x'] {tmp_path}\n"
    piped = subprocess.run(
        [process.folder / "bin" / "sbatch", "--wait", "-o", "piped.txt"],
        cwd=tmp_path, input="#!/bin/sh\necho piped\n", text=True, capture_output=True, check=True,
        env={**process.environment, "SLOTWISE_SERVER": process.address},
    )  # fmt: skip
    assert re.fullmatch(r"Submitted batch job \d+\n", piped.stdout)
    assert (tmp_path / "piped.txt").read_text() == "piped\n"


def test_arrays_and_dependencies(run: Run, tmp_path: Path) -> None:
    line = "echo $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_MIN-$SLURM_ARRAY_TASK_MAX"
    array = run("sbatch", "--parsable", "-a", "1-3%2", "--wrap", line).stdout.strip()
    after = run(
        "sbatch",
        "--parsable",
        "-d",
        f"afterok:{array}:{array}_2",
        "-o",
        "after.txt",
        "--wait",
        "--wrap",
        "cat slurm-*_*.out",
    )
    assert (tmp_path / "after.txt").read_text() == "".join(f"{array} {n} of 1-3\n" for n in (1, 2, 3))
    rows = run(
        "sacct", "-X", "--parsable2", "--noheader", "--format=JobID,State", "-j", f"{array},{after.stdout.strip()}"
    ).stdout
    assert rows.splitlines() == [
        *(f"{array}_{n}|COMPLETED" for n in (1, 2, 3)),
        f"{after.stdout.strip()}|COMPLETED",
    ]
    assert run("squeue", "-h", "-t", "all", "-o", "%i|%A|%F|%K", "-j", f"{array}_[2-3]").stdout.splitlines() == [
        f"{array}_{n}|{int(array) + n - 1}|{array}|{n}" for n in (2, 3)
    ]
    failed = run("sbatch", "--parsable", "--wait", "--wrap", "exit 1", code=1).stdout.strip()
    never = run("sbatch", "--parsable", "-d", f"afterok:{failed}", "--wrap", "true").stdout.strip()
    assert run("sacct", "-nPo", "State", "-j", never).stdout == "CANCELLED\n"


def test_waiting_running_and_cancelled(run: Run, process: Process) -> None:
    cpus = len(os.sched_getaffinity(0))
    running = run("sbatch", "--parsable", "-c", str(cpus), "-J", "busy", "--wrap", "sleep 1000").stdout.strip()
    waiting = run("sbatch", "--parsable", "-c", str(cpus), "-J", "later", "--wrap", "true").stdout.strip()
    held = run("sbatch", "--parsable", "-d", "singleton", "-J", "later", "--wrap", "true").stdout.strip()
    while run("squeue", "-h", "-o", "%T", "-j", running).stdout != "RUNNING\n":
        pass
    rows = run("squeue", "--me", "--noheader", "--format=%A %t %u %r %C").stdout.splitlines()
    assert rows == [
        f"{running} R {ME} None {cpus}",
        f"{waiting} PD {ME} Resources {cpus}",
        f"{held} PD {ME} Dependency 1",
    ]
    assert run("squeue", "-h", "-t", "PD", "-n", "later", "-o", "%.5i").stdout.split() == [waiting, held]
    heading, row = run("squeue", "-j", running).stdout.splitlines()
    assert heading.split() == ["JOBID", "PARTITION", "NAME", "USER", "ST", "TIME", "NODES", "NODELIST(REASON)"]
    assert row.split()[:3] == [running, "slotwise", "busy"]
    run("scancel", "-n", "later", "-u", ME)
    run("scancel", running)
    while run("squeue", "-h", "-u", ME).stdout:
        pass
    run("scancel", running)  # a job that has ended is no error
    assert run("sacct", "-nPo", "State", "-j", running, "-j", waiting).stdout == "CANCELLED\nCANCELLED\n"
    assert "Invalid job id specified" in run("scancel", "987654", code=1).stderr
    assert "Invalid job id specified" in run("squeue", "-j", "987654", code=1).stderr


def test_a_time_limit(run: Run) -> None:
    over = run("sbatch", "--parsable", "--wait", "-t", "0:01", "--wrap", "sleep 1000", code=None)
    assert over.returncode != 0
    assert run("sacct", "-nPo", "State", "-j", over.stdout.strip()).stdout == "TIMEOUT\n"


STEP = (
    "import signal; signal.signal(signal.SIGUSR2, lambda *_: exit(9)); print('ready', flush=True); signal.pause()"
)


@pytest.mark.parametrize(
    ("asked", "lines", "said"),
    [
        ("B:USR2@4", ["trap 'echo warned; exit 7' USR2", "echo ready; sleep 1000 >&- & wait"], (7, "warned\n")),
        ("USR2@4", [f'srun {sys.executable} -c "{STEP}"', "echo srun ended with $?"], (0, "srun ended with 9\n")),
    ],
)
def test_who_gets_the_signal_before_a_time_limit(
    process: Process, asked: str, lines: list[str], said: tuple[int, str]
) -> None:
    """With B: the script; without, only the commands that it calls with srun. The job is sent the signal by the test."""
    values = read_words(["-t", "10", "--signal", asked], OPTIONS).values
    body = request(values, "\n".join(["#!/bin/sh", *lines, ""]), "job.sh", [])
    assert body["warn"] == {"signal": "USR2", "before": 4.0}
    told = {"SLOTWISE_JOB_ID": "7", "SLOTWISE_ATTEMPT": "1", "SLOTWISE_SERVER_NAME": "here"}
    path = f"{process.folder / 'bin'}:{os.environ['PATH']}"
    job = subprocess.Popen(
        body["argv"],
        env={**os.environ, **told, "PATH": path},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert job.stdout is not None
    assert job.stdout.readline() == "ready\n"
    os.killpg(job.pid, signal.SIGUSR2)
    rest, _ = job.communicate(timeout=PATIENCE)
    with suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)  # a command that the shell was about to execute has not had the signal
    assert (job.returncode, rest) == said


def test_srun(run: Run, tmp_path: Path) -> None:
    name = script(
        tmp_path,
        "#SBATCH -n 2 -o out.txt",
        "srun -o step-%j-%t.txt sh -c 'echo task $SLURM_PROCID of $SLURM_NTASKS'",
        "srun -n 1 --unbuffered sh -c 'exit 5'",
        "echo $?; cat step-$SLURM_JOB_ID-*; sbatch --parsable -J inner -o inner.txt --wrap 'echo $SLURM_NTASKS'",
    )
    run("sbatch", "--wait", name)
    lines = (tmp_path / "out.txt").read_text().splitlines()
    assert lines[:3] == ["5", "task 0 of 2", "task 1 of 2"]
    run("sbatch", "--wait", "-J", "inner", "-d", "singleton", "--wrap", "true")
    assert (tmp_path / "inner.txt").read_text() == "1\n"
    alone = run("srun", "sh", "-c", "echo hello; exit 4", code=4)
    assert alone.stdout == "hello\n"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["sbatch", "-N", "2", "--wrap", "x"], "--nodes=2: a job has one server here; use 1"),
        (["sbatch", "-w", "n1", "--wrap", "x"], "--nodelist=n1: servers are not chosen by name here"),
        (["sbatch", "--exclusive", "--wrap", "x"], "--exclusive: a job shares its server here"),
        (["sbatch", "--wrap", "x", "-d", "after:7"], "--dependency: 'after:7' is not known here; use singleton or"),
        (["sbatch", "--wrap", "x", "-d", "afterok:7?afterok:8"], "--dependency=afterok:7?afterok:8: all conditions must hold here"),
        (["sbatch", "--wrap", "x", "-t", "soon"], "--time: 'soon' is no time; write it like 90 (minutes)"),
        (["sbatch", "--wrap", "x", "--mem", "lots"], "--mem: 'lots' is no amount of memory"),
        (["sbatch", "--wrap", "x", "-o", "%4j"], "%4j is not known here"),
        (["sbatch", "--wrap", "x", "--gres", "fpga:1"], "--gres: 'fpga:1': only gpu is known here"),
        (["sbatch", "--wrap", "x", "--frobnicate"], "no option --frobnicate is known here"),
        (["sbatch", "none.sh"], "none.sh: cannot be read: No such file"),
        (["sbatch", "/dev/null"], "null: does not look like a batch script"),
        (["squeue", "-o", "%y"], "--format: %y is not known here"),
        (["squeue", "-O", "jobid"], "--Format=jobid: has no counterpart here: use --format"),
        (["squeue", "-t", "ODD"], "'ODD' is no state"),
        (["sacct", "-o", "JobID,Odd"], "--format: 'Odd' is no field; `sacct --helpformat` lists them"),
        (["scancel"], "No job identification provided"),
        (["scancel", "-s", "USR1", "1"], "--signal=USR1: jobs get no other signals here"),
        (["scontrol", "requeue", "1"], "requeue: is not known here; a job is executed again by"),
        (["srun"], "srun: names no command"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_told_in_one_line(run: Run, argv: list[str], said: str) -> None:
    done = run(*argv, code=1)
    assert done.stderr.startswith(f"{argv[0]}: error: ")
    assert said in done.stderr
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)


def test_what_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOTWISE_TOKEN", "secret")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("MINE", "x")

    def of(*words: str) -> dict[str, object]:
        return request(read_words(words, OPTIONS).values, "#!/bin/bash -l\n", "job.sh", ["a"])

    body = of(
        "-n4",
        "-c",
        "2",
        "--mem-per-cpu=1G",
        "--gres=gpu:a100:2",
        "-C",
        "fast&zone=a|b",
        "--requeue",
        "--comment",
        "x y",
    )
    assert body["needs"] == {"cpu": 8.0, "memory": 8589.935, "gpu": 2.0}
    assert body["requires"] == {"gpu": ["a100"], "fast": ["yes"], "zone": ["a", "b"]}
    assert (body["on_loss"], body["labels"]) == ("requeue", {"comment": "x y"})
    assert list(body["argv"])[5:] == ["#!/bin/bash -l\n", "/bin/bash", "-l", "/dev/fd/9", "a"]  # type: ignore[call-overload]
    environment = dict(body["env"])  # type: ignore[call-overload]
    assert (environment["MINE"], environment["SLURM_NTASKS"]) == ("x", "4")
    assert environment.keys() & {"SLOTWISE_TOKEN", "SLURM_JOB_ID"} == set()
    assert dict(of("--export=NONE")["env"]).keys() & {"MINE", "PATH"} == set()  # type: ignore[call-overload]
    assert dict(of("--export=SLOTWISE_TOKEN,B=2")["env"]).items() >= {("SLOTWISE_TOKEN", "secret"), ("B", "2")}  # type: ignore[call-overload]


def test_other_programs_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "sbatch").write_text("#!/bin/sh\n# the real one\n")
    with pytest.raises(Exception, match="is another program"):
        install(str(tmp_path))
    assert [one.name for one in tmp_path.iterdir()] == ["sbatch"]
    again = tmp_path / "again"
    assert len(install(str(again))) == len(install(str(again))) == len(COMMANDS)


NEXTFLOW = """\
#!/bin/bash
### ---
### name: 'align ({number})'
### ...
#SBATCH -J nf-align_({number})
#SBATCH -o {folder}/.command.log
#SBATCH --no-requeue
#SBATCH --signal B:USR2@30
#SBATCH -t 01:00:00
#SBATCH --mem 64M
#SBATCH -p long
NXF_CHDIR={folder}
set -e
set -u
on_exit() {{
    exit_status=${{nxf_main_ret:=$?}}
    printf -- $exit_status > {folder}/.exitcode
    set +u
    exit $exit_status
}}
trap on_exit EXIT
trap 'exit 140' USR2
touch {folder}/.command.begin
[[ $NXF_CHDIR ]] && cd "$NXF_CHDIR"
{command}
"""


def test_the_commands_of_nextflow(run: Run, process: Process, tmp_path: Path) -> None:
    """What Nextflow's executor for Slurm calls: `sbatch .command.run` in each work folder, `squeue` for all jobs of the user, `scancel`.

    The header and the commands are those of Nextflow; Nextflow itself is not on PyPI.
    """
    commands = {1: "echo one", 2: "exit 3", 3: "sleep 1000", 4: "echo four"}
    numbers: dict[int, str] = {}
    for number, command in commands.items():
        folder = tmp_path / "work" / f"{number:02}" / "abc"
        folder.mkdir(parents=True)
        (folder / ".command.run").write_text(NEXTFLOW.format(number=number, folder=folder, command=command))
        done = subprocess.run(
            [process.folder / "bin" / "sbatch", ".command.run"], cwd=folder, text=True, check=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**process.environment, "SLOTWISE_SERVER": process.address},
        )  # fmt: skip
        found = [
            match[1]
            for line in done.stdout.splitlines()
            if (match := re.search(r"Submitted batch job (\d+)", line))
        ]
        assert len(found) == 1, done.stdout
        numbers[number] = found[0]
        if number == 3:
            while not (folder / ".command.begin").exists():
                pass
            run("scancel", found[0])

    def states() -> dict[str, str]:
        """As Nextflow reads them: lines of two words; standard error is among them."""
        done = run("squeue", "--noheader", "-o", "%i %t", "-t", "all", "-p", "long", "-u", ME)
        rows = (line.split() for line in (done.stdout + done.stderr).splitlines())
        return {row[0]: row[1] for row in rows if len(row) == 2}

    ended = {"1": "CD", "2": "F", "3": "CA", "4": "CD"}
    while {str(number): states().get(job) for number, job in numbers.items()} != ended:
        pass
    for number, code in ((1, "0"), (2, "3"), (4, "0")):
        assert (tmp_path / f"work/{number:02}/abc/.exitcode").read_text() == code
    assert (tmp_path / "work/01/abc/.command.log").read_text() == "one\n"


def test_a_service_that_restarts_is_waited_for(run: Run, process: Process, tmp_path: Path) -> None:
    process.end(signal.SIGKILL)
    environment = {**process.environment, "SLOTWISE_SERVER": process.address}
    waiting = [
        subprocess.Popen([process.folder / "bin" / argv[0], *argv[1:]], cwd=tmp_path, env=environment, stderr=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
        for argv in (["sbatch", "--parsable", "--wait", "-o", "/dev/null", "--wrap", "true"], ["squeue", "-h"])
    ]  # fmt: skip
    for one in waiting:
        assert one.stderr is not None
        assert "waiting for it" in one.stderr.readline()
    process.start()
    for one in waiting:
        out, _ = one.communicate(timeout=PATIENCE)
        assert one.returncode == 0, out


def blocks(page: str) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```", (GUIDES / page).read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("coming-from.md", "apples\npears\nplums\n"),
        ("tools.md", r".*Submitted batch job \d+\n *JOBID .*JobID\|State\|ExitCode\n.*COMPLETED\|0:0\n"),
    ],
)
def test_the_guides(run: Run, process: Process, page: str, said: str) -> None:
    command = process.folder / "bin" / "slotwise"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m slotwise "$@"\n')
    command.chmod(0o755)
    done = run("sh", "-ec", "".join(blocks(page)))
    assert re.fullmatch(said, done.stdout, re.DOTALL), done.stdout


def test_commands_in_the_tables_can_be_typed() -> None:
    """The right-hand column of the tables: each command has the options that it is shown with."""
    cells = re.findall(r"\| ([^|]*) \|$", (GUIDES / "coming-from.md").read_text(), re.MULTILINE)
    lines = [line for cell in cells for line in re.findall(r"`(slotwise [^`]*)`", cell)]
    assert len(lines) > 30
    for line in lines:
        name, *words = shlex.split(line)[1:]
        assert name in COMMANDS_OF_SLOTWISE, line
        if COMMANDS_OF_SLOTWISE[name].light:
            where = COMMANDS_OF_SLOTWISE[name]
            command = getattr(importlib.import_module(where.module), where.name)
            if isinstance(command, CommandGroup):
                command, words = command.commands[words[0]], words[1:]
            parse(command, f"slotwise {name}", words)
