"""`slotwise console`: the service names an address, and virsh may take an address for a program to execute."""

from __future__ import annotations

import pytest

from slotwise.cli.console import check_place
from slotwise.errors import InputError

DOMAIN = "slotwise-0123abcd-7-1"


@pytest.mark.parametrize(
    ("uri", "domain"),
    [
        ("qemu+ssh://host/system?command=/tmp/evil", DOMAIN),
        ("qemu+ssh://host/system?no_tty=1&Netcat=/tmp/evil", DOMAIN),
        ("qemu+ssh://host/system?%63ommand=/tmp/evil", DOMAIN),
        ("qemu+ssh://host/system?command", DOMAIN),
        ("qemu+ext:///system", DOMAIN),
        ("qemu+ssh://-oProxyCommand=evil/system", DOMAIN),
        ("--version", DOMAIN),
        ("", DOMAIN),
        ("qemu:///system", "--help"),
    ],
)
def test_an_address_that_executes_a_program_is_refused(uri: str, domain: str) -> None:
    with pytest.raises(InputError, match="execute a program here"):
        check_place({"uri": uri, "domain": domain})


@pytest.mark.parametrize(
    "uri",
    ["qemu:///session", "qemu+ssh://root@host:22/system?keyfile=/root/.ssh/id&no_verify=1", "test:///default"],
)
def test_usual_addresses_are_taken(uri: str) -> None:
    check_place({"uri": uri, "domain": DOMAIN})
