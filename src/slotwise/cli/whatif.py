"""`slotwise whatif` and `slotwise advice`: what a change would do, and which free capacity is unusable."""

from __future__ import annotations

import json
from typing import Any

from slotwise.cli.connecting import CONNECTION, connected
from slotwise.cli.forecast import SOURCE, asked, roughly
from slotwise.cli.light import LightCommand, Option
from slotwise.errors import InputError, SlotwiseError

LISTED = 20  # servers that advice prints


def counts(pairs: list[str], where: str) -> dict[str, int]:
    """Read CLASS=COUNT."""
    found = {}
    for text in pairs:
        name, equals, count = text.partition("=")
        if not name or not equals or not count.isdigit() or int(count) < 1:
            raise InputError(f"{text!r} is no number of servers", where=where, remedy="write it like gpu=2")
        found[name] = int(count)
    return found


def factors(pairs: list[str], where: str) -> dict[str, float]:
    """Read NAME=FACTOR."""
    found = {}
    for text in pairs:
        name, factor = _number_of(text)
        if not name or factor is None or not 0 <= factor < 1000:
            raise InputError(f"{text!r} is no factor", where=where, remedy="write it like web=1.5")
        found[name] = factor
    return found


def parts(pairs: list[str], where: str) -> dict[str, float]:
    """Read TENANT=PART."""
    found = {}
    for text in pairs:
        name, part = _number_of(text)
        if not name or part is None or not 0 < part < 1:
            raise InputError(f"{text!r} is no part of the cluster", where=where, remedy="write it like physics=0.5")
        found[name] = part
    return found


def _number_of(text: str) -> tuple[str, float | None]:
    name, _, number = text.rpartition("=")
    try:
        return name, float(number)
    except ValueError:
        return name, None


def whatif(
    *,
    add: list[str],
    remove: list[str],
    drain: list[str],
    policy: str | None,
    rate: list[str],
    share: list[str],
    hours: float,
    source: str | None,
    as_json: bool,
    server: str | None,
    profile: str | None,
) -> int:
    """Print the next hours as they are and as they would be."""
    question: dict[str, Any] = {
        "add": counts(add, "--add"),
        "remove": counts(remove, "--remove"),
        "drain": drain,
        "policy": policy,
        "rate": factors(rate, "--rate"),
        "share": parts(share, "--share"),
    }
    if not any(question.values()):
        raise InputError("give a change", remedy="such as --add gpu=2, --drain host3 or --policy best-fit")
    if source is not None:
        found = asked(source, {"kind": "whatif", "hours": hours} | question)
    else:
        with connected(server, profile) as client:
            found = client.call("POST", "/v1/whatif", json=question | {"hours": hours}).json()
    if as_json:
        print(json.dumps(found))
    elif found.get("now") is None:
        raise SlotwiseError(found.get("reason") or "not known yet")
    else:
        show(found)
        if found["hours"] < hours:
            print(f"more jobs come in {hours:g} hours than can be run ahead, so the window is shorter")
    return 0


def show(found: dict[str, Any]) -> None:
    """Print both sides as a table."""
    from slotwise.cli.columns import table

    now, then = found["now"], found["then"]

    def row(name: str, path: tuple[str, ...], shown: Any) -> list[str]:
        cells = []
        for side in (now, then):
            value: Any = side
            for key in path:
                value = value.get(key, {})
            cells.append(
                f"{shown(value['p50'])} ({shown(value['p10'])} to {shown(value['p90'])})" if value else "-"
            )
        return [name, *cells]

    def number(value: float) -> str:
        return f"{value:.1f}"

    def share(value: float) -> str:
        return f"{value:.0%}"

    rows = [
        row("jobs waiting, mean", ("queue", "mean"), number),
        row("jobs waiting, at the end", ("queue", "end"), number),
        row("mean wait", ("wait",), roughly),
        row("waiting now, not started then", ("starved",), number),
        row("headroom", ("headroom",), share),
    ]
    rows += [row(f"{name} in use", ("utilisation", name), share) for name in now["utilisation"]]
    for name in now["types"]:
        rows.append(row(f"type {name}: waiting", ("types", name, "queue"), number))
        rows.append(row(f"type {name}: wait", ("types", name, "wait"), roughly))
    for name in sorted({*now["tenants"], *then["tenants"]}):
        rows.append(row(f"tenant {name}: wait", ("tenants", name, "wait"), roughly))
    ahead = roughly(3600.0 * found["hours"])
    print(f"the next {ahead}, {found['runs']} futures: median (10 % to 90 %)")
    table([f"{'':<1}", "as now", "then"], rows)


def advice(*, source: str | None, as_json: bool, server: str | None, profile: str | None) -> int:
    """Print which free capacity is unusable."""
    if source is not None:
        found = asked(source, {"kind": "advice"})
    else:
        with connected(server, profile) as client:
            found = client.call("GET", "/v1/advice").json()
    if as_json:
        print(json.dumps(found))
        return 0
    if found.get("reason"):
        raise SlotwiseError(found["reason"])
    for name, amount in found["free"].items():
        lost = found["unusable"][name]
        print(
            f"{name}: {amount:g} free, of which {lost:g} ({found['share'][name]:.0%}) fit no waiting or usual job"
        )
    for one in found["servers"][:LISTED]:
        then = one["until"] and one["until"]["p50"]
        until = f"; in about {roughly(then)} a job of type {one['fits_then']} fits" if then is not None else ""
        held = ", ".join(map(str, one["jobs"][:5])) + (" ..." if len(one["jobs"]) > 5 else "")
        print(
            f"server {one['server']}: held by job{'s' if len(one['jobs']) > 1 else ''} {held}{until}"
            if held
            else f"server {one['server']}: empty"
        )
    more = len(found["servers"]) - LISTED
    if more > 0:
        print(f"and {more} more servers like these; --json lists up to 100")
    for one in found["drains"]:
        then = one["after"]["p50"]
        when = f"in about {roughly(then)}" if then is not None else "at some time"
        print(
            f"drain {one['server']}: jobs of type {one['type']} that fit on it when it is empty: {one['gains']}, the first {when}"
        )
    return 0


def some_hours(text: str) -> float:
    """Read hours to simulate."""
    hours = float(text)
    if not 0 < hours <= 168:
        raise ValueError("is not between 0 and 168 hours")
    return hours


WHATIF = LightCommand(
    whatif,
    "Simulate the next hours with and without a change, and compare them: queue, waits by type and tenant, jobs that do not start, headroom. The service is not changed.",
    (
        Option("add", "--add", "add servers of a class", "CLASS=COUNT", repeatable=True),
        Option("remove", "--remove", "drain servers of a class, emptiest first", "CLASS=COUNT", repeatable=True),
        Option("drain", "--drain", "a server that takes no more jobs", "SERVER", repeatable=True),
        Option("policy", "--policy", "use another policy", "NAME"),
        Option("rate", "--rate", "multiply the arrivals of a type", "TYPE=FACTOR", repeatable=True),
        Option("share", "--share", "give a tenant this part of the cluster", "TENANT=PART", repeatable=True),
        Option("hours", "--hours", "hours to simulate", "HOURS", some_hours, 4.0),
        SOURCE,
        *CONNECTION,
    ),
    (
        "slotwise whatif --add gpu=2",
        "slotwise whatif --policy best-fit --hours 12 --json",
        "slotwise whatif --drain host3 --rate web=1.5",
        "slotwise whatif --share physics=.5",
    ),
)
ADVICE = LightCommand(
    advice,
    "Say how much of the free capacity no waiting or usual job can use, which jobs run on those servers, until when, and what a drain would free. The service is not changed.",
    (SOURCE, *CONNECTION),
    ("slotwise advice", "slotwise advice --json"),
)
