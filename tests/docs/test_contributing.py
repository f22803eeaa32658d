"""What CONTRIBUTING says of the source is true: the counts of the walks, and the files and packages that it names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
SOURCE = ROOT / "src" / "slotwise"


def test_walks_enter_as_many_modules_as_the_tour_says() -> None:
    command = [sys.executable, "tools/walk.py", "--policy", "guarded", "--policy", "best-fit"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^(\S+), median (\w+) of \d+: (\d+) modules", printed, re.MULTILINE)
    said = re.findall(r"^\| `(\S+)` \| (arrival|completion) \| (\d+) \|", TEXT, re.MULTILINE)
    assert said == found, printed


def test_every_package_is_on_the_map() -> None:
    rows = re.findall(r"^\| (`.*?) \|", TEXT[: TEXT.index("## The ten-minute tour")], re.MULTILINE)
    named = set(re.findall(r"`(\w+)`", " ".join(rows)))
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    modules = {path.stem for path in SOURCE.glob("[a-z]*.py")}
    assert named == packages | modules


def test_every_package_says_what_lives_there_what_it_imports_and_where_to_start() -> None:
    for path in SOURCE.glob("*/__init__.py"):
        said = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        assert re.search(r"\bimport", said, re.IGNORECASE), path
        assert re.search(r"\bstart\b", said, re.IGNORECASE), path
        assert said.count("\n") >= 3, path


def test_every_file_of_the_tour_is_there() -> None:
    tour = TEXT[TEXT.index("## The ten-minute tour") : TEXT.index("## Pins")]
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", tour)
    assert len(named) > 4
    assert not [name for name in named if not (ROOT / name).exists() and not (SOURCE / name).exists()]
