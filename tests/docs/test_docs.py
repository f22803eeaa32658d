"""The documentation is true: its commands and Python run, its links lead somewhere, its reference is up to date.

In README and docs, ```console blocks hold `$ slotwise ...` commands, ```python blocks without >>> are run, and a
```toml block that begins with `# name.toml` is that file. Blocks of a page run in order in one empty folder.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from slotwise.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHOWN_ELSEWHERE = {"own-policy.md"}  # tests/scheduling/test_own_policy.py runs its code


def runnable(page: Path) -> list[tuple[str, str]]:
    found = [match.groups() for match in BLOCK.finditer(page.read_text())]
    return [(kind, text) for kind, text in found if kind in ("console", "python", "toml")]


@pytest.mark.parametrize(
    "page", [p for p in PAGES if runnable(p) and p.name not in SHOWN_ELSEWHERE], ids=lambda p: p.name
)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    for kind, text in runnable(page):
        if kind == "python":
            exec(compile(text, str(page), "exec"), names)
        elif kind == "toml" and text.startswith("# "):
            Path(text.split()[1]).write_text(text)
        elif kind == "console":
            for line in text.splitlines():
                assert line.startswith("$ slotwise "), f"{page.name}: {line}"
                with pytest.raises(SystemExit) as end:
                    main(shlex.split(line)[2:])
                assert end.value.code == 0, f"{line}\n{capsys.readouterr().err}"
                assert capsys.readouterr() != ("", ""), line


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, part = target.partition("#")
        if "://" not in path:
            there = page.parent / path if path else page
            assert there.exists(), f"{page.name}: {target}"
            if part:
                heads = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
                assert part in {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}, target


def test_reference_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    for name, text in generate.pages().items():
        assert (generate.REFERENCE / name).read_text() == text, f"{name}: run python docs/generate.py"


def test_every_page_is_in_the_navigation() -> None:
    config = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        assert f" {page.relative_to(ROOT / 'docs').as_posix()}\n" in config + "\n", page


def test_every_figure_has_its_command() -> None:
    """A page that shows a picture says how it is drawn, and that program draws it."""
    draw = (ROOT / "docs" / "figures" / "draw.py").read_text()
    shown = set()
    for page in PAGES:
        pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text())
        for picture in pictures:
            assert f'"{Path(picture).name}"' in draw, picture
            assert "python docs/figures/draw.py" in page.read_text(), page
            shown.add(Path(picture).name)
    assert shown == {path.name for path in (ROOT / "docs" / "figures").glob("*.svg")}


def test_figures_are_small() -> None:
    for path in (ROOT / "docs" / "figures").glob("*.svg"):
        assert path.stat().st_size < 100_000, path.name


@pytest.mark.parametrize("name", ["compare_policies_on_a_trace", "embed_scheduler", "policy_in_20_lines"])
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
    assert capsys.readouterr().out
