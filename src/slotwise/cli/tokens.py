"""`slotwise token`."""

from __future__ import annotations

import json
from urllib.parse import quote

from slotwise.cli.columns import clock, table
from slotwise.cli.connecting import CONNECTION, connected
from slotwise.cli.light import Argument, CommandGroup, LightCommand, Option


def create(
    *, role: str, tenant: str | None, user: str | None, server: str | None, profile: str | None, as_json: bool
) -> None:
    """Make a token and print it."""
    wanted = {"role": role, "tenant": tenant, "user": user}
    with connected(server, profile) as client:
        made = client.call(
            "POST", "/v1/tokens", json={name: value for name, value in wanted.items() if value is not None}
        ).json()
    print(json.dumps(made) if as_json else made["token"])


def list_tokens(*, server: str | None, profile: str | None, as_json: bool) -> None:
    """List tokens."""
    with connected(server, profile) as client:
        found = client.call("GET", "/v1/tokens").json()
    if as_json:
        print(json.dumps(found))
    else:
        rows = [[one["id"], one["role"], one["tenant"], one["user"] or "-", clock(one["created"])] for one in found]
        table(["id", "role", "tenant", "user", "made"], rows, ("made",))


def revoke(*, identity: str, server: str | None, profile: str | None, as_json: bool) -> None:
    """Revoke a token."""
    with connected(server, profile) as client:
        client.call("DELETE", f"/v1/tokens/{quote(identity, '')}")
    if as_json:
        print(json.dumps({"id": identity, "revoked": True}))


TOKEN = CommandGroup(
    "Make, list and revoke tokens.",
    {
        "create": LightCommand(
            create,
            "Make a token and print it. It cannot be shown again.",
            (
                Option("role", "--role", "read, submit or operate", "ROLE", required=True),
                Option("tenant", "--tenant", "the tenant whose jobs the token submits and sees", "NAME"),
                Option("user", "--user", "the account that executes its jobs, if the service runs as root", "NAME"),
                *CONNECTION,
            ),
            (
                "slotwise token create --role submit --tenant physics",
                "slotwise token create --role submit --tenant alice --user alice",
            ),
        ),
        "list": LightCommand(
            list_tokens, "List tokens, without their secrets.", CONNECTION, ("slotwise token list",)
        ),
        "revoke": LightCommand(
            revoke,
            "Revoke a token. It is refused from now on.",
            (Argument("identity", "ID", "of `slotwise token list`"), *CONNECTION),
            ("slotwise token revoke 1a2b3c4d5e6f",),
        ),
    },
)
