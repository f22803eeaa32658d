"""Commands as tables: what is parsed, what is refused, and that help, completion and the parser know the same options."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import typer

from slotwise.cli.light import Argument, CommandGroup, LightCommand, Option, call, help_of, parse, whole
from slotwise.cli.main import COMMANDS, build
from slotwise.errors import InputError

LIGHT = [name for name, one in COMMANDS.items() if one.light]
HEAVY = ("numpy", "pydantic", "rich", "typer", "click", "httpx", "numba", "polars", "http.client", "asyncio")


def target(name: str) -> Any:
    module = __import__(COMMANDS[name].module, fromlist=["x"])
    return getattr(module, COMMANDS[name].name)


ONE = LightCommand(
    lambda **values: values and 0,
    "Do it.",
    (
        Argument("argv", "-- ARGV...", "words", many=True),
        Option("label", "--label", "x", "L", repeatable=True),
        Option("limit", "--limit", "x", "N", whole, 5),
        Option("follow", "-f, --follow", "x", default=True, negative="--no-follow"),
        Option("quiet", "-q", "x"),
    ),
    passes_on=True,
    waiting_code=125,
)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["a"], {"argv": ["a"], "label": [], "limit": 5, "follow": True, "quiet": False}),
        (["--limit=7", "a", "--no-follow", "b"], {"argv": ["a", "b"], "limit": 7, "follow": False}),
        (["-q", "--label", "x=1", "--label=y=2", "--", "a", "--limit"], {"argv": ["a", "--limit"], "label": ["x=1", "y=2"]}),
        (["-", "--", "--"], {"argv": ["-", "--"]}),
    ],
)  # fmt: skip
def test_what_is_parsed(words: list[str], values: dict[str, Any]) -> None:
    found = parse(ONE, "slotwise one", words)
    assert {name: found[name] for name in values} == values


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "one: ARGV... is missing; write slotwise one -- ARGV..."),
        (["--limit"], r"--limit: needs a value \(N\)"),
        (["--limit", "x", "a"], "--limit: 'x' is no whole number"),
        (["--limt", "3"], "one: no option --limt; did you mean --limit"),
        (["-q=1", "a"], "no option -q=1"),
        (["--follow=no", "a"], "--follow: takes no value"),
        (["echo", "-n", "x"], "no option -n; if it belongs to the job's command, write: slotwise one -- echo -n x"),
        (["\udcff"], r"b'\\xff' is not UTF-8"),
    ],
)
def test_mistakes(words: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        call(ONE, "slotwise one", words)
    assert error.value.exit_code == 2
    with pytest.raises(InputError) as error:
        call(ONE, "slotwise one", ["--wait", *words])
    assert error.value.exit_code == 125


def test_commands_below(capsys: pytest.CaptureFixture[str]) -> None:
    group = CommandGroup("Two.", {"one": ONE})
    assert call(group, "slotwise two", []) == 2
    assert call(group, "slotwise two", ["one", "--help"]) == 0
    assert "Usage: slotwise two one [OPTIONS] -- ARGV..." in capsys.readouterr().out
    with pytest.raises(InputError, match="two: no command 'on'; did you mean one"):
        call(group, "slotwise two", ["on"])


def leaves(one: Any, shown: Any) -> list[tuple[LightCommand, Any]]:
    if isinstance(one, LightCommand):
        return [(one, shown)]
    return [pair for name, inner in one.commands.items() for pair in leaves(inner, shown.commands[name])]


@pytest.mark.parametrize("name", LIGHT)
def test_help_completion_and_reference_show_the_same(name: str) -> None:
    app: Any = typer.main.get_command(build([name]))
    for command, shown in leaves(target(name), app.commands[name]):
        flags = {flag for option in command.options for flag in [*option.names, *filter(None, [option.negative])]}
        known = {flag for one in shown.params for flag in (*one.opts, *one.secondary_opts) if flag.startswith("-")}
        assert known == flags
        text = help_of(command, f"slotwise {name}")
        assert all(flag in text for flag in flags)
        assert {one.name for one in command.parameters} == {one.name for one in shown.params}


@pytest.mark.parametrize("words", [["--help"], ["--version"], *([name, "--help"] for name in LIGHT)], ids=" ".join)
def test_nothing_heavy_is_imported(words: list[str]) -> None:
    program = "import sys, runpy; sys.argv[0] = 'slotwise'\ntry: runpy.run_module('slotwise', run_name='__main__')\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert not set(HEAVY) & set(done.stdout.splitlines()[-1].split())
