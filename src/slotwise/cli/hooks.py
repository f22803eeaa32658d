"""`slotwise hooks`: deliveries to hooks."""

from __future__ import annotations

import json
from typing import Any

from slotwise.cli.columns import clock, table
from slotwise.cli.connecting import CONNECTION, connected
from slotwise.cli.light import LightCommand, Option
from slotwise.display.numbers import printable
from slotwise.errors import SlotwiseError


def hooks(*, test: str | None, server: str | None, profile: str | None, as_json: bool) -> int:
    """Print how far hooks are, or test one."""
    with connected(server, profile) as client:
        if test is not None:
            found = client.call("POST", f"/v1/hooks/{test}/test").json()
            return tell_test(test, found, as_json=as_json)
        found = client.call("GET", "/v1/hooks").json()
    if as_json:
        print(json.dumps(found))
        return 0
    if not found:
        print("no hooks; [[hooks]] of the cluster file defines them")
        return 0
    rows = [
        [
            one["name"],
            one["target"],
            str(one["behind"]),
            str(one["delivered"]),
            str(one["given_up"]),
            clock(one["last"]),
            ", ".join(one["on"]),
        ]
        for one in found
    ]
    table(["name", "target", "behind", "delivered", "given up", "last", "on"], rows, ("on", "last"))
    for one in found:
        for line in troubles(one):
            print(printable(line))
    return 0


def troubles(hook: dict[str, Any]) -> list[str]:
    """Return what went wrong with a hook, one line each."""
    lines = []
    if hook["trial"] is not None:
        trial = hook["trial"]
        lines.append(
            f"{hook['name']}: {trial['id']} was tried {trial['tries']} times, again at {clock(trial['next'])}: {trial['error']}"
        )
    lines += [
        f"{hook['name']}: {one['id']} was given up at {clock(one['time'])}: {one['error']}"
        for one in hook["failures"]
    ]
    if hook["missed"]:
        lines.append(
            f"{hook['name']}: {hook['missed']:,} rows of the journal were dropped before the hook came to them"
        )
    return lines


def tell_test(name: str, found: dict[str, Any], *, as_json: bool) -> int:
    """Print the result of a test."""
    if as_json:
        print(json.dumps(found))
        return SlotwiseError.exit_code if found["error"] else 0
    if found["error"]:
        raise SlotwiseError(f"hook {name}: {found['error']}")
    print(f"hook {name}: the test event was delivered")
    return 0


HOOKS = LightCommand(
    hooks,
    "Show the hooks of the service, and how many events were delivered, are tried again and were given up.",
    (Option("test", "--test", "send a test event to this hook, once", "NAME"), *CONNECTION),
    ("slotwise hooks", "slotwise hooks --test chat"),
)
