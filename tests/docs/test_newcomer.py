"""What a new user does, command by command, and what is printed: from README to a policy that runs, to a job that ran on `serve --local`."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
POLICY = "examples/policy_in_20_lines.py"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def slotwise(*words: str, folder: Path = ROOT) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "slotwise", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_leads_to_every_step() -> None:
    readme = (ROOT / "README.md").read_text()
    for step in ("make run", "make test", "docs/guides/serve.md", "docs/guides/own-policy.md", "slotwise compare"):
        assert step in readme, step
    assert len(readme.splitlines()) < 150


def test_a_policy_of_ones_own() -> None:
    """The example of the guide, on a shipped scenario, beside a known policy."""
    settings = ["--set", "run.events=2000", "--set", "run.replications=2"]
    printed = slotwise("compare", "example1", "--policy", f"{POLICY}:TypesInOrder,fifo", *settings, "--csv")
    heading, *rows = printed.splitlines()
    assert "mean_queue" in heading
    assert [row.split(",")[0] for row in rows] == [f"{POLICY}:TypesInOrder"] * 2 + ["fifo"] * 2


@pytest.fixture
def service(tmp_path: Path) -> Iterator[object]:
    pytest.importorskip("uvicorn")
    process = load(ROOT / "tests" / "live" / "processes.py").Process(tmp_path, "--local")
    process.start()
    yield process
    assert process.end() == 0
    process.clean_up()


def test_a_job_on_this_machine(service: object) -> None:
    """`slotwise serve --local` in one terminal; in another: submit, jobs, logs."""
    command = service.command  # type: ignore[attr-defined]
    submitted = command("submit", "--wait", "--", "echo", "hello")
    assert (submitted.returncode, submitted.stdout) == (0, "hello\n"), submitted.stderr
    listed = command("jobs", "--state", "done")
    assert re.search(r"^\W*1\b.*\bdone\b", listed.stdout, re.MULTILINE), listed.stdout
    assert command("logs", "1").stdout == "hello\n"
