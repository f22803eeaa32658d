"""Each line of the threat model names a test that exists."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "threat-model.md"


def functions_of(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_each_line_is_checked_by_a_test() -> None:
    rows = [line.strip("| \n").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    named = [row[-1] for row in rows if row[-1] != "checked by"]
    assert len(named) >= 20
    for name in named:
        file, _, function = name.partition("::")
        found = [path for folder in ("live", "cli") for path in (ROOT / "tests" / folder).glob(file)]
        assert len(found) == 1, name
        assert function in functions_of(found[0]), name
