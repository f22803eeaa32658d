"""`slotwise submit`."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from typing import Any

from slotwise.cli.connecting import CONNECTION, connected
from slotwise.cli.light import Argument, Command, Option, one_of
from slotwise.cli.listing import plain
from slotwise.cli.waiting import NO_CODE, Waiting, named
from slotwise.errors import InputError
from slotwise.live.client import Client
from slotwise.live.durations import seconds_of
from slotwise.live.needs import parse_needs
from slotwise.live.redirect import KEYS, check

NAME_LENGTH = 40  # characters of a command that stand for its name


def submit(*, wait: bool, as_json: bool, server: str | None, profile: str | None, **asked: Any) -> int:
    """Submit a command, and wait for it if that is asked for; the exit code."""
    dry_run = asked.pop("dry_run")
    with connected(server, profile) as client:
        if dry_run:
            return foretell(client, request(**asked), as_json=as_json)
        made = client.call("POST", "/v1/jobs", json=request(**asked)).json()
        if not wait:
            print(json.dumps(made if asked["array"] else {"id": made["id"]}) if as_json else named(made["ids"]))
            return 0
        waiting = Waiting(client, made["ids"], quiet=asked["quiet"] or as_json)
        jobs = waiting.to_the_end(show=not (asked["array"] or as_json))
        if as_json:
            print(json.dumps([plain(job) for job in jobs] if asked["array"] else plain(jobs[0])))
        return waiting.exit_code(jobs)


def foretell(client: Client, body: dict[str, Any], *, as_json: bool) -> int:
    """Print when the job would start, and submit nothing."""
    from slotwise.cli.forecast import in_order, sentence

    wish = {name: body[name] for name in ("needs", "type", "requires", "time", "tenant") if name in body}
    if "time" not in wish and "duration" in body:
        wish["time"] = body["duration"]
    found = in_order(client.call("POST", "/v1/forecast", json=wish).json())
    print(json.dumps(found) if as_json else sentence(found, "such a job"))
    return 0


def request(argv: Sequence[str], **asked: Any) -> dict[str, Any]:
    """Return a submission as the API takes it."""
    body: dict[str, Any] = {
        "argv": list(argv),
        "needs": parse_needs(asked["needs"]) if asked["needs"] else None,
        "type": asked["job_type"],
        "array": asked["array"],
        "name": asked["name"] if asked["name"] is not None else shown_as(argv),
        "env": dict(map(variable, asked["env"])),
        "cwd": os.path.abspath(asked["cwd"] or "."),
        **{key: os.path.abspath(asked[key]) for key in KEYS if asked[key]},
        "requires": {
            label: value.split("|") for label, value in (pair(one, "--requires") for one in asked["requires"])
        },
        "key": asked["key"],
        "duration": asked["duration"],
        "time": asked["time"],
        "warn": asked["warn"],
        "grace": asked["grace"],
        "on_loss": asked["on_loss"],
        "labels": dict(pair(one, "--label") for one in asked["label"]),
        "tenant": asked["tenant"],
    }
    return {name: value for name, value in body.items() if value not in (None, {}, "")}


def shown_as(argv: Sequence[str]) -> str:
    """Return the name of a job without one: the beginning of its command."""
    text = " ".join("".join(c if c.isprintable() else " " for c in shlex.join(argv)).split())
    return text if len(text) <= NAME_LENGTH else text[: NAME_LENGTH - 4].rpartition(" ")[0] + " ..."


def variable(text: str) -> tuple[str, str]:
    """Read NAME=VALUE, or NAME with its value here, so that no secret need stand in a command line."""
    if "=" in text:
        return pair(text, "--env")
    if text not in os.environ:
        raise InputError(f"{text!r} is not set here", where="--env", remedy="write NAME=VALUE")
    return text, os.environ[text]


def warning(text: str) -> dict[str, Any]:
    """Read SIGNAL@TIME."""
    signal, at, before = text.partition("@")
    if not at or not signal:
        raise ValueError("has no @; write it like USR1@60s")
    return {"signal": signal, "before": seconds_of(before)}


def stream_file(text: str) -> str:
    """Read the name of a file that may have patterns."""
    check(text)
    return text


def pair(text: str, where: str) -> tuple[str, str]:
    """Read NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"{text!r} has no =", where=where, remedy="write NAME=VALUE")
    return name, value


SUBMIT = Command(
    submit,
    "Submit a command. It runs in the current directory unless --cwd says otherwise. With --wait, exit as the job does: the reference lists the exit "
    "codes.",
    (
        Argument("argv", "-- ARGV...", "the command and its arguments; no shell", many=True),
        Option("needs", "--needs", "what the job needs (default: one CPU)", "cpu=2,memory=4G"),
        Option("job_type", "--type", "a type of the cluster, instead of needs", "NAME"),
        Option(
            "array", "--array", "many jobs, each with SLOTWISE_ARRAY_INDEX; 1,3,5-9%4: at most 4 active", "1-1000"
        ),
        Option("name", "--name", "for people (default: the command)", "NAME"),
        Option("env", "--env", "without a value: that of this environment", "NAME[=VALUE]", repeatable=True),
        Option("cwd", "--cwd", "the working directory (default: this one)", "DIR"),
        Option("stdin", "-i, --stdin", "read standard input from this file (default: empty)", "FILE", stream_file),
        Option(
            "stdout",
            "-o, --stdout",
            "write standard output to this file; %j is the job, %a the array index",
            "FILE",
            stream_file,
        ),
        Option("stderr", "-e, --stderr", "write standard error to this file", "FILE", stream_file),
        Option("requires", "--requires", "a label of the server", "LABEL=VALUE|...", repeatable=True),
        Option("key", "--key", "submitting twice with the same key submits once", "KEY"),
        Option(
            "time",
            "--time",
            "time limit, and expected duration: seconds, or like 90s, 2h, 1d12h",
            "TIME",
            seconds_of,
        ),
        Option(
            "warn", "--warn", "a signal so long before the time limit, such as USR1@60s", "SIGNAL@TIME", warning
        ),
        Option("grace", "--grace", "between SIGTERM and SIGKILL (default: 10 s)", "TIME", seconds_of),
        Option("duration", "--duration", "expected duration, if it is not the time limit", "TIME", seconds_of),
        Option(
            "on_loss",
            "--on-loss",
            "if its server is lost: fail or requeue",
            "WHAT",
            one_of("fail", "requeue"),
            "fail",
        ),
        Option("label", "--label", "kept with the job", "NAME=VALUE", repeatable=True),
        Option("tenant", "--tenant", "whose job it is; for operators", "NAME"),
        Option("dry_run", "--dry-run", "submit nothing; say when the job would start"),
        Option("wait", "--wait", "wait for the end; print the output; exit as the job does"),
        Option("quiet", "-q, --quiet", "with --wait: do not tell number and state on standard error"),
        *CONNECTION,
    ),
    (
        "slotwise submit -- python train.py",
        "slotwise submit --needs cpu=2,memory=4G --wait -- make",
        "slotwise submit --time 2h --warn USR1@5m -- ./simulate",
        "slotwise submit --array 1-1000 -o out-%a.txt -- ./one.sh",
    ),
    passes_on=True,
    waiting_code=NO_CODE,
)
