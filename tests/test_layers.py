"""Imports point downwards only through the layers of the house."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import slotwise
from slotwise.scheduling import POLICIES

PACKAGE = Path(slotwise.__file__).parent

# From the ground up; parts on one floor do not know each other.
FLOORS = [
    {"errors", "_version", "compiler"},
    {"files"},
    {"display"},
    {"model"},
    {"packing"},
    {"region"},
    {"core"},
    {"policies"},
    {"scheduling"},
    {"workloads"},
    {"theory"},
    {"simulation"},
    {"planning", "foresee"},
    {"report"},
    {"live", "experiments"},
    {"shims"},
    {"cli"},
]
FLOOR = {name: floor for floor, names in enumerate(FLOORS) for name in names}


def part_of(module: str) -> str | None:
    """The part of the house that a dotted module name belongs to, None for what is not ours."""
    names = module.split(".")
    return names[1] if names[0] == "slotwise" and len(names) > 1 else None


def imports_of(path: Path) -> list[str]:
    tree = ast.parse(path.read_text())
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write the whole name"
            found.append(node.module or "")
            if node.module == "slotwise":
                found += [f"slotwise.{alias.name}" for alias in node.names]
    return found


def test_imports_point_downwards() -> None:
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if part in ("__init__", "__main__"):
            continue  # the front door opens onto every floor
        for module in imports_of(path):
            other = part_of(module)
            if other is None or other == part or other not in FLOOR:
                continue
            if FLOOR[other] >= FLOOR[part]:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {module}")
    assert not wrong, "imports must point downwards:\n" + "\n".join(wrong)


def test_every_part_has_a_floor() -> None:
    folders = {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    parts = folders | {p.stem for p in PACKAGE.glob("*.py") if not p.name.startswith("__")}
    assert parts <= set(FLOOR), f"say in FLOORS where {sorted(parts - set(FLOOR))} belongs"


def test_what_is_special_to_a_policy_stands_in_its_class() -> None:
    names = "|".join(re.sub("(?<=[a-z])(?=[0-9])|-", "[-_ ]?", name) for name in POLICIES)
    named = re.compile(rf"\b({names})\b", re.IGNORECASE)
    assert named.search("as Algorithm 1 does")
    assert named.search("best_fit(case)")
    found = [
        f"{path.relative_to(PACKAGE)}:{n}: {match[0]}"
        for path in (*sorted((PACKAGE / "theory").glob("*.py")), PACKAGE / "scheduling" / "explain.py")
        for n, line in enumerate(path.read_text().splitlines(), 1)
        if (match := named.search(line))
    ]
    assert not found, "ask the policy instead of knowing it by name:\n" + "\n".join(found)
