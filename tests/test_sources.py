"""Machine code is void when something that it was made from has changed, and only then."""

from __future__ import annotations

import ast

import pytest

from slotwise.compiler import sources
from slotwise.compiler.switch import TESTED, chosen


def parsed(text: str) -> set[str]:
    """What `imported` finds by patterns, by Python's own parser."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update((node.module, *(f"{node.module}.{alias.name}" for alias in node.names)))
        waiting.extend(ast.iter_child_nodes(node))
    return {name for name in found if name.startswith("slotwise.")}


def graph() -> dict[str, list[str]]:
    files = {sources._name(path): path.read_text() for path in sources.PACKAGE.rglob("*.py")}
    return {name: [one for one in sources.imported(text) if one in files] for name, text in files.items()}


def test_every_import_of_every_module_is_found() -> None:
    for path in sources.PACKAGE.rglob("*.py"):
        text = path.read_text()
        assert parsed(text) <= sources.imported(text), path


def test_kernels_of_the_core_are_made_from_the_core() -> None:
    imports = graph()
    for module in ("core.steps", "core.indexes.fitindex", "policies.paper.slots", "packing.kernels.search"):
        made_from = {name.split(".")[1] for name in sources.reached(f"slotwise.{module}", imports)}
        assert made_from <= {"compiler", "core", "policies", "packing", "errors"}, module
    assert "slotwise.core.state" in sources.reached("slotwise.policies.paper.slots", imports)


@pytest.mark.parametrize("module", ["planning", "simulation", "workloads", "theory", "report", "live", "cli"])
def test_no_kernel_of_a_policy_is_made_from_what_uses_it(module: str) -> None:
    imports = graph()
    for name in imports:
        if name.startswith(("slotwise.policies.", "slotwise.core.")):
            assert not [one for one in sources.reached(name, imports) if one.split(".")[1] == module], name


def test_a_changed_source_changes_the_stamps_of_what_is_made_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(sources._stamps())
    real = sources._facts_of

    def look(path: object, known: object) -> dict[str, object]:
        found = real(path, known)  # type: ignore[arg-type]
        return {**found, "hash": "other"} if str(path).endswith("core/steps.py") else found

    monkeypatch.setattr(sources, "_facts_of", look)
    monkeypatch.setattr(sources, "_write", lambda *_: None)
    after = sources._stamps.__wrapped__()
    changed = {name for name in before if before[name] != after[name]}
    assert {"slotwise.core.steps", "slotwise.core.server_steps", "slotwise.policies.paper.slots"} <= changed
    assert not {"slotwise.core.state", "slotwise.core.indexes.bitmap", "slotwise.packing.kernels.search"} & changed


def test_ours_on_tested_versions_and_numba_alone_on_others() -> None:
    assert chosen("", f"{TESTED[0]}.1", disabled=False) == ("ours", "")
    mode, line = chosen("", "0.99.0", disabled=False)
    assert mode == "numba"
    assert "Numba 0.99.0 is not a tested version" in line
    assert "\n" not in line
    assert chosen("numba", "0.99.0", disabled=False) == ("numba", "")
    assert chosen("ours", "0.99.0", disabled=False) == ("ours", "")
    assert chosen("", TESTED[0], disabled=True) == ("off", "")
    with pytest.raises(ValueError, match="use ours, numba or off"):
        chosen("fast", TESTED[0], disabled=False)
