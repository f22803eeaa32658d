"""The `slotwise` command. Each subcommand is a module of this package; only the one asked for is imported."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import typer

from slotwise._version import __version__
from slotwise.errors import InputError, SlotwiseError

COMMANDS: dict[str, tuple[str, str]] = {
    "simulate": ("slotwise.cli.simulate", "simulate"),
    "compare": ("slotwise.cli.compare", "compare"),
    "reproduce": ("slotwise.cli.reproduce", "reproduce"),
    "capacity": ("slotwise.cli.capacity", "capacity"),
    "plan": ("slotwise.cli.plan", "plan"),
    "tradeoff": ("slotwise.cli.tradeoff", "tradeoff"),
    "trace": ("slotwise.cli.trace", "app"),
    "policies": ("slotwise.cli.catalogues", "policies"),
    "scenarios": ("slotwise.cli.catalogues", "scenarios"),
}
"""command: (module, a function or a Typer app in it)"""

FAILED, BAD_INPUT = 1, 2
INTERRUPTED = 130
"""what Typer makes of Ctrl-C within a command"""


def _version(show: bool) -> None:
    if show:
        print(f"slotwise {__version__}")
        raise typer.Exit


def build(names: list[str]) -> typer.Typer:
    """The application with some of its commands."""
    app = typer.Typer(
        help="Schedule uninterruptible jobs on unlike servers: simulate, compare, plan, with a proof of what can be carried.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def options(
        version: bool = typer.Option(
            False, "--version", callback=_version, is_eager=True, help="Show the version."
        ),
    ) -> None:
        """Schedule uninterruptible jobs on unlike servers: simulate, compare, plan."""

    for name in names:
        module, attribute = COMMANDS[name]
        target: Any = getattr(importlib.import_module(module), attribute)
        if isinstance(target, typer.Typer):
            app.add_typer(target, name=name)
        else:
            app.command(name)(target)
    return app


def _wanted(arguments: list[str]) -> list[str]:
    """Only the command that is called, so that its start is not slowed by the others; all for help and completion."""
    first = next((argument for argument in arguments if not argument.startswith("-")), "")
    return [first] if first in COMMANDS and "_SLOTWISE_COMPLETE" not in os.environ else list(COMMANDS)


def main(arguments: list[str] | None = None) -> None:
    """Entry point: errors are one readable line, exit codes are 0 (done), 1 (failed) and 2 (bad input)."""
    arguments = sys.argv[1:] if arguments is None else arguments
    sys.exit(run(lambda: build(_wanted(arguments))(args=arguments, prog_name="slotwise", standalone_mode=False)))


def run(action: Callable[[], Any]) -> int:
    """Do it and turn what happens into an exit code."""
    try:
        code = action()
        sys.stdout.flush()  # here, where a reader that has gone can still be dealt with
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except InputError as error:
        print(f"slotwise: {error}", file=sys.stderr)
        return BAD_INPUT
    except SlotwiseError as error:
        print(f"slotwise: {error}", file=sys.stderr)
        return FAILED
    except (KeyboardInterrupt, typer.Abort):
        print("slotwise: interrupted", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        # whoever read our output has gone (slotwise ... | head); do not complain about it at exit either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        shown = getattr(error, "format_message", None)
        if shown is None:
            raise
        if shown():  # empty where help was shown instead
            print(f"slotwise: {shown()}", file=sys.stderr)
        return int(getattr(error, "exit_code", BAD_INPUT))


if __name__ == "__main__":
    main()
