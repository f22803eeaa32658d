"""What a new user does, command by command, and what is printed: from README to a policy that runs, to jobs that ran on `serve --local`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import newcomer

ROOT = Path(__file__).parents[2]


def test_the_readme_leads_to_every_step() -> None:
    readme = (ROOT / "README.md").read_text()
    steps = (
        "make run",
        "make test",
        "slotwise serve --local",
        "docs/guides/first-day.md",
        "docs/guides/own-policy.md",
        "slotwise compare",
    )
    for step in steps:
        assert step in readme, step
    assert len(readme.splitlines()) < 150


def test_every_command_and_what_it_prints(tmp_path: Path) -> None:
    assert newcomer.run(tmp_path) == newcomer.TRANSCRIPT.read_text(), "run python tests/docs/newcomer.py"
