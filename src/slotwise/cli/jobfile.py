"""Files of jobs: TOML with tables [[jobs]], or JSON lines. Each job has the keys of the API; times and needs may be texts such as 2h and cpu=2."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from slotwise.cli.light import near
from slotwise.errors import InputError
from slotwise.live.after import WRITTEN, after_of, in_order
from slotwise.live.durations import coming, seconds_of
from slotwise.live.needs import parse_needs
from slotwise.live.redirect import KEYS as STREAMS

MOST = 10_000  # jobs of one file; an array of a file counts with all its jobs
TIMES = ("time", "duration", "grace", "backoff")
MOMENTS = ("deadline",)  # a number is in seconds since 1970
TEXTS = ("name", "type", "cwd", *STREAMS, "key", "on_loss", "array", "tenant", "user")
NUMBERS = ("retry", "open_files")
TABLES = ("env", "labels", "requires", "vm", "warn")
FLAGS = ("append",)
KEYS = ("argv", "needs", "after", "retry_on", *TEXTS, *TIMES, *MOMENTS, *NUMBERS, *TABLES, *FLAGS)
HEADER = re.compile(r"^\s*\[\[\s*jobs\s*\]\]")
PLACE = re.compile(r"^(?:\w+: )?\[(\d+)\]\.?")  # how the service says which job of a request it means


class Listed(NamedTuple):
    """A job of a file, and where it stands."""

    line: int
    job: dict[str, Any]


def read_jobs(path: str) -> list[dict[str, Any]]:
    """Return the jobs of a file as the API takes them. Raise InputError with the file, the line and the job for the first mistake."""
    found = _listed(path)
    if not found:
        raise InputError(
            "has no jobs", where=path, remedy="write [[jobs]] tables with argv, or one JSON object per line"
        )
    jobs = []
    for one in found:
        try:
            jobs.append(as_request(one.job))
        except (InputError, ValueError) as error:
            raise InputError(str(error), where=place(path, one)) from None
    if len(jobs) > MOST:
        raise InputError(f"has {len(jobs):,} jobs", where=path, remedy=f"a file has at most {MOST:,}; use an array")
    try:
        in_order(jobs)
    except InputError as error:
        raise InputError(str(error), where=path) from None
    return jobs


def place(path: str, one: Listed) -> str:
    """Return how a message names a job of a file."""
    name = one.job.get("name")
    return f"{path}, line {one.line}" + (f", job {name!r}" if isinstance(name, str) else "")


def at_place(path: str, text: str) -> str:
    """Return an error of the service about a job of a file, with the line of the job instead of its place in the request."""
    match = PLACE.match(text)
    if match is None:
        return f"{path}: {text}"
    return f"{place(path, _listed(path)[int(match[1])])}: {text[match.end() :]}"


def _listed(path: str) -> list[Listed]:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=path) from None
    except ValueError:
        raise InputError("is not a text file", where=path, remedy="use a UTF-8 file") from None
    return _of_lines(path, text) if path.endswith((".jsonl", ".ndjson")) else _of_toml(path, text)


def _of_lines(path: str, text: str) -> list[Listed]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            job = json.loads(line)
        except ValueError as error:
            raise InputError(f"is no JSON: {error}", where=f"{path}, line {number}") from None
        if not isinstance(job, dict):
            raise InputError("is no object", where=f"{path}, line {number}", remedy='write {"argv": [...], ...}')
        found.append(Listed(number, job))
    return found


def _of_toml(path: str, text: str) -> list[Listed]:
    import tomllib

    try:
        table = tomllib.loads(text)
    except ValueError as error:
        raise InputError(f"is no TOML: {error}", where=path) from None
    defaults, jobs = table.pop("defaults", {}), table.pop("jobs", [])
    if table:
        raise InputError(f"unknown table {next(iter(table))!r}", where=path, remedy="use [defaults] and [[jobs]]")
    if (
        not isinstance(defaults, dict)
        or not isinstance(jobs, list)
        or not all(isinstance(one, dict) for one in jobs)
    ):
        raise InputError("has no [[jobs]] tables", where=path, remedy="write [[jobs]] above the keys of each job")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if HEADER.match(line)]
    if len(lines) != len(jobs):  # an inline list of jobs, or a header within a text
        lines = [1] * len(jobs)
    return [Listed(line, merged(defaults, job)) for line, job in zip(lines, jobs, strict=True)]


def merged(defaults: Mapping[str, Any], job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job with defaults for the keys that it does not have; tables such as env are merged."""
    found = {**defaults, **job}
    for name in TABLES:
        if isinstance(defaults.get(name), dict) and isinstance(job.get(name), dict):
            found[name] = {**defaults[name], **job[name]}
    return found


def as_request(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job of a file as the API takes it."""
    for name in job:
        if name not in KEYS:
            raise InputError(f"unknown key {name!r}", remedy=near(name, KEYS) or f"use: {', '.join(KEYS)}")
    found = dict(job)
    argv = job.get("argv")
    if "vm" not in job and (
        not isinstance(argv, list) or not argv or not all(isinstance(one, str) for one in argv)
    ):
        raise InputError("is missing, or no list of texts", where="argv", remedy='write argv = ["make", "all"]')
    for names, kind, said in (
        (TEXTS, str, "is no text"), (NUMBERS, int, "is no whole number"), (TABLES, dict, "is no table"),
    ):  # fmt: skip
        for name in names:
            if name in job and (not isinstance(job[name], kind) or isinstance(job[name], bool)):
                raise InputError(said, where=name)
    for name in FLAGS:
        if not isinstance(job.get(name, False), bool):
            raise InputError("is neither true nor false", where=name)
    for name in TIMES:
        if isinstance(job.get(name), str):
            found[name] = _read(seconds_of, job[name], name)
    for name in MOMENTS:
        if isinstance(job.get(name), str):
            found[name] = _read(coming, job[name], name)
    if isinstance(job.get("needs"), str):
        found["needs"] = parse_needs(job["needs"])
    if "after" in job:
        found["after"] = read_after(job["after"])
    if "vm" not in job:
        found["cwd"] = os.path.abspath(job.get("cwd") or ".")
    for name in STREAMS:
        if job.get(name):
            found[name] = os.path.abspath(job[name])
    return found


def read_after(given: Any) -> dict[str, list[Any]]:
    """Return dependencies: a table of lists, or texts such as "ok:7"."""
    if isinstance(given, str):
        given = [given]
    if isinstance(given, list) and all(isinstance(one, str) for one in given):
        try:
            return after_of(given)
        except ValueError as error:
            raise InputError(f"{given!r} {error}", where="after") from None
    good = isinstance(given, dict) and all(
        kind in WRITTEN and isinstance(ids, list) and ids and all(isinstance(one, int | str) for one in ids)
        for kind, ids in given.items()
    )
    if not good:
        raise InputError(
            f"is {given!r}", where="after", remedy=f'write {{ ok = ["name", 7] }}; kinds: {", ".join(WRITTEN)}'
        )
    return dict(given)


def _read(kind: Callable[[Any], Any], value: Any, where: str) -> Any:
    try:
        return kind(value)
    except ValueError as error:
        raise InputError(f"{value!r} {error}", where=where) from None


def count_of(job: Mapping[str, Any]) -> int:
    """Return how many jobs a job of a file is: an array is many."""
    total = 0
    for part in job.get("array", "0").partition("%")[0].split(","):
        first, _, rest = part.partition("-")
        last, _, step = rest.partition(":")
        total += (int(last or first) - int(first)) // int(step or 1) + 1
    return total
