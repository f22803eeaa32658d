"""`slotwise apply`, `plan-apply` and `show`: change the cluster of a running service by its cluster file."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from slotwise.cli.connecting import CONNECTION, connected
from slotwise.cli.light import Argument, LightCommand, Option
from slotwise.display.numbers import printable
from slotwise.errors import InputError
from slotwise.live.transport import ServiceError

if TYPE_CHECKING:
    from slotwise.live.client import Client

REFUSED_FILE = (400, 422)  # statuses of an answer that blames the cluster file
COMPILE_SECONDS = 600.0  # how long a policy may take to be compiled on a slow machine


def text_of(file: str) -> str:
    """Return the text of a cluster file."""
    try:
        with open(file, encoding="utf-8") as opened:
            return opened.read()
    except FileNotFoundError:
        raise InputError("no such file", where=file) from None
    except UnicodeDecodeError:
        raise InputError("is not a text file", where=file, remedy="use a UTF-8 TOML file") from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", where=file) from None


def lines_of(plan: dict[str, Any]) -> str:
    """Return a plan for people, safe for a terminal."""
    return "\n".join(map(printable, plan["text"].splitlines()))


def ask(client: Client, path: str, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request that may have to wait until a policy is compiled."""
    deadline = time.monotonic() + COMPILE_SECONDS
    told = False
    while True:
        try:
            found: dict[str, Any] = client.call("POST", path, json=wanted).json()
        except ServiceError as error:
            if error.status != 503 or time.monotonic() > deadline:
                raise
            if not told:
                print(f"slotwise: note: {printable(str(error))}", file=sys.stderr)
            told = True
            time.sleep(1.0)
        else:
            return found


def may_apply(plan: dict[str, Any], *, as_json: bool) -> bool:
    """Show a plan and ask. Without a terminal, standard output has the plan if it is to have JSON."""
    print(lines_of(plan), file=sys.stderr)
    if not sys.stdin.isatty():
        if as_json:
            print(json.dumps(plan), flush=True)
        raise InputError(
            "nothing was changed, because there is no terminal to ask on",
            where="slotwise apply",
            remedy="--yes applies without asking, --dry-run only shows",
        )
    print("Apply these changes? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def apply(
    *, file: str, dry_run: bool, yes: bool, server: str | None, profile: str | None, as_json: bool
) -> int | None:
    """Make the running cluster what a cluster file says."""
    text = text_of(file)
    with connected(server, profile) as client:
        try:
            plan = ask(client, "/v1/cluster/plan", {"toml": text})
        except ServiceError as error:
            if error.status in REFUSED_FILE:
                raise InputError(str(error).removeprefix("cluster file: "), where=file) from None
            raise
        if not dry_run and plan["changes"]:
            if not (yes or may_apply(plan, as_json=as_json)):
                print("nothing was changed", file=sys.stderr)
                return 1
            wanted = {"toml": text} if yes else {"toml": text, "plan": plan["plan"]}
            plan = ask(client, "/v1/cluster/apply", wanted)
    print(json.dumps(plan) if as_json else lines_of(plan))
    return None


def plan_apply(*, file: str, server: str | None, profile: str | None, as_json: bool) -> int | None:
    """Show what `apply` would change."""
    return apply(file=file, dry_run=True, yes=False, server=server, profile=profile, as_json=as_json)


def show(*, as_toml: bool, server: str | None, profile: str | None, as_json: bool) -> None:
    """Print the cluster that runs."""
    if as_toml and as_json:
        raise InputError("is given beside --json", where="--toml", remedy="leave one of them out")
    with connected(server, profile) as client:
        if as_json:
            print(json.dumps(client.cluster()))
        else:
            print(client.call("GET", "/v1/cluster/toml").content.decode(), end="")


FILE = Argument("file", "CLUSTER.toml", "a file with servers, job types and the policy")
APPLY = LightCommand(
    apply,
    "Change the running cluster to match a cluster file. Show the changes and ask first; no running job is interrupted.",
    (
        FILE,
        Option("dry_run", "--dry-run", "only show what would change"),
        Option("yes", "-y, --yes", "do not ask"),
        *CONNECTION,
    ),
    ("slotwise apply mine.toml --dry-run", "slotwise apply mine.toml --yes"),
)
PLAN_APPLY = LightCommand(
    plan_apply,
    "Show what `slotwise apply` would change, and what that means for running and waiting jobs. Change nothing.",
    (FILE, *CONNECTION),
    ("slotwise plan-apply mine.toml",),
)
SHOW = LightCommand(
    show,
    "Print the running cluster as a cluster file, with all changes since the service started.",
    (
        Option("as_toml", "--toml", "as a cluster file for `slotwise apply` (the default)"),
        *CONNECTION,
    ),
    ("slotwise show --toml > mine.toml",),
)
