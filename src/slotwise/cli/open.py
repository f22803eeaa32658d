"""`slotwise open`: a browser with a session on the dashboard."""

from __future__ import annotations

import json

from slotwise.cli.connecting import CONNECTION, connected
from slotwise.cli.light import LightCommand, Option


def open_dashboard(*, only_print: bool, server: str | None, profile: str | None, as_json: bool) -> None:
    """Open the dashboard in a browser, or print the link."""
    with connected(server, profile) as client:
        made = client.call("POST", "/v1/login-codes").json()
        given = client.address.url
        link = (given if given.startswith("http") else made["address"]) + made["path"]
    if as_json:
        print(json.dumps({"link": link, "expires": made["expires"]}))
        return
    opened = False
    if not only_print:
        import webbrowser

        opened = webbrowser.open(link)
    if not opened:  # on a machine without a browser, the link can be opened elsewhere
        print(link)


OPEN = LightCommand(
    open_dashboard,
    "Open the dashboard in a browser. The link works once, within five minutes. The browser gets the rights of your token.",
    (Option("only_print", "--print", "print the link instead of opening a browser"), *CONNECTION),
    ("slotwise open", "slotwise open --print"),
)
