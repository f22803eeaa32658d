"""Real tools on a real `slotwise serve --local`: Snakemake with the plugin, submitit and dask-jobqueue with Slurm's commands.

`make test-tools` installs them into an environment of their own, whose programs are in SLOTWISE_TEST_TOOLS.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from processes import PATIENCE, Process, with_shims

from slotwise.live import Client

TOOLS = os.environ.get("SLOTWISE_TEST_TOOLS", "")
pytestmark = [pytest.mark.system, pytest.mark.skipif(not TOOLS, reason="make test-tools installs the tools")]
WIDE = int(
    os.environ.get("SLOTWISE_SNAKEMAKE_JOBS", "200")
)  # jobs of the workflow; Snakemake starts anew for each, which takes 2 s of CPU


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    made = with_shims(tmp_path_factory.mktemp("tools"))
    yield made
    made.clean_up()


def ran(process: Process, folder: Path, *argv: str, code: int = 0) -> str:
    """What a program of the tools' environment prints, with the shims on PATH."""
    path = f"{process.folder / 'bin'}:{TOOLS}:{os.environ['PATH']}"
    own = {**process.environment, "SLOTWISE_SERVER": process.address, "PATH": path, "HOME": str(folder)}
    done = subprocess.run(
        [f"{TOOLS}/{argv[0]}", *argv[1:]], cwd=folder, env=own, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=20 * PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def client_of(process: Process, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setenv("XDG_STATE_HOME", process.environment["XDG_STATE_HOME"])
    return Client(process.address)


def test_snakemake(process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """199 jobs at the same time and one after them; each is a job of the service, with its needs."""
    (tmp_path / "Snakefile").write_text(
        dedent(f"""\
        rule join:
            input: expand("parts/{{n}}", n=range({WIDE - 1}))
            output: "all"
            resources: mem_mb=500, runtime=5
            shell: "cat {{input}} > {{output}}"

        rule part:
            output: "parts/{{n}}"
            shell: "echo {{wildcards.n}} > {{output}}"
        """)
    )
    with client_of(process, monkeypatch) as client:
        before = sum(client.call("GET", "/v1/jobs/counts").json().values())
        ran(
            process,
            tmp_path,
            "snakemake",
            "--executor",
            "slotwise",
            "--jobs",
            str(WIDE),
            "--latency-wait",
            "0",
            "--quiet",
            "all",
        )
        jobs = [job for job in client.jobs() if job.id > before]
        assert len(jobs) == WIDE
        assert {job.state for job in jobs} == {"done"}
        last = client.detail(max(job.id for job in jobs))
        assert (last["needs"], last["time"]) == ({"cpu": 1.0, "memory": 500.0}, 300.0)
    assert sorted(map(int, (tmp_path / "all").read_text().split())) == list(range(WIDE - 1))


def test_snakemake_tells_a_job_that_fails(process: Process, tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(
        'rule bad:\n    output: "never"\n    retries: 1\n    shell: "echo no luck; exit 3"\n'
    )
    said = ran(
        process, tmp_path, "snakemake", "--executor", "slotwise", "--jobs", "2", "--latency-wait", "0", code=1
    )
    assert "slotwise logs" in said
    assert "failed, exit code" in said


def test_submitit(process: Process, tmp_path: Path) -> None:
    """Calls, an array, an exception, a cancelled job."""
    (tmp_path / "work.py").write_text(
        dedent("""\
        import json, time
        import submitit

        def double(n):
            return 2 * n

        def fail():
            raise KeyError("wrong")

        executor = submitit.SlurmExecutor(folder="logs/%j")
        executor.update_parameters(time=5, mem="200M", cpus_per_task=1, job_name="doubles", array_parallelism=2)
        one = executor.submit(double, 21)
        many = executor.map_array(double, [1, 2, 3])
        bad = executor.submit(fail)
        slow = executor.submit(time.sleep, 1000)
        slow.cancel()
        found = {"one": one.result(), "many": [job.result() for job in many]}
        found["exception"] = "KeyError" in str(bad.exception())
        while slow.watcher.get_state(slow.job_id, mode="force") != "CANCELLED":
            time.sleep(0.1)
        found["states"] = [job.watcher.get_state(job.job_id, mode="force") for job in (one, *many, bad)]
        print(json.dumps(found))
        """)
    )
    found = json.loads(ran(process, tmp_path, "python", "work.py").splitlines()[-1])
    assert found["one"] == 42
    assert found["many"] == [2, 4, 6]
    assert found["exception"]
    assert found["states"] == ["COMPLETED"] * 4 + ["FAILED"]


def test_dask_jobqueue(process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are jobs; they are cancelled with the cluster."""
    (tmp_path / "work.py").write_text(
        dedent("""\
        from dask.distributed import Client
        from dask_jobqueue import SLURMCluster

        with SLURMCluster(
            cores=1, memory="500 MB", walltime="00:10:00", queue="slotwise", log_directory="logs", interface="lo",
            scheduler_options={"dashboard_address": None},
        ) as cluster, Client(cluster) as client:
            cluster.scale(jobs=2)
            client.wait_for_workers(2)
            print(sum(client.gather(client.map(lambda n: n * n, range(50)))))
        """)
    )
    with client_of(process, monkeypatch) as client:
        before = sum(client.call("GET", "/v1/jobs/counts").json().values())
        said = ran(process, tmp_path, "python", "work.py")
        assert str(sum(n * n for n in range(50))) in said.splitlines()
        workers = client.wait([job.id for job in client.jobs() if job.id > before], PATIENCE)
        assert [job.name for job in workers] == ["dask-worker"] * 2
        assert len({job.id for job in workers}) == 2
