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
        "slotwise.cli.simulate", "simulate", "Simulate policies on a scenario: queues, waits, verdicts."
    ),
    "compare": Command(
        "slotwise.cli.compare", "compare", "Simulate several policies on the same jobs, side by side."
    ),
    "capacity": Command(
        "slotwise.cli.capacity", "capacity", "Say whether the load can be carried, and what limits it."
    ),
    "plan": Command("slotwise.cli.plan", "plan", "Find the fewest servers, or the cheapest mix, for a target."),
    "tradeoff": Command(
        "slotwise.cli.tradeoff", "tradeoff", "Choose beta of Algorithm 1: proven load and measured delay."
    ),
    "trace": Command("slotwise.cli.trace", "app", "Import traces, describe them, cut, join and generate them."),
    "reproduce": Command(
        "slotwise.cli.reproduce", "reproduce", "Reproduce the evaluation of the paper, as a report page."
    ),
    "serve": Command("slotwise.cli.serve", "serve", "Start the service: it accepts, places and starts jobs."),
    "apply": Command(
        "slotwise.cli.apply", "APPLY", "Change the running cluster to match a cluster file.", light=True
    ),
    "plan-apply": Command("slotwise.cli.apply", "PLAN_APPLY", "Show what `apply` would change.", light=True),
    "show": Command("slotwise.cli.apply", "SHOW", "Print the running cluster as a cluster file.", light=True),
    "submit": Command(
        "slotwise.cli.submitting", "SUBMIT", "Submit a command as a job, or as an array of jobs.", light=True
    ),
    "status": Command("slotwise.cli.status", "STATUS", "Show the state of the service on one screen.", light=True),
    "usage": Command(
        "slotwise.cli.usage", "USAGE", "Show the use of the cluster by tenant, user or type.", light=True
    ),
    "jobs": Command("slotwise.cli.listing", "JOBS", "List jobs.", light=True),
    "job": Command("slotwise.cli.listing", "JOB", "Show one job.", light=True),
    "console": Command(
        "slotwise.cli.console", "CONSOLE", "Connect the terminal to the console of a virtual machine.", light=True
    ),
    "logs": Command("slotwise.cli.logs", "LOGS", "Print the output of a job.", light=True),
    "cancel": Command("slotwise.cli.cancelling", "CANCEL", "Cancel waiting and running jobs.", light=True),
    "resubmit": Command("slotwise.cli.workflows", "RESUBMIT", "Submit jobs again that have ended.", light=True),
    "graph": Command("slotwise.cli.workflows", "GRAPH", "Draw the dependencies between jobs.", light=True),
    "stop": Command("slotwise.cli.cancelling", "STOP", "Stop a running job.", light=True),
    "explain": Command(
        "slotwise.cli.operating", "EXPLAIN", "Say why a job waits, or what a server does.", light=True
    ),
    "forecast": Command("slotwise.cli.forecast", "FORECAST", "Say when a waiting job will start.", light=True),
    "whatif": Command(
        "slotwise.cli.whatif", "WHATIF", "Say what a change would do to queues and waits.", light=True
    ),
    "advice": Command("slotwise.cli.whatif", "ADVICE", "Say which free capacity no job can use.", light=True),
    "watch": Command("slotwise.cli.operating", "WATCH", "Print events as they happen.", light=True),
    "servers": Command("slotwise.cli.operating", "SERVERS", "List the servers.", light=True),
    "drain": Command(
        "slotwise.cli.operating", "DRAIN", "Let a server finish its jobs and take no more.", light=True
    ),
    "resume": Command("slotwise.cli.operating", "RESUME", "Let a drained server take jobs again.", light=True),
    "hooks": Command(
        "slotwise.cli.hooks", "HOOKS", "Show deliveries of events to hooks, or test a hook.", light=True
    ),
    "maintenance": Command(
        "slotwise.cli.maintenance", "MAINTENANCE", "Plan maintenance windows and reservations.", light=True
    ),
    "token": Command("slotwise.cli.tokens", "TOKEN", "Make, list and revoke tokens.", light=True),
    "open": Command("slotwise.cli.open", "OPEN", "Open the dashboard in a browser.", light=True),
    "top": Command("slotwise.cli.top", "TOP", "Show the cluster in the terminal.", light=True),
    "slurm-shims": Command(
        "slotwise.cli.shims", "SLURM_SHIMS", "Install commands such as sbatch and squeue in a folder.", light=True
    ),
    "replay": Command("slotwise.cli.serve", "replay", "Repeat and check every decision of the journal."),
    "backup": Command("slotwise.cli.serve", "backup", "Write a backup of a store."),
    "restore": Command("slotwise.cli.serve", "restore", "Fill an empty store from a backup."),
    "warm": Command("slotwise.cli.warm", "warm", "Compile policies now, not at their first run."),
    "policies": Command("slotwise.cli.catalogues", "policies", "List the policies, or the options of one."),
    "scenarios": Command("slotwise.cli.catalogues", "scenarios", "List the scenarios that ship with the package."),
}

FAILED, BAD_INPUT = SlotwiseError.exit_code, InputError.exit_code
INTERRUPTED = 130  # what shells and Typer make of Ctrl-C
ABOUT = (
    "Schedule jobs that must not be interrupted: run them on your servers, and find out which policy and how many "
    "servers a load needs."
)
# `slotwise --help` lists the commands by what they are for.
SECTIONS = {
    "Run jobs": (
        *("serve", "submit", "status", "jobs", "job", "logs", "cancel", "stop"),
        *("resubmit", "graph", "explain", "forecast", "watch", "console"),
    ),
    "Operate the service": (
        *("open", "top", "servers", "drain", "resume", "maintenance", "apply", "plan-apply", "show"),
        *("usage", "whatif", "advice", "token", "hooks", "replay", "backup", "restore", "slurm-shims"),
    ),
    "Simulate and plan": (
        *("simulate", "compare", "capacity", "plan", "tradeoff"),
        *("trace", "policies", "scenarios", "reproduce", "warm"),
    ),
}
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
    from slotwise.cli.helping import ShownGroup, use_in

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
            use_in(shown)
            app.add_typer(shown, name=name, cls=ShownGroup)
        else:
            app.command(name)(shown)
    use_in(app)
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
        sections = {
            heading: [(name, COMMANDS[name].summary) for name in names] for heading, names in SECTIONS.items()
        }

        def show_help() -> int:
            print(help_of_commands("slotwise", ABOUT, sections, options, CODES))
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
            complain(_with_remedy(shown(), error))
        return int(getattr(error, "exit_code", BAD_INPUT))


def _with_remedy(said: str, error: Exception) -> str:
    """Return a message of Typer with the command that says more."""
    context = getattr(error, "ctx", None)
    return said if context is None else f"{said.rstrip('.')}; see {context.command_path} --help"


def _give_up_output() -> None:
    """Where standard output takes no more, do not complain about it again at exit."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
