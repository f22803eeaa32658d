"""Counts of the house: `python tools/counts.py [--at REV]...`: size by package, and what a reader trips over.

With `--at`, the same counts of an earlier commit stand beside those of this tree. `names for two things` are classes that more than one module of
slotwise defines; a constant counts as unexplained if no comment stands before, in or beside its line.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

import prose

ROOT = Path(__file__).resolve().parents[1]
MOST_LINES = 60  # of a function


def counts(tree: Path) -> dict[str, int]:
    """Return every count of a tree, by name and in order."""
    source = tree / "src" / "slotwise"
    files = sorted(source.rglob("*.py"))
    found: dict[str, int] = {"files": len(files), "lines": 0}
    packages: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    classes: dict[str, int] = Counter()
    for path in files:
        text = path.read_text("utf-8")
        part = path.relative_to(source).parts[0].removesuffix(".py")
        packages[part] += text.count("\n")
        module = ast.parse(text)
        lines = text.splitlines()
        classes.update(node.name for node in module.body if isinstance(node, ast.ClassDef) and node.name[0] != "_")
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                totals[f"functions over {MOST_LINES} lines"] += (node.end_lineno or 0) - node.lineno >= MOST_LINES
            if isinstance(node, ast.ImportFrom) and (node.module or "").endswith(".state"):
                totals["lines that import from state"] += (node.end_lineno or 0) - node.lineno + 1
        totals["calls by address (call_at)"] += text.count("call_at(")
        totals["constants without unit or reason"] += sum(_is_unexplained(node, lines) for node in module.body)
        for _, rule, _ in prose.findings(path):
            totals[f"source: {rule}"] += 1
    for page in [tree / "README.md", *(tree / "docs").rglob("*.md")]:
        for _, rule, _ in [] if prose.is_made(page) else prose.findings(page):
            totals[f"documentation: {rule}"] += 1
    found["lines"] = sum(packages.values())
    found |= {f"lines of {name}": n for name, n in sorted(packages.items())}
    found["names for two things"] = sum(n > 1 for n in classes.values())
    return found | dict(sorted(totals.items()))


def _is_unexplained(node: ast.stmt, lines: list[str]) -> bool:
    """Whether the statement sets a number by an upper-case name and no comment stands by it."""
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return False
    number = isinstance(node.value, ast.Constant) and isinstance(node.value.value, int | float)
    if not node.targets[0].id.isupper() or not number:
        return False
    near = lines[max(node.lineno - 2, 0) : node.end_lineno]
    return not any("#" in line for line in near)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--at", action="append", default=[], metavar="REV")
    columns = {}
    for revision in parser.parse_args().at:
        packed = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True).stdout
        with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(packed)) as tree:
            tree.extractall(folder, filter="data")
            columns[revision[:10]] = counts(Path(folder))
    columns["this tree"] = counts(ROOT)
    rows = dict.fromkeys(name for column in columns.values() for name in column)
    print(f"{'':40}" + "".join(f"{name:>12}" for name in columns))
    for row in rows:
        print(f"{row:40}" + "".join(f"{column.get(row, 0):>12,}" for column in columns.values()))


if __name__ == "__main__":
    main()
