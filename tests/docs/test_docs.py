"""The documentation is true: its commands and Python run and print what it says, its links lead somewhere, its reference is up to date.

`docs/outputs.py` says how blocks are run, and writes what they print.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# tests/live/test_libvirt_real.py, tests/live/test_workflows.py and tests/scheduling/test_own_policy.py run them
SHOWN_ELSEWHERE = {"libvirt.md", "workflows.md", "usage.md", "own-policy.md"}


def program(name: str) -> ModuleType:
    """A program of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


outputs = program("outputs")


@pytest.mark.parametrize(
    "page", [p for p in PAGES if outputs.runnable(p) and p.name not in SHOWN_ELSEWHERE], ids=lambda p: p.name
)
def test_blocks_run_and_print_what_is_shown(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", outputs.WIDTH)
    if page.name == "README.md":
        outputs.clone(tmp_path / "slotwise")
        monkeypatch.chdir(tmp_path / "slotwise")
    for kind, text in outputs.runnable(page):
        if kind == "console":
            assert text.startswith(("$ slotwise ", "$ make ")), f"{page.name}: {text}"
    said = list(outputs.run(page))
    for one in said:
        assert one.code == 0, f"{one.command}\n{one.text}"
        assert one.text or one.command.startswith("$ python"), one.command
    if page.name == "README.md":
        assert outputs.transcript(said) == outputs.TRANSCRIPT.read_text(), "run python docs/outputs.py"
    if page in [ROOT / "README.md", *(ROOT / "docs" / name for name in outputs.SHOWING)]:
        assert outputs.with_outputs(page, said) == page.read_text(), "run python docs/outputs.py"


def commands_of(text: str) -> set[str]:
    """What a reader may type: in blocks, whatever their kind, and in code within sentences."""
    starts = r"(?:slotwise|make|python|pip|git|\. \.venv)\b[^`#\n]*"
    inline = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    found = re.findall(rf"^(?:\$ |    )({starts})", text, re.MULTILINE) + re.findall(rf"`({starts})`", inline)
    return {" ".join(command.split()) for command in found}


# Commands of README that the transcript lacks, as they take long or never end, and the file that says more of them.
RUN_ELSEWHERE = {
    ". .venv/bin/activate": "Makefile",
    "make help": "Makefile",
    "pip install '.[serve]'": "docs/guides/install.md",
    "slotwise trace import": "docs/guides/own-trace.md",
    "slotwise serve": "docs/guides/serve.md",
    "slotwise capacity FILE --proofs": "docs/tutorial.md",
    "slotwise serve --local": "tests/docs/newcomer.txt",
    "slotwise serve --demo": "docs/guides/dashboard.md",
    "slotwise open": "docs/guides/dashboard.md",
    "slotwise submit --wait -- echo hello": "tests/docs/newcomer.txt",
    "slotwise submit --array 1-100 --needs cpu=1,memory=100M --time 1h -- ./one.sh": "tests/docs/newcomer.txt",
    "slotwise status": "tests/docs/newcomer.txt",
    "slotwise warm": "docs/guides/install.md",
    "python docs/figures/draw.py": "docs/figures/draw.py",
}


def test_the_transcript_has_every_command_of_the_readme() -> None:
    told = commands_of(outputs.TRANSCRIPT.read_text().replace("make --dry-run", "make"))
    asked = commands_of((ROOT / "README.md").read_text())
    missing = {command for command in asked if not any(f"{one} ".startswith(f"{command} ") for one in told)}
    assert missing == set(RUN_ELSEWHERE), "run python docs/outputs.py, or say where it is run"
    for name in RUN_ELSEWHERE.values():
        assert (ROOT / name).exists(), name


def test_a_command_without_a_transcript_would_be_found() -> None:
    readme = (ROOT / "README.md").read_text()
    for more in (
        "\n    slotwise new thing\n",
        "\nsay `slotwise new thing`\n",
        "\n```sh\n$ slotwise new thing\n```\n",
    ):
        assert commands_of(readme + more) - commands_of(readme) == {"slotwise new thing"}


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
    generate = program("generate")
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
            if picture.endswith(".png"):  # of the dashboard: a test in a browser makes it
                made = (ROOT / "tests" / "live" / "test_browser.py").read_text()
                assert f'"{Path(picture).stem.removeprefix("dashboard-")}"' in made, picture
                assert "tests/live/test_browser.py" in page.read_text(), page
                continue
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
