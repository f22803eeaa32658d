"""The `slotwise` command. Each subcommand is a module of this package; only the one asked for is imported."""

from __future__ import annotations

import errno
import gc
import importlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from slotwise._version import __version__
from slotwise.display.numbers import printable
from slotwise.errors import InputError, SlotwiseError, SlotwiseWarning

if TYPE_CHECKING:
    import typer


class Command(NamedTuple):
    """Where a command is, and its line in the list; the module is imported only when the command is called."""

    module: str
    name: str
    """of a function or a Typer app in it; with `light`, of a table of slotwise.cli.light"""
    summary: str
    light: bool = False
    """parsed by slotwise.cli.light: Typer is not imported"""


COMMANDS = {
    "simulate": Command(
        "slotwise.cli.simulate", "simulate", "Run policies on a scenario: queues, waits, stable or not."
    ),
    "compare": Command(
        "slotwise.cli.compare", "compare", "Send the same jobs through several policies; a report page."
    ),
    "capacity": Command(
        "slotwise.cli.capacity", "capacity", "Can the load be carried, what limits it, what is proven?"
    ),
    "plan": Command("slotwise.cli.plan", "plan", "Find the fewest servers, or the cheapest mix, for a target."),
    "tradeoff": Command(
        "slotwise.cli.tradeoff", "tradeoff", "Proven throughput against measured delay, over beta."
    ),
    "trace": Command("slotwise.cli.trace", "app", "Import traces, describe them, cut, join and generate them."),
    "reproduce": Command("slotwise.cli.reproduce", "reproduce", "Reproduce the paper's evaluation; a report page."),
    "serve": Command("slotwise.cli.serve", "serve", "Run the scheduler: accept jobs, place them, start them."),
    "apply": Command(
        "slotwise.cli.apply", "APPLY", "Make the running cluster what a cluster file says.", light=True
    ),
    "plan-apply": Command("slotwise.cli.apply", "PLAN_APPLY", "Show what `apply` would change.", light=True),
    "show": Command("slotwise.cli.apply", "SHOW", "Print the cluster that runs, as a cluster file.", light=True),
    "submit": Command("slotwise.cli.submitting", "SUBMIT", "Submit a command, or an array of them.", light=True),
    "status": Command("slotwise.cli.status", "STATUS", "Show the service on one screen.", light=True),
    "usage": Command("slotwise.cli.usage", "USAGE", "Say who used how much.", light=True),
    "jobs": Command("slotwise.cli.listing", "JOBS", "List jobs.", light=True),
    "job": Command("slotwise.cli.listing", "JOB", "Show one job.", light=True),
    "console": Command(
        "slotwise.cli.console", "CONSOLE", "Connect the terminal to the console of a virtual machine.", light=True
    ),
    "logs": Command("slotwise.cli.logs", "LOGS", "Print what a job wrote.", light=True),
    "cancel": Command("slotwise.cli.cancelling", "CANCEL", "Cancel jobs that wait or run.", light=True),
    "resubmit": Command("slotwise.cli.workflows", "RESUBMIT", "Submit ended jobs once more.", light=True),
    "graph": Command("slotwise.cli.workflows", "GRAPH", "Draw jobs that wait for each other.", light=True),
    "stop": Command("slotwise.cli.cancelling", "STOP", "Stop a running job.", light=True),
    "explain": Command("slotwise.cli.operating", "EXPLAIN", "Say why a job runs or waits.", light=True),
    "forecast": Command("slotwise.cli.forecast", "FORECAST", "Say when a job starts.", light=True),
    "whatif": Command(
        "slotwise.cli.whatif", "WHATIF", "Say what a change would do to queues and waits.", light=True
    ),
    "advice": Command("slotwise.cli.whatif", "ADVICE", "Say which free capacity no job can use.", light=True),
    "watch": Command("slotwise.cli.operating", "WATCH", "Follow what happens.", light=True),
    "servers": Command("slotwise.cli.operating", "SERVERS", "List the servers.", light=True),
    "drain": Command("slotwise.cli.operating", "DRAIN", "Let a server take no more jobs.", light=True),
    "resume": Command("slotwise.cli.operating", "RESUME", "Let a drained server take jobs again.", light=True),
    "hooks": Command("slotwise.cli.hooks", "HOOKS", "Show deliveries to hooks, or test one.", light=True),
    "maintenance": Command(
        "slotwise.cli.maintenance", "MAINTENANCE", "Plan times in which a server takes no jobs.", light=True
    ),
    "token": Command("slotwise.cli.tokens", "TOKEN", "Make, list and revoke tokens.", light=True),
    "open": Command("slotwise.cli.open", "OPEN", "Open the dashboard in a browser.", light=True),
    "top": Command("slotwise.cli.top", "TOP", "Show the cluster in the terminal.", light=True),
    "slurm-shims": Command(
        "slotwise.cli.shims", "SLURM_SHIMS", "Write sbatch, squeue and the like into a folder.", light=True
    ),
    "replay": Command("slotwise.cli.serve", "replay", "Check a journal: every decision again."),
    "backup": Command("slotwise.cli.serve", "backup", "Write a backup of a store."),
    "restore": Command("slotwise.cli.serve", "restore", "Fill an empty store from a backup."),
    "warm": Command("slotwise.cli.warm", "warm", "Compile policies ahead, for install scripts and images."),
    "policies": Command("slotwise.cli.catalogues", "policies", "List the policies, or the options of one."),
    "scenarios": Command("slotwise.cli.catalogues", "scenarios", "List the scenarios that ship with the package."),
}

FAILED, BAD_INPUT = SlotwiseError.exit_code, InputError.exit_code
INTERRUPTED = 130  # what shells and Typer make of Ctrl-C
ABOUT = (
    "Schedule uninterruptible jobs on unlike servers: simulate, compare, plan, with a proof of what can be carried."
)
CODES = "Results go to standard output, messages to standard error. Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted."
COMPLETION = {
    "--install-completion": "install completion for the current shell",
    "--show-completion": "show completion for the current shell",
}


def _version(show: bool) -> None:
    if show:
        import typer

        print(f"slotwise {__version__}")
        raise typer.Exit


def build(names: Sequence[str]) -> typer.Typer:
    """Return the application. Only the commands in `names` can be called; all commands are listed."""
    import typer

    from slotwise.cli.bridge import as_typer

    app = typer.Typer(
        help=ABOUT,
        epilog=CODES,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def options(
        version: bool = typer.Option(
            False, "--version", callback=_version, is_eager=True, help="Show the version."
        ),
    ) -> None:
        """The callback is there for its option; what it says of itself is `help` above."""

    for name, command in COMMANDS.items():
        if name not in names:
            app.command(name, short_help=command.summary)(lambda: None)
            continue
        target = _target(command)
        shown: Any = as_typer(target) if command.light else target
        if isinstance(shown, typer.Typer):
            app.add_typer(shown, name=name)
        else:
            app.command(name)(shown)
    return app


def _target(command: Command) -> Any:
    return getattr(importlib.import_module(command.module), command.name)


def _wanted(arguments: Sequence[str]) -> list[str]:
    """Return the command that is called or whose arguments are completed. No other command is imported, which saves
    time."""
    if "_SLOTWISE_COMPLETE" in os.environ:  # bash; then zsh and fish
        arguments = (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()[1:]
    first = next((argument for argument in arguments if not argument.startswith("-")), "")
    return [first] if first in COMMANDS else []


def main(arguments: list[str] | None = None) -> None:
    """Entry point: errors are one readable line, exit codes are 0 (done), 1 (failed), 2 (bad input) and 130 (interrupted)."""
    arguments = sys.argv[1:] if arguments is None else arguments
    open_streams()
    sys.exit(run(lambda: _call(arguments)))


def _call(arguments: list[str]) -> Any:
    action = None if "_SLOTWISE_COMPLETE" in os.environ else _light(arguments)
    if action is None:
        app = build(_wanted(arguments))

        def action() -> Any:
            return app(args=arguments, prog_name="slotwise", standalone_mode=False)

    gc.freeze()  # what is imported stays
    gc.enable()
    return action()


def _light(arguments: list[str]) -> Callable[[], int | None] | None:
    """Return what to do without Typer; None: Typer is needed."""
    first = arguments[0] if arguments else "--help"
    if first in ("-h", "--help"):
        from slotwise.cli.light import help_of_commands

        options = [("--version", "show the version"), *COMPLETION.items()]
        rows = [(name, command.summary) for name, command in COMMANDS.items()]

        def show_help() -> int:
            print(help_of_commands("slotwise", ABOUT, rows, options, CODES))
            return 0 if arguments else BAD_INPUT

        return show_help
    if first == "--version":
        return lambda: print(f"slotwise {__version__}")
    command = COMMANDS.get(first)
    if command is None or not command.light:
        return None
    from slotwise.cli.light import call

    target = _target(command)
    return lambda: call(target, f"slotwise {first}", arguments[1:])


class Closed(io.TextIOBase):
    """Standard output where there is none: a command that has nothing to say there may still do its work."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "is closed", "standard output")


def open_streams() -> None:
    """Stand in for streams that the caller closed, and keep their numbers from files that are opened later."""
    if sys.stdout is None or sys.stderr is None:
        while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(number)
        sys.stdout = sys.stdout or Closed()
        sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for as long as we live


def complain(text: object) -> None:
    """One line on standard error, with no control characters in it."""
    with suppress(OSError):
        print(f"slotwise: {printable(str(text)).replace(chr(10), ' ')}", file=sys.stderr)


def _told(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
    """Our own warnings are notes; those of others are not for the user of a command."""
    if issubclass(category, SlotwiseWarning):
        complain(f"note: {message}")


def run(action: Callable[[], Any]) -> int:
    """Do it and turn what happens into an exit code."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", SlotwiseWarning)
        warnings.showwarning = _told
        return _run(action)


def _run(action: Callable[[], Any]) -> int:
    try:
        code = action()
        sys.stdout.flush()  # here, where a reader that has gone can still be dealt with
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except SlotwiseError as error:
        complain(error)
        return error.exit_code
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        _give_up_output()  # the reader of our output has ended (slotwise ... | head)
        return FAILED
    except OSError as error:
        _give_up_output()
        complain(f"{error.filename or 'standard output'}: {error.strerror or error}")
        return FAILED
    except MemoryError:
        complain("not enough memory; try fewer servers or jobs, or shorter runs")
        return FAILED
    except Exception as error:
        if type(error).__name__ == "Abort":  # Typer's word for Ctrl-C
            complain("interrupted")
            return INTERRUPTED
        shown = getattr(error, "format_message", None)
        if shown is None:
            raise
        if shown().startswith("Usage:"):  # called without a command
            print(shown())
        else:
            complain(shown())
        return int(getattr(error, "exit_code", BAD_INPUT))


def _give_up_output() -> None:
    """Where standard output takes no more, do not complain about it again at exit."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
