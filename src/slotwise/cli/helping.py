"""Help of the commands that Typer parses, written by `slotwise.cli.light` like that of all other commands.

Typer's own help shows types of Python, such as `<list[Path]>`.
"""

from __future__ import annotations

import re
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from slotwise.cli.light import Argument, LightCommand, Option, first_sentence, help_of, help_of_commands, usage

# What stands for the value of an option without a metavar, by its type.
PLACEHOLDERS = {"int": "N", "float": "NUMBER", "Path": "PATH"}


class ShownCommand(TyperCommand):
    """A command whose help is that of a light command."""

    def get_help(self, ctx: Any) -> str:
        return help_of(as_light(self), ctx.command_path)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return usage(as_light(self), "").split()


class ShownGroup(TyperGroup):
    """A group of commands whose help is that of light commands."""

    def get_help(self, ctx: Any) -> str:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, first_sentence(as_light(one).about)) for name, one in found if one is not None]
        return help_of_commands(ctx.command_path, self.help or "", {"Commands": rows})


def use_in(app: typer.Typer) -> None:
    """Let all commands of an application show this help."""
    for info in app.registered_commands:
        info.cls = ShownCommand


def as_light(command: Any) -> LightCommand:
    """Return a command of Typer as a table of `slotwise.cli.light`, to be shown and not to be called."""
    about, _, end = (command.help or "").partition("\b\n")
    paragraphs = [" ".join(part.split()) for part in about.split("\n\n")]
    examples = tuple(line.strip() for line in end.splitlines() if line.startswith("  "))
    parameters = [_parameter(one) for one in command.params if not getattr(one, "hidden", False)]
    return LightCommand(lambda: None, "\n\n".join(filter(None, paragraphs)), tuple(parameters), examples)


def _parameter(one: Any) -> Option | Argument:
    if one.param_type_name == "argument":
        metavar = re.sub(r"[\[\]]|\.\.\.$", "", one.metavar or one.name.upper())  # `usage` adds both
        return Argument(one.name, metavar, one.help or "", many=one.nargs == -1, required=one.required)
    value = None if one.is_flag else one.metavar or PLACEHOLDERS.get(_kind(one), "TEXT")
    default = f"{one.default:g}" if isinstance(one.default, float) else one.default
    flags = ", ".join(sorted(one.opts, key=len))
    negative = one.secondary_opts[0] if one.secondary_opts else None
    return Option(one.name, flags, one.help or "", value, default=default, negative=negative, required=one.required)


def _kind(one: Any) -> str:
    """Return the type of an option's value in a word."""
    return re.sub(r"\W.*", "", one.bare_type())
