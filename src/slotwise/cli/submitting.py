"""`slotwise submit`."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from typing import Any

from slotwise.cli.connecting import CONNECTION, connected
from slotwise.cli.light import Argument, LightCommand, Option, one_of, whole
from slotwise.cli.listing import plain
from slotwise.cli.waiting import NO_CODE, Waiting, named, tell
from slotwise.errors import InputError
from slotwise.live.after import after_of
from slotwise.live.client import Client
from slotwise.live.durations import coming, seconds_of
from slotwise.live.needs import parse_needs
from slotwise.live.redirect import KEYS, check

NAME_LENGTH = 40  # characters of a command that stand for its name


def submit(*, wait: bool, as_json: bool, server: str | None, profile: str | None, **asked: Any) -> int:
    """Submit a command, and wait for it if that is asked for; the exit code."""
    dry_run = asked.pop("dry_run")
    path = asked.pop("file")
    if path is not None:
        check_alone(asked, dry_run=dry_run)
        return submit_file(path, asked, wait=wait, as_json=as_json, server=server, profile=profile)
    with connected(server, profile) as client:
        if dry_run:
            return foretell(client, request(**asked), as_json=as_json)
        made = client.call("POST", "/v1/jobs", json=request(**asked)).json()
        warn_of(made)
        if not wait:
            print(json.dumps(made if asked["array"] else {"id": made["id"]}) if as_json else named(made["ids"]))
            return 0
        waiting = Waiting(client, made["ids"], quiet=asked["quiet"] or as_json)
        jobs = waiting.to_the_end(show=not (asked["array"] or as_json))
        if as_json:
            print(json.dumps([plain(job) for job in jobs] if asked["array"] else plain(jobs[0])))
        return waiting.exit_code(jobs)


def warn_of(made: dict[str, Any]) -> None:
    """Tell what the service warns of."""
    for line in made.get("warnings", ()):
        tell(f"note: {line}")


def check_alone(asked: dict[str, Any], *, dry_run: bool) -> None:
    """Refuse options of one job beside a file of jobs: the file has them."""
    given = {"argv": asked["argv"], "--dry-run": dry_run} | {
        "--" + name.replace("job_", "").replace("_", "-"): value
        for name, value in asked.items()
        if name not in ("argv", "quiet", "tenant") and value != SUBMIT_DEFAULTS[name]
    }
    for name, value in given.items():
        if value:
            raise InputError("is given beside --file", where=name, remedy="write it into the file")


def submit_file(
    path: str, asked: dict[str, Any], *, wait: bool, as_json: bool, server: str | None, profile: str | None
) -> int:
    """Submit the jobs of a file, all or none."""
    from slotwise.cli.jobfile import at_place, count_of, read_jobs
    from slotwise.live.transport import ServiceError

    jobs = read_jobs(path)
    if asked["tenant"] is not None:
        jobs = [{**job, "tenant": asked["tenant"]} for job in jobs]
    with connected(server, profile) as client:
        try:
            made = client.call("POST", "/v1/jobs/bulk", json=jobs).json()
            numbers = made["ids"]
            warn_of(made)
        except ServiceError as error:
            if error.status in (400, 422):
                raise InputError(at_place(path, str(error))) from None
            raise
        firsts, at = [], 0
        for job in jobs:
            firsts.append(numbers[at])
            at += count_of(job)
        if as_json and not wait:
            print(json.dumps({"ids": numbers, "jobs": firsts}))
        elif not as_json:
            for first, job in zip(firsts, jobs, strict=True):
                print(f"{first}  {job.get('name', '')}".rstrip())
        if not wait:
            return 0
        waiting = Waiting(client, numbers, quiet=asked["quiet"] or as_json)
        ended = waiting.to_the_end(show=False)
        if as_json:
            print(json.dumps([plain(job) for job in ended]))
        return waiting.exit_code(ended)


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
    vm = machine(asked)
    if vm and argv:
        raise InputError("is given beside a command", where="--vm", remedy="leave one of them out")
    if not vm and not argv:
        raise InputError("ARGV... is missing", remedy="write slotwise submit -- ARGV..., or --vm IMAGE")
    body: dict[str, Any] = {
        "argv": list(argv),
        "vm": vm,
        "needs": parse_needs(",".join(asked["needs"])) if asked["needs"] else None,
        "type": asked["job_type"],
        "array": asked["array"],
        "name": asked["name"] if asked["name"] is not None else asked["vm"] or shown_as(argv),
        "env": dict(map(variable, asked["env"])),
        "cwd": None if vm and not asked["cwd"] else os.path.abspath(asked["cwd"] or "."),
        **{key: os.path.abspath(asked[key]) for key in KEYS if asked[key]},
        "append": asked["append"] or None,
        "requires": {
            label: value.split("|") for label, value in (pair(one, "--requires") for one in asked["requires"])
        },
        "key": asked["key"],
        "duration": asked["duration"],
        "time": asked["time"],
        "deadline": asked["deadline"],
        "warn": asked["warn"],
        "grace": asked["grace"],
        "on_loss": asked["on_loss"],
        "after": dependencies(asked["after"]),
        **retries(asked),
        "labels": dict(pair(one, "--label") for one in asked["label"]),
        "tenant": asked["tenant"],
    }
    return {name: value for name, value in body.items() if value not in (None, {}, [], "")}


def dependencies(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Return what --after says."""
    try:
        return after_of(texts)
    except ValueError as error:
        raise InputError(str(error), where="--after") from None


def retries(asked: dict[str, Any]) -> dict[str, Any]:
    """Return what --retry, --backoff and --retry-on say."""
    found = {name: asked[name] for name in ("retry", "backoff", "retry_on") if asked[name] is not None}
    if found and not found.get("retry"):
        flag = "--" + next(iter(found)).replace("_", "-")
        raise InputError("is for jobs that are executed again", where=flag, remedy="add --retry N")
    return found


def exit_codes(text: str) -> list[int]:
    """Read exit codes, such as 75,137."""
    try:
        codes = [int(one) for one in text.split(",")]
    except ValueError:
        raise ValueError("is no list of exit codes; write it like 75,137") from None
    if not all(-64 <= code <= 255 and code for code in codes):
        raise ValueError("has a code that no failed job can have; use 1 to 255")
    return codes


def machine(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the virtual machine that the options describe; empty: they describe none."""
    parts = {
        "image": asked["vm"],
        "disk": asked["disk"],
        "user_data": text_of(asked["user_data"], "--user-data"),
        "network": asked["network"],
        "domain": text_of(asked["domain"], "--domain"),
    }
    found = {name: value for name, value in parts.items() if value is not None}
    if found and "image" not in found:
        flag = "--" + next(iter(found)).replace("_", "-")
        raise InputError("is for virtual machines", where=flag, remedy="add --vm IMAGE")
    return found


def text_of(path: str | None, flag: str) -> str | None:
    """Return the text of a file that an option names."""
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", where=flag) from None


def megabytes(text: str) -> float:
    """Read an amount of storage, such as 20G."""
    try:
        return parse_needs(f"disk={text}")["disk"]
    except InputError:
        raise ValueError("is no size; write it like 20G") from None


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


SUBMIT = LightCommand(
    submit,
    "Submit a command. It runs in the current directory unless --cwd says otherwise. With --wait, exit as the job does: the reference lists the exit "
    "codes.",
    (
        Argument("argv", "-- ARGV...", "the command and its arguments; no shell", many=True, required=False),
        Option("needs", "--needs", "what the job needs (default: one CPU)", "cpu=2,memory=4G", repeatable=True),
        Option("job_type", "--type", "a type of the cluster, instead of needs", "NAME"),
        Option(
            "array",
            "--array",
            "one job for each index, in SLOTWISE_ARRAY_INDEX; 1,3,5-9%4: at most 4 active",
            "1-1000",
        ),
        Option("name", "--name", "a name for lists of jobs (default: the command)", "NAME"),
        Option(
            "env",
            "--env",
            "a variable for the job; without a value: the value here",
            "NAME[=VALUE]",
            repeatable=True,
        ),
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
        Option("append", "--append", "append to these files (default: empty them first)"),
        Option("requires", "--requires", "a label of the server", "LABEL=VALUE|...", repeatable=True),
        Option("key", "--key", "a second submission with this key submits nothing", "KEY"),
        Option(
            "time",
            "--time",
            "time limit, and expected duration: seconds, or like 90s, 2h, 1d12h",
            "TIME",
            seconds_of,
        ),
        Option("warn", "--warn", "send a signal this long before the time limit: USR1@60s", "SIGNAL@TIME", warning),
        Option("grace", "--grace", "time between SIGTERM and SIGKILL (default: 10 s)", "TIME", seconds_of),
        Option(
            "deadline",
            "--deadline",
            "when the job must have ended: in a time (8h), or a date; a job that would otherwise be late goes first",
            "TIME",
            coming,
        ),
        Option("duration", "--duration", "expected duration, if it is not the time limit", "TIME", seconds_of),
        Option(
            "on_loss",
            "--on-loss",
            "what to do if its server is lost: fail or requeue",
            "WHAT",
            one_of("fail", "requeue"),
            "fail",
        ),
        Option(
            "after",
            "--after",
            "start after these jobs have ended: ok (done), failed or any; each-ok:ARRAY: index by index",
            "ok:ID,...",
            repeatable=True,
        ),
        Option("retry", "--retry", "if it fails, execute it again, at most N times", "N", whole),
        Option(
            "backoff",
            "--backoff",
            "time before the first retry (default: 10 s); it doubles with each retry",
            "TIME",
            seconds_of,
        ),
        Option("retry_on", "--retry-on", "retry only after these exit codes", "75,137", exit_codes),
        Option("file", "--file", "submit the jobs of a file (TOML, or .jsonl), all or none", "FILE"),
        Option("label", "--label", "kept with the job", "NAME=VALUE", repeatable=True),
        Option("tenant", "--tenant", "the tenant of the job; for operators", "NAME"),
        Option("dry_run", "--dry-run", "submit nothing; say when the job would start"),
        Option("wait", "--wait", "wait for the end; print the output; exit as the job does"),
        Option("quiet", "-q, --quiet", "with --wait: do not print number and state on standard error"),
        Option("vm", "--vm", "a virtual machine with an overlay of this image, instead of a command", "IMAGE"),
        Option(
            "disk", "--disk", "size of the disk, such as 20G (default: the size of the image)", "SIZE", megabytes
        ),
        Option("user_data", "--user-data", "user data for cloud-init", "FILE"),
        Option("network", "--network", "a network of the host (default: none)", "NAME"),
        Option("domain", "--domain", "a template in libvirt's XML; for operators", "FILE"),
        *CONNECTION,
    ),
    (
        "slotwise submit -- python train.py",
        "slotwise submit --needs cpu=2,memory=4G --wait -- make",
        "slotwise submit --time 2h --warn USR1@5m -- ./simulate",
        "slotwise submit --vm debian.qcow2 --needs cpu=2,memory=4G",
        "slotwise submit --array 1-1000 -o out-%a.txt -- ./one.sh",
        "slotwise submit --after ok:7,8 --retry 3 --backoff 30s -- ./report.sh",
        "slotwise submit --file jobs.toml --wait",
    ),
    passes_on=True,
    waiting_code=NO_CODE,
)
SUBMIT_DEFAULTS: dict[str, Any] = {
    one.name: [] if isinstance(one, Argument) or one.repeatable else one.default if one.metavar else False
    for one in SUBMIT.parameters
}
