"""Writes what the commands of a page print into the page: `python docs/outputs.py`. A test checks that it is still so.

In README and docs, ```console blocks hold `$ slotwise ...` commands, on the pages of `SHOWING` each followed by what it
prints; ```python blocks without >>> are run, and a ```toml block that begins with `# name.toml` is that file. Blocks
of a page run in order in one empty folder. What README's commands print stands in tests/docs/readme.txt.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from slotwise.cli.main import main as slotwise

ROOT = Path(__file__).parents[1]
SHOWING = ("tutorial.md", "guides/own-trace.md", "guides/plan.md")
"""pages that show what their commands print"""
TRANSCRIPT = ROOT / "tests" / "docs" / "readme.txt"
WIDTH = "96"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
VOLATILE = [
    (re.compile(r"^[\d.]+ million events a second a core$", re.MULTILINE), "... million events a second a core"),
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


def call(line: str) -> Said:
    """Run one command in this process; standard error is told where there is nothing else."""
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
            exec(compile(text, str(page), "exec"), names)
        elif kind == "toml" and text.startswith("# "):
            Path(text.split()[1]).write_text(text, "utf-8")
        elif kind == "console":
            for line in commands(text):
                yield call(line)


def with_outputs(page: Path, said: list[Said]) -> str:
    """The page with what its commands print."""
    left = iter(said)

    def fill(match: re.Match[str]) -> str:
        kind, text = match.groups()
        if kind != "console":
            return match[0]
        parts = [f"{one.command}\n{one.text}\n" for one in (next(left) for _ in commands(text))]
        return "```console\n" + "\n".join(parts) + "```"

    return BLOCK.sub(fill, page.read_text("utf-8"))


def transcript(said: list[Said]) -> str:
    return "\n".join(f"{one.command}\n{one.text}\n" for one in said)


def main() -> None:
    os.environ["COLUMNS"] = WIDTH
    here = Path.cwd()
    for page in [ROOT / "README.md", *(ROOT / "docs" / name for name in SHOWING)]:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                said = list(run(page))
            finally:
                os.chdir(here)
        if wrong := [one for one in said if one.code]:
            sys.exit(f"{page.name}: {wrong[0].command}\n{wrong[0].text}")
        if page.name == "README.md":
            TRANSCRIPT.write_text(transcript(said), "utf-8")
        else:
            page.write_text(with_outputs(page, said), "utf-8")
        print(page.name)


if __name__ == "__main__":
    main()
