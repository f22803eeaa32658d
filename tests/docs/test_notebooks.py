"""The notebooks of examples/ run from top to bottom, and what they end their cells with can be shown."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


def shown(value: Any) -> str:
    """As a notebook would show it."""
    for name in ("_repr_html_", "_repr_svg_"):
        show = getattr(value, name, None)
        if show is not None and (text := show()) is not None:  # Matplotlib has one that says nothing
            return str(text)
    return repr(value)


def run(notebook: Path) -> list[str]:
    """Run every cell in one namespace; what each ends with, as it is shown."""
    names: dict[str, Any] = {"__name__": "__main__"}
    outputs = []
    for number, cell in enumerate(json.loads(notebook.read_text())["cells"]):
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == [], "notebooks are kept without their output"
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        where = f"{notebook.name}[{number}]"
        exec(compile(tree, where, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), where, "eval"), names)
            outputs.append(shown(value) if value is not None else "")
    return outputs


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["own_policy_against_guarded", "trace_to_plan"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    outputs = run(notebook)
    text = "".join(outputs)
    assert "<svg" in text
    assert "<table" in text
    printed = capsys.readouterr().out
    if notebook.stem == "trace_to_plan":
        assert "600 rows read" in printed
        assert "2 jobs have no end" in printed or "left out: 1" in printed
        assert any("p95" in one and "node" in one for one in outputs)
    else:
        assert "last-first" in text
        assert "mean queue less that of guarded" in printed
