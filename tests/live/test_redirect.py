"""Standard streams to and from files, with patterns."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from house import House

from slotwise.live.loop import start_of
from slotwise.live.redirect import redirected
from slotwise.live.store.records import Job
from slotwise.scheduling.events import Placement


def ran(spec: dict[str, Any], **keys: int) -> subprocess.CompletedProcess[str]:
    argv = redirected({"argv": ["sh", "-c", "cat; echo out; echo err >&2; exit 3"], **spec}, 8, 2, **keys)
    return subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def test_streams_go_to_files(tmp_path: Path) -> None:
    (tmp_path / "in 3").write_text("in\n")
    done = ran(
        {"stdin": f"{tmp_path}/in %a", "stdout": f"{tmp_path}/%j-%t.out", "stderr": f"{tmp_path}/%A_%a.err"}, array=7, index=3
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
    assert (tmp_path / "8-2.out").read_text() == "in\nout\n"
    assert (tmp_path / "7_3.err").read_text() == "err\n"
    done = ran({"stdout": f"{tmp_path}/both", "stderr": f"{tmp_path}/both"})
    assert (tmp_path / "both").read_text() == "out\nerr\n"
    assert ran({"stderr": f"{tmp_path}/e"}).stdout == "out\n"


def test_files_are_appended_to_on_request(tmp_path: Path) -> None:
    for _ in range(2):
        ran({"stdout": f"{tmp_path}/out", "stderr": f"{tmp_path}/out", "append": True})
        ran({"stderr": f"{tmp_path}/err"})
    assert (tmp_path / "out").read_text() == "out\nerr\n" * 2
    assert (tmp_path / "err").read_text() == "err\n"


def test_a_folder_with_the_number_of_the_job_is_made(tmp_path: Path) -> None:
    ran({"stdout": f"{tmp_path}/%A/%j/out", "stderr": f"{tmp_path}/%j-%t/err"})
    assert (tmp_path / "8/8/out").read_text() == "out\n"
    assert (tmp_path / "8-2/err").read_text() == "err\n"


@pytest.mark.parametrize("key", ["stdin", "stdout", "stderr"])
def test_a_file_that_cannot_be_opened_is_told(tmp_path: Path, key: str) -> None:
    done = ran({key: f"{tmp_path}/none/x"})
    assert (done.returncode, done.stdout) == (126, "")
    assert f"slotwise: cannot open {tmp_path}/none/x" in done.stderr


def test_a_command_without_files_is_left_alone() -> None:
    spec = {"argv": ["a", "b"]}
    assert redirected(spec, 1, 1) == ["a", "b"]
    job = Job(8, "t", "x", "", "placed", "s", 2, None, None, 0, 0.0, 0.0, None, None, 7, 3, None, 1)
    started = start_of(job, Placement(8, "s", 2), {"argv": ["a"], "stdout": "/x%a"}, {})
    assert started.spec["argv"][-4:] == ["", "/x3", "", "a"]


def test_over_the_api(tmp_path: Path) -> None:
    house = House(tmp_path)
    try:
        number = house.submit(stdout="/tmp/%j")
        assert house.call("GET", f"/v1/jobs/{number}").json()["stdout"] == "/tmp/%j"
        for body, said in (({"stdin": "x"}, "relative"), ({"stderr": "/%x"}, "%x is no pattern")):
            wrong = house.call("POST", "/v1/jobs", json={"argv": ["x"], **body})
            assert (wrong.status_code, said in wrong.json()["detail"]) == (422, True)
    finally:
        house.service.close()
