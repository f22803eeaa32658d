"""The commands of `slotwise.cli.light` as Typer sees them: for shell completion and for the reference page."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from slotwise.cli.light import Argument, CommandGroup, LightCommand, Option


def as_typer(target: LightCommand | CommandGroup) -> Any:
    """Return a function that Typer understands, or an application where there are commands below."""
    if isinstance(target, CommandGroup):
        app = typer.Typer(help=target.about, no_args_is_help=True)
        for name, one in target.commands.items():
            app.command(name)(_function(one))
        return app
    return _function(target)


def _function(command: LightCommand) -> Any:
    def act(**values: Any) -> int | None:
        return command.act(**values)

    parameters = [
        inspect.Parameter(
            one.name, inspect.Parameter.KEYWORD_ONLY, default=_default(one), annotation=_annotation(one)
        )
        for one in sorted(command.parameters, key=lambda one: isinstance(one, Option))
    ]
    examples = "\n".join(["", "", "\b", "Examples:", *(f"  {line}" for line in command.examples)])
    act.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    act.__doc__ = command.about + (examples if command.examples else "")
    act.__annotations__ = {}
    return act


def _default(one: Option | Argument) -> Any:
    if isinstance(one, Argument):
        return inspect.Parameter.empty if one.required else None
    if one.required:
        return inspect.Parameter.empty
    return False if one.metavar is None and one.default is None else one.default


def _annotation(one: Option | Argument) -> Any:
    if isinstance(one, Argument):
        kind: Any = list[str] if one.many else str
        return Annotated[kind, typer.Argument(metavar=one.metavar, help=one.help)]
    kind = bool if one.metavar is None else list[str] if one.repeatable else str
    flags = [*one.names[:-1], "/".join(filter(None, (one.names[-1], one.negative)))]
    return Annotated[
        kind if one.required else kind | None, typer.Option(*flags, metavar=one.metavar, help=one.help)
    ]
