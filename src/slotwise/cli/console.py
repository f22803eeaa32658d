"""`slotwise console`."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from urllib.parse import parse_qsl, urlsplit

from slotwise.cli.connecting import CONNECTION, ID, connected, number_of
from slotwise.cli.light import LightCommand, Option
from slotwise.errors import InputError

EXECUTED = {"command", "netcat", "proxy"}  # parameters of libvirt's addresses that name programs, or choose one


def console(*, number: int | str, show: bool, server: str | None, profile: str | None, as_json: bool) -> None:
    """Hand the terminal over to `virsh console`, which asks the host itself: libvirt decides who may."""
    with connected(server, profile) as client:
        place = client.call("GET", f"/v1/jobs/{number_of(client, number)}/console").json()
    check_place(place)
    command = ["virsh", "--connect", place["uri"], "console", place["domain"]]
    if show or as_json:
        print(json.dumps(place | {"argv": command}) if as_json else shlex.join(command))
        return
    if shutil.which("virsh") is None:
        raise InputError(
            "needs the command virsh",
            where="slotwise console",
            remedy=f"install it (Debian: libvirt-clients), or run where it is: {shlex.join(command)}",
        )
    os.execvp(command[0], command)


def check_place(place: dict[str, str]) -> None:
    """Raise InputError for an address with which virsh would execute a program that it names, or that virsh would take for an option."""
    uri, domain = urlsplit(place["uri"]), place["domain"]
    named = {name.lower() for name, _ in parse_qsl(uri.query, keep_blank_values=True)}
    transport = uri.scheme.lower().partition("+")[2]
    if named & EXECUTED or transport == "ext" or not uri.scheme or "-" in (uri.netloc[:1], domain[:1]):
        raise InputError(
            f"the service names the console {domain!r} at {place['uri']!r}, which would execute a program here",
            where="slotwise console",
            remedy="ask the operator; virsh itself takes such an address",
        )


CONSOLE = LightCommand(
    console,
    "Connect the terminal to the console of a running virtual machine, with virsh. Ctrl-] disconnects. `slotwise logs` prints what the console has shown.",
    (ID, Option("show", "--print", "print the command instead of running it"), *CONNECTION),
    ("slotwise console 7 --print",),
)
