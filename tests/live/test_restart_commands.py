"""`submit --wait`, `logs -f` and `watch` while the service is killed and started again."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from processes import PATIENCE, Process

SCRIPT = "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two; exit 3"


def command(process: Process, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "slotwise", *words], cwd=process.folder, text=True,
        env={**process.environment, "SLOTWISE_SERVER": process.address}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_commands_that_follow_bear_a_restart(tmp_path: Path, serve: Callable[..., Process]) -> None:
    process = serve(tmp_path, "--local")
    waiting = command(process, "submit", "--wait", "--", "sh", "-c", SCRIPT)
    assert waiting.stdout is not None
    assert waiting.stderr is not None
    assert waiting.stdout.readline() == "one\n"
    number = int(re.search(r"job (\d+): ", waiting.stderr.readline())[1])  # type: ignore[index]
    following = command(process, "logs", "-f", str(number))
    assert following.stdout is not None
    assert following.stdout.readline() == "one\n"
    watching = command(process, "watch", "--after", "0", "--json")
    assert watching.stdout is not None
    rows = [json.loads(watching.stdout.readline())]
    process.end(signal.SIGKILL)
    process.start()
    (tmp_path / "go").touch()
    out, err = waiting.communicate(timeout=PATIENCE)
    assert (waiting.returncode, out) == (3, "two\n")
    assert err.splitlines()[-1] == f"slotwise: job {number} failed, exit code 3"
    assert following.communicate(timeout=PATIENCE)[0] == "two\n"
    assert following.returncode == 0
    while rows[-1]["event"] != "complete":
        rows.append(json.loads(watching.stdout.readline()))
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=PATIENCE)
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))  # none is missing, none comes twice
