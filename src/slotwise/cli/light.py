"""Commands as tables: the parser, the help, the reference page and shell completion are all made from them.

A command of the client must start within 0.15 s, and importing Typer takes longer than that. So these commands are parsed here, with the
standard library only; `slotwise.cli.bridge` shows the same tables to Typer for completion and for docs/generate.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from slotwise.errors import InputError, SlotwiseError

HELP = ("-h", "--help")
WIDEST = 100  # columns of a help text, however wide the terminal is
LEFT = 30  # columns at most for the names of options in a help text


class Option(NamedTuple):
    """An option. Without a metavar it is a flag; `kind` reads the text of a value."""

    name: str
    """the keyword of the command's function"""
    flags: str
    """as they are typed, with commas: "-f, --follow" """
    help: str
    metavar: str | None = None
    kind: Callable[[str], Any] = str
    default: Any = None
    repeatable: bool = False
    negative: str | None = None
    """a flag that says no, such as --no-follow"""
    required: bool = False

    @property
    def names(self) -> list[str]:
        return self.flags.split(", ")


class Argument(NamedTuple):
    """A positional argument; with `many`, all that are left."""

    name: str
    metavar: str
    help: str
    kind: Callable[[str], Any] = str
    many: bool = False
    required: bool = True


class LightCommand(NamedTuple):
    """A command: its function, what `--help` says, and what it takes."""

    act: Callable[..., int | None]
    about: str
    parameters: tuple[Option | Argument, ...]
    examples: tuple[str, ...] = ()
    passes_on: bool = False
    """the arguments are a command with options of its own: they are best written after --"""
    waiting_code: int | None = None
    """exit code of the command's own failures with --wait: one that no job has"""

    @property
    def options(self) -> list[Option]:
        return [one for one in self.parameters if isinstance(one, Option)]

    @property
    def arguments(self) -> list[Argument]:
        return [one for one in self.parameters if isinstance(one, Argument)]


class CommandGroup(NamedTuple):
    """Commands below a command."""

    about: str
    commands: dict[str, LightCommand]


def whole(text: str) -> int:
    """Read a whole number of 0 or more."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError("is no whole number of 0 or more")
    return int(text)


def positive(text: str) -> int:
    """Read a whole number of 1 or more."""
    if whole(text) < 1:
        raise ValueError("is below 1")
    return int(text)


def one_of(*words: str) -> Callable[[str], str]:
    """Return a reader of one of these words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"is not one of: {', '.join(words)}")
        return text

    return read


def call(target: LightCommand | CommandGroup, path: str, words: Sequence[str]) -> int | None:
    """Run a command with the words of its command line, or print its help."""
    if isinstance(target, CommandGroup):
        return _call_below(target, path, words)
    typed = list(words)
    own = typed[: typed.index("--")] if "--" in typed else typed
    if any(word in HELP for word in own):
        print(help_of(target, path))
        return 0
    try:
        return _act(target, path, typed)
    except SlotwiseError as error:
        if target.waiting_code is not None and "--wait" in own:
            error.exit_code = target.waiting_code
        raise


def _act(command: LightCommand, path: str, typed: Sequence[str]) -> int | None:
    for word in typed:
        if not is_text(word):
            shown = os.fsencode(word)
            raise InputError(
                f"{shown!r} is not UTF-8", where=of(path), remedy="jobs and names are sent as UTF-8 text"
            )
    return command.act(**parse(command, path, typed))


def is_text(word: str) -> bool:
    """Return whether a word of the command line was UTF-8: Python keeps other bytes as lone surrogates."""
    return not any("\ud800" <= c <= "\udfff" for c in word)


def _call_below(group: CommandGroup, path: str, words: Sequence[str]) -> int | None:
    name = next((word for word in words if not word.startswith("-")), "")
    if name in group.commands and words[0] == name:
        return call(group.commands[name], f"{path} {name}", words[1:])
    if not words or words[0] in HELP:
        print(help_of_group(group, path))
        return 0 if words else InputError.exit_code
    known = list(group.commands)
    raise InputError(
        f"no command {words[0]!r}", where=of(path), remedy=near(words[0], known) or f"use: {', '.join(known)}"
    )


def parse(command: LightCommand, path: str, words: Sequence[str]) -> dict[str, Any]:
    """Return the values for a command's function: every option with its value or default, and the arguments."""
    by_flag: dict[str, tuple[Option, bool]] = {}
    for option in command.options:
        by_flag |= dict.fromkeys(option.names, (option, True))
        if option.negative:
            by_flag[option.negative] = option, False
    values: dict[str, Any] = {
        one.name: [] if one.repeatable else False if one.metavar is None and one.default is None else one.default
        for one in command.options
    }
    given: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            given += left
            break
        if len(word) < 2 or not word.startswith("-"):
            given.append(word)
            continue
        flag, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if flag not in by_flag:
            raise _unknown(command, path, flag, given, left, list(by_flag))
        option, said = by_flag[flag]
        if option.metavar is None:
            if equals:
                raise InputError("takes no value", where=flag)
            values[option.name] = said
            continue
        if not equals:
            if not left:
                raise InputError(f"needs a value ({option.metavar})", where=flag)
            value = left.pop(0)
        read = _read(option.kind, value, flag)
        if option.repeatable:
            values[option.name].append(read)
        else:
            values[option.name] = read
    for option in command.options:
        if option.required and values[option.name] is None:
            raise InputError(
                "is missing", where=option.names[-1], remedy=f"write {path} {option.names[-1]} {option.metavar}"
            )
    return values | _arguments(command, path, given)


def _unknown(
    command: LightCommand, path: str, flag: str, given: list[str], left: list[str], known: list[str]
) -> InputError:
    """Return the error of an option that does not exist; it may belong to the command that a job executes."""
    if command.passes_on and given:
        remedy = f"if it belongs to the job's command, write: {path} -- {' '.join([*given, flag, *left][:6])}"
    else:
        remedy = near(flag, known) or f"see {path} --help"
    return InputError(f"no option {flag}", where=of(path), remedy=remedy)


def _arguments(command: LightCommand, path: str, given: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for argument in command.arguments:
        if argument.many:
            taken, given = given, []
            if argument.required and not taken:
                raise _missing(argument, path)
            values[argument.name] = [_read(argument.kind, word, argument.metavar) for word in taken]
        elif given:
            values[argument.name] = _read(argument.kind, given.pop(0), argument.metavar)
        elif argument.required:
            raise _missing(argument, path)
        else:
            values[argument.name] = None
    if given:
        raise InputError(f"{given[0]!r} is one argument too many", where=of(path), remedy=f"see {path} --help")
    return values


def _missing(argument: Argument, path: str) -> InputError:
    return InputError(
        f"{argument.metavar.removeprefix('-- ')} is missing",
        where=of(path),
        remedy=f"write {path} {argument.metavar}",
    )


def _read(kind: Callable[[str], Any], text: str, where: str) -> Any:
    try:
        return kind(text)
    except ValueError as error:
        raise InputError(
            f"{text!r} {error}" if kind not in (int, float) else f"{text!r} is no number", where=where
        ) from None


def of(path: str) -> str:
    """Return the command as messages name it."""
    return path.partition(" ")[2]


def near(word: str, known: Sequence[str]) -> str:
    """Return a question about the known word that was probably meant, or nothing."""
    from difflib import get_close_matches

    found = get_close_matches(word, known, 1)
    return f"did you mean {found[0]}?" if found else ""


# -- help -------------------------------------------------------------------------------------------------------------


def usage(command: LightCommand, path: str) -> str:
    """Return the line that shows how a command is written."""
    words = [
        one.metavar + ("..." if one.many and not one.metavar.endswith("...") else "") for one in command.arguments
    ]
    shown = [word if one.required else f"[{word}]" for word, one in zip(words, command.arguments, strict=True)]
    return " ".join([path, "[OPTIONS]", *shown])


def help_of(command: LightCommand, path: str) -> str:
    """Return what `--help` of a command prints."""
    lines = [f"Usage: {usage(command, path)}", "", *_wrapped(command.about, "  ")]
    if command.examples:
        lines += ["", "  Examples:", *(f"    {line}" for line in command.examples)]
    if command.arguments:
        lines += ["", "Arguments:", *_listed([(one.metavar, one.help) for one in command.arguments])]
    lines += ["", "Options:", *_listed([*map(_option_row, command.options), ("-h, --help", "show this help")])]
    return "\n".join(lines)


def help_of_group(group: CommandGroup, path: str, options: Sequence[tuple[str, str]] = (), end: str = "") -> str:
    """Return what `--help` of a group prints."""
    rows = [(name, first_sentence(one.about)) for name, one in group.commands.items()]
    return help_of_commands(path, group.about, {"Commands": rows}, options, end)


def first_sentence(text: str) -> str:
    """Return the first sentence of a description."""
    line = text.partition("\n")[0]
    end = line.find(". ")
    return line if end < 0 else line[: end + 1]


def help_of_commands(
    path: str,
    about: str,
    sections: Mapping[str, Sequence[tuple[str, str]]],
    options: Sequence[tuple[str, str]] = (),
    end: str = "",
) -> str:
    """Return a help text that lists commands, each section under its heading."""
    lines = [f"Usage: {path} [OPTIONS] COMMAND [ARGS]...", "", *_wrapped(about, "  ")]
    lines += ["", "Options:", *_listed([*options, ("-h, --help", "show this help")])]
    left = max(len(name) for rows in sections.values() for name, _ in rows)
    for heading, rows in sections.items():
        lines += ["", f"{heading}:", *_listed(rows, left)]
    return "\n".join([*lines, *(["", *_wrapped(end, "  ")] if end else [])])


def _option_row(option: Option) -> tuple[str, str]:
    names = option.flags + (f" / {option.negative}" if option.negative else "")
    shown = (
        ""
        if option.default is None or isinstance(option.default, bool) or option.default == ""
        else f" (default: {option.default})"
    )
    more = "; repeatable" if option.repeatable else "; required" if option.required else ""
    return (f"{names} {option.metavar}" if option.metavar else names), option.help + more + shown


def _width() -> int:
    import shutil

    return max(30, min(WIDEST, shutil.get_terminal_size().columns))


def _wrapped(text: str, indent: str) -> list[str]:
    import textwrap

    return [
        line
        for part in text.split("\n")
        for line in textwrap.wrap(part, _width(), initial_indent=indent, subsequent_indent=indent) or [""]
    ]


def _listed(rows: Sequence[tuple[str, str]], left: int | None = None) -> list[str]:
    import textwrap

    left = min(LEFT, left or max((len(name) for name, _ in rows), default=0))
    lines: list[str] = []
    for name, about in rows:
        indent = " " * (left + 4)
        wrapped = textwrap.wrap(about, _width(), initial_indent=indent, subsequent_indent=indent) or [indent]
        if len(name) <= left:
            lines += [f"  {name:{left}}  {wrapped[0][left + 4 :]}".rstrip(), *wrapped[1:]]
        else:
            lines += [f"  {name}", *wrapped]
    return lines
