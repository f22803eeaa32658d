"""The commands that speak with a running `slotwise serve`."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from slotwise.cli.serve import JsonOption, needs_extra
from slotwise.display.numbers import printable
from slotwise.errors import InputError

if TYPE_CHECKING:
    from slotwise.live.client import Client, Job

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server", metavar="URL", help="the service (default: SLOTWISE_SERVER, or http://127.0.0.1:8700)"
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="server and token from ~/.config/slotwise/profiles.toml"),
]
JobArgument = Annotated[int, typer.Argument(metavar="ID", help="the number of a job")]
JobsArgument = Annotated[list[int], typer.Argument(metavar="ID...", help="the numbers of jobs")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="the name of a server")]
TIMES = ("submitted", "placed", "started", "ended")
FOLDED = ("type", "name", "reason", "class", "has")
"""columns whose text may be folded"""
SHOWN = ("id", "state", "type", "server", "attempt", "exit_code", "submitted", "started", "ended")


@contextmanager
def connected(server: str | None, profile: str | None) -> Iterator[Client]:
    """A client that is closed at the end."""
    needs_extra("httpx")
    from slotwise.live.client import Client

    with Client(server, profile=profile) as client:
        yield client


def plain(job: Job) -> dict[str, Any]:
    """A job as --json prints it: the keys that scripts rely on first."""
    values = job._asdict()
    return {name: values[name] for name in SHOWN} | values


def clock(seconds: float | None) -> str:
    """A time of today as such, another with its date."""
    if seconds is None:
        return "-"
    then = time.localtime(seconds)
    same_day = then[:3] == time.localtime()[:3]
    return time.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S", then)


def table(headings: list[str], rows: list[list[str]], less_needed: Sequence[str] = ()) -> None:
    """Columns as wide as they need to be; on a narrow terminal without those that are less needed, which is told."""
    if not sys.stdout.isatty():
        widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
        for row in [headings, *rows]:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        return
    from rich.console import Group
    from rich.text import Text

    from slotwise.display.terminal import fit, listing, show

    def drawn(width: int) -> Group:
        made = listing(*headings)
        for column in made.columns:
            column.no_wrap = column.header not in FOLDED
        for row in rows:
            made.add_row(*row)
        return Group(made, *(Text(note, style="dim") for note in fit(made, width, less_needed)))

    show(drawn)


def show_jobs(jobs: list[Job], *, as_json: bool) -> None:
    """As a table or as JSON."""
    if as_json:
        print(json.dumps([plain(job) for job in jobs]))
        return
    if not jobs:
        print("no jobs", file=sys.stderr)
        return
    rows = [
        [
            str(job.id),
            job.state,
            job.type,
            job.server or "-",
            "-" if job.exit_code is None else str(job.exit_code),
            clock(job.submitted),
            clock(job.started),
            clock(job.ended),
            job.name,
        ]
        for job in jobs
    ]
    headings = ["id", "state", "type", "server", "exit", "submitted", "started", "ended", "name"]
    table(headings, rows, ("submitted", "type", "started", "name", "ended"))


def submit(
    argv: Annotated[
        list[str], typer.Argument(metavar="-- ARGV...", help="the command and its arguments; no shell")
    ],
    needs: Annotated[str | None, typer.Option("--needs", metavar="cpu=2,memory=4G", help="what it needs")] = None,
    job_type: Annotated[str | None, typer.Option("--type", help="a type of the cluster, instead of needs")] = None,
    array: Annotated[str | None, typer.Option("--array", metavar="1-1000", help="many jobs, numbered")] = None,
    name: Annotated[str | None, typer.Option("--name", help="for people (default: the command)")] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME[=VALUE]", help="without a value: that of this environment; repeatable"),
    ] = None,
    cwd: Annotated[str | None, typer.Option("--cwd", help="the working directory (default: this one)")] = None,
    requires: Annotated[
        list[str] | None, typer.Option("--requires", metavar="LABEL=VALUE|...", help="of the server; repeatable")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="submitting twice with the same key submits once")
    ] = None,
    duration: Annotated[float | None, typer.Option("--duration", help="expected, in seconds")] = None,
    on_loss: Annotated[str, typer.Option("--on-loss", help="if its server is lost: fail or requeue")] = "fail",
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="kept with the job; repeatable")
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="whose job it is, where you operate")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="until it has ended; exits as the job does")] = False,
    server: ServerOption = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Submit a command.

    \b
    Examples:
      slotwise submit -- python train.py
      slotwise submit --needs cpu=2,memory=4G --wait -- make
      slotwise submit --array 1-1000 -- ./one.sh
    """
    from slotwise.live.needs import parse_needs

    asked: dict[str, Any] = {
        "needs": parse_needs(needs) if needs else None,
        "type": job_type,
        "array": array,
        "name": name if name is not None else shown_as(argv),
        "env": dict(_variable(one) for one in env) if env else None,
        "cwd": os.path.abspath(cwd or "."),
        "requires": {
            label: value.split("|") for label, value in (_pair(one, "--requires") for one in requires or [])
        },
        "key": key,
        "duration": duration,
        "on_loss": on_loss,
        "labels": dict(_pair(one, "--label") for one in label or []),
        "tenant": tenant,
    }
    with connected(server, profile) as client:
        made = client.call("POST", "/v1/jobs", json={"argv": argv} | {k: v for k, v in asked.items() if v}).json()
        if not wait:
            if as_json:
                print(json.dumps(made if array else {"id": made["id"]}))
            else:
                print(named(made["ids"]))
            return
        jobs = _wait(client, made["ids"], show=not (array or as_json))
        if as_json:
            print(json.dumps([plain(job) for job in jobs] if array else plain(jobs[0])))
        worst = max((_code(job) for job in jobs), default=0)
        if worst:
            raise typer.Exit(worst)


def shown_as(argv: Sequence[str]) -> str:
    """What a job without a name is listed as: the beginning of its command."""
    return textwrap.shorten(
        "".join(c if c.isprintable() else " " for c in shlex.join(argv)), 40, placeholder=" ..."
    )


def _wait(client: Client, numbers: list[int], *, show: bool) -> list[Job]:
    """Until they have ended, with the output of a single one as it comes. Ctrl-C ends the waiting, not the job."""
    try:
        if show:
            for piece in client.output(numbers[0], follow=True):
                _write(piece)
        return client.wait(numbers)
    except KeyboardInterrupt:
        goes, it = ("goes", "it") if len(numbers) == 1 else ("go", "them")
        print(f"slotwise: {named(numbers)} {goes} on; `slotwise stop` or `cancel` ends {it}", file=sys.stderr)
        raise


def named(numbers: Sequence[int]) -> str:
    """Jobs that were submitted together."""
    return f"job {numbers[0]}" if len(numbers) == 1 else f"jobs {numbers[0]} to {numbers[-1]}"


def _write(piece: bytes) -> None:
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _variable(text: str) -> tuple[str, str]:
    """NAME=VALUE, or NAME with the value that it has here: so a secret need not stand in a command line."""
    if "=" in text:
        return _pair(text, "--env")
    if text not in os.environ:
        raise InputError(f"{text!r} is not set here", where="--env", remedy="write NAME=VALUE")
    return text, os.environ[text]


def _pair(text: str, where: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"{text!r} has no =", where=where, remedy="write NAME=VALUE")
    return name, value


def _code(job: Job) -> int:
    """The exit code of a shell for how a job ended."""
    if job.exit_code is None:
        return 0 if job.state == "done" else 1
    return job.exit_code if job.exit_code >= 0 else 128 - job.exit_code


def jobs(
    state: Annotated[list[str] | None, typer.Option("--state", help="only these; repeatable")] = None,
    job_type: Annotated[str | None, typer.Option("--type", help="only of this type")] = None,
    on: Annotated[str | None, typer.Option("--on", metavar="SERVER", help="only on this server")] = None,
    array: Annotated[int | None, typer.Option("--array", metavar="ID", help="only of this array")] = None,
    name: Annotated[str | None, typer.Option("--name", help="only with this name")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="at most so many, the newest")] = 1000,
    server: ServerOption = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
) -> None:
    """List jobs, newest first.

    \b
    Examples:
      slotwise jobs --state waiting --state running
    """
    with connected(server, profile) as client:
        found = list(
            client.jobs(limit=limit, state=state or None, type=job_type, server=on, array=array, name=name)
        )
    show_jobs(found, as_json=as_json)


def job(
    number: JobArgument, server: ServerOption = None, profile: ProfileOption = None, as_json: JsonOption = False
) -> None:
    """Show one job.

    \b
    Examples:
      slotwise job 7
    """
    with connected(server, profile) as client:
        found = client.detail(number)
    ordered = {name: found[name] for name in SHOWN} | found
    if as_json:
        print(json.dumps(ordered))
        return
    for key, value in ordered.items():
        if value not in (None, "", [], {}):
            shown = clock(value) if key in TIMES else shlex.join(value) if key == "argv" else said(value)
            print(f"{key:12}{printable(shown)}")


def said(value: Any) -> str:
    """A value for people: NAME=VALUE for each of a mapping."""
    if isinstance(value, dict):
        return ", ".join(f"{name}={said(one)}" for name, one in value.items())
    return "|".join(map(str, value)) if isinstance(value, list) else str(value)


def logs(
    number: JobArgument,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="until the job has ended")] = False,
    server: ServerOption = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print what a job wrote.

    \b
    Examples:
      slotwise logs -f 7
    """
    with connected(server, profile) as client:
        pieces = client.output(number, follow=follow)
        if as_json:
            print(json.dumps({"id": number, "output": b"".join(pieces).decode("utf-8", "replace")}))
            return
        for piece in pieces:
            _write(piece)


def cancel(
    numbers: JobsArgument, server: ServerOption = None, profile: ProfileOption = None, as_json: JsonOption = False
) -> None:
    """Withdraw waiting jobs.

    \b
    Examples:
      slotwise cancel 7
      slotwise cancel 7 8 9
    """
    with connected(server, profile) as client:
        show_jobs([client.cancel(number) for number in numbers], as_json=as_json)


def stop(
    numbers: JobsArgument, server: ServerOption = None, profile: ProfileOption = None, as_json: JsonOption = False
) -> None:
    """End running jobs: SIGTERM, and SIGKILL after a while.

    \b
    Examples:
      slotwise stop 7
      slotwise stop 7 8 9
    """
    with connected(server, profile) as client:
        show_jobs([client.stop(number) for number in numbers], as_json=as_json)


def explain(
    what: Annotated[str, typer.Argument(metavar="ID|NAME", help="the number of a job, or the name of a server")],
    server: ServerOption = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say why a job runs or waits, or what a server does.

    \b
    Examples:
      slotwise explain 7
      slotwise explain node1
    """
    number = int(what) if what.isdecimal() else None
    with connected(server, profile) as client:
        text = client.explain(what if number is None else number)
    if as_json:
        print(json.dumps(({"name": what} if number is None else {"id": number}) | {"text": text}))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else len(text)
        print("\n".join(textwrap.wrap(printable(text), max(20, width))))


def watch(
    after: Annotated[
        int | None, typer.Option("--after", metavar="SEQ", help="from this row of the journal on")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="go on as the journal grows")] = True,
    server: ServerOption = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Follow what happens, row by row of the journal.

    \b
    Examples:
      slotwise watch --after 0 --no-follow
    """
    with connected(server, profile) as client:
        for row in client.events(after, follow=follow):
            if as_json:
                print(json.dumps(row), flush=True)
                continue
            what = "".join(f" {key} {row[key]}" for key in ("job", "server", "type") if key in row)
            placed = "".join(f"; job {one[0]} goes to {one[1]}" for one in row["placements"])
            print(
                f"{row['seq']:>8}  {clock(row.get('now'))}  {printable(row['event'] + what + placed)}", flush=True
            )


def servers(server: ServerOption = None, profile: ProfileOption = None, as_json: JsonOption = False) -> None:
    """List the servers.

    \b
    Examples:
      slotwise servers
    """
    with connected(server, profile) as client:
        found = client.servers()
        known = {} if as_json else client.cluster()
    if as_json:
        print(json.dumps(found))
        return
    sizes = {one["name"]: zip(known["resources"], one["capacity"], strict=True) for one in known["classes"]}
    has = {name: ", ".join(f"{resource}={amount}" for resource, amount in size) for name, size in sizes.items()}
    rows = [
        [one["name"], one["server_class"], has.get(one["server_class"], ""), one["status"], one["reason"] or ""]
        for one in found
    ]
    table(["name", "class", "has", "status", "reason"], rows, ("class", "has", "reason"))


def drain(
    name: NameArgument,
    reason: Annotated[str, typer.Option("--reason", help="for people")] = "asked for",
    server: ServerOption = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a server take no more jobs; those on it go on.

    \b
    Examples:
      slotwise drain node1 --reason "new disk"
    """
    with connected(server, profile) as client:
        found = client.drain(name, reason)
    print(json.dumps(found) if as_json else f"server {found['name']}: {found['status']}")


def resume(
    name: NameArgument, server: ServerOption = None, profile: ProfileOption = None, as_json: JsonOption = False
) -> None:
    """Let a drained server take jobs again.

    \b
    Examples:
      slotwise resume node1
    """
    with connected(server, profile) as client:
        found = client.resume(name)
    print(json.dumps(found) if as_json else f"server {found['name']}: {found['status']}")


token = typer.Typer(help="Make, list and take back tokens.", no_args_is_help=True)


@token.command("create")
def create(
    role: Annotated[str, typer.Option("--role", help="read, submit or operate")],
    tenant: Annotated[str | None, typer.Option("--tenant", help="whose jobs it submits and sees")] = None,
    server: ServerOption = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a token and print it; it is shown this once.

    \b
    Examples:
      slotwise token create --role submit --tenant physics
    """
    with connected(server, profile) as client:
        made = client.call(
            "POST", "/v1/tokens", json={"role": role} | ({"tenant": tenant} if tenant else {})
        ).json()
    print(json.dumps(made) if as_json else made["token"])


@token.command("list")
def list_tokens(server: ServerOption = None, profile: ProfileOption = None, as_json: JsonOption = False) -> None:
    """List tokens, without their secrets.

    \b
    Examples:
      slotwise token list
    """
    with connected(server, profile) as client:
        found = client.call("GET", "/v1/tokens").json()
    if as_json:
        print(json.dumps(found))
    else:
        table(
            ["id", "role", "tenant", "made"],
            [[one["id"], one["role"], one["tenant"], clock(one["created"])] for one in found],
            ("made",),
        )


@token.command("revoke")
def revoke(
    identity: Annotated[str, typer.Argument(metavar="ID", help="of `slotwise token list`")],
    server: ServerOption = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a token back, at once.

    \b
    Examples:
      slotwise token revoke 1a2b3c4d5e6f
    """
    with connected(server, profile) as client:
        client.call("DELETE", f"/v1/tokens/{quote(identity, '')}")
    if as_json:
        print(json.dumps({"id": identity, "revoked": True}))
