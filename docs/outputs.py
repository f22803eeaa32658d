"""Writes what the commands of a page print into the page: `python docs/outputs.py`. A test checks that it is still so.

In README and docs, ```console blocks hold `$ slotwise ...` commands, on the pages of `SHOWING` each followed by what it
prints. ```python blocks without >>> are run. A ```toml block that begins with `# name.toml` is that file. Blocks of a
page run in order in one empty folder. README's run where its reader stands, in a copy of this directory as a clone has
it. What they print stands in tests/docs/readme.txt, and in README itself in blocks that show an output. Of `$ make ...`
only the steps are told: some take long, and one runs the tests.

With names, only those pages: `python docs/outputs.py guides/plan.md`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from slotwise.cli.main import main as slotwise

ROOT = Path(__file__).parents[1]
SHOWING = ("tutorial.md", "guides/own-trace.md", "guides/plan.md")  # pages that show what their commands print
TRANSCRIPT = ROOT / "tests" / "docs" / "readme.txt"
WIDTH = "96"
NOT_CLONED = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "site", "*.egg-info")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
VOLATILE = [
    (re.compile(r"^[\d.,]+( million)? events a second a core$", re.MULTILINE), "... events a second a core"),
    (re.compile(r"^report: .*?([^/\n]+/index\.html)$", re.MULTILINE), r"report: .../\1"),
    (re.compile(r"^compiling the kernels.*\n", re.MULTILINE), ""),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
]


class Said(NamedTuple):
    """A command and what came of it."""

    command: str
    code: int
    text: str


def runnable(page: Path) -> list[tuple[str, str]]:
    """The blocks that are run, with their kinds."""
    found = [match.groups() for match in BLOCK.finditer(page.read_text("utf-8"))]
    return [(kind, text) for kind, text in found if kind in ("console", "python", "toml")]


def commands(block: str) -> list[str]:
    return [line for line in block.splitlines() if line.startswith("$ ")]


def clone(place: Path) -> None:
    """The files of a fresh clone."""
    shutil.copytree(ROOT, place, ignore=NOT_CLONED)


def steps(line: str) -> Said:
    """What `make` would do here."""
    words = ["make", "--dry-run", *shlex.split(line, comments=True)[2:]]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=clean)
    return Said(f"$ {shlex.join(words)}", done.returncode, (done.stdout or done.stderr).strip("\n"))


def program(text: str, page: Path, names: dict[str, Any]) -> Said:
    """Run Python; `names` are those of the page's earlier blocks."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(text, str(page), "exec"), names)
    return Said(f"$ python <<END\n{text}END", 0, out.getvalue().strip("\n"))


def call(line: str) -> Said:
    """Run one command in this process; standard error is told where there is nothing else."""
    if line.startswith("$ make "):
        return steps(line)
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            slotwise(shlex.split(line)[2:])
        except SystemExit as end:
            code = end.code or 0
    text = out.getvalue() or err.getvalue()
    if code:
        text = err.getvalue()
    for pattern, words in VOLATILE:
        text = pattern.sub(words, text)
    return Said(line, code, text.strip("\n"))


def run(page: Path) -> Iterator[Said]:
    """Run a page's blocks in the folder where we are."""
    names: dict[str, Any] = {"__name__": "page"}
    for kind, text in runnable(page):
        if kind == "python":
            yield program(text, page, names)
        elif kind == "toml" and text.startswith("# "):
            Path(text.split()[1]).write_text(text, "utf-8")
        elif kind == "console":
            for line in commands(text):
                yield call(line)


def with_outputs(page: Path, said: list[Said]) -> str:
    """Return the page with what its commands print; in README only in blocks that show an output already."""
    left = iter([one for one in said if not one.command.startswith("$ python")])

    def fill(match: re.Match[str]) -> str:
        kind, text = match.groups()
        if kind != "console":
            return match[0]
        ran = [next(left) for _ in commands(text)]
        if page.name == "README.md" and all(line.startswith("$ ") for line in text.splitlines()):
            return match[0]
        parts = [f"{one.command}\n{one.text}\n" for one in ran]
        return "```console\n" + "\n".join(parts) + "```"

    return BLOCK.sub(fill, page.read_text("utf-8"))


def transcript(said: list[Said]) -> str:
    return "\n".join(f"{one.command}\n{one.text}\n" for one in said)


def main() -> None:
    os.environ["COLUMNS"] = WIDTH
    here = Path.cwd()
    pages = {"README.md": ROOT / "README.md", **{name: ROOT / "docs" / name for name in SHOWING}}
    if unknown := set(sys.argv[1:]) - set(pages):
        sys.exit(f"no such page: {', '.join(sorted(unknown))}; there are {', '.join(pages)}")
    for page in [pages[name] for name in sys.argv[1:] or pages]:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder, "slotwise")
            clone(place) if page.name == "README.md" else place.mkdir()
            os.chdir(place)
            try:
                said = list(run(page))
            finally:
                os.chdir(here)
        if wrong := [one for one in said if one.code]:
            sys.exit(f"{page.name}: {wrong[0].command}\n{wrong[0].text}")
        if page.name == "README.md":
            TRANSCRIPT.write_text(transcript(said), "utf-8")
        page.write_text(with_outputs(page, said), "utf-8")
        print(page.name)


if __name__ == "__main__":
    main()
