"""`slotwise top`: the board in a terminal, drawn anew every other second."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from slotwise.cli.connecting import CONNECTION, connected
from slotwise.cli.light import Command, Option, positive

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

    from slotwise.live.client import Client

SHADES = " ▁▂▃▄▅▆▇█"  # how full a server is
STYLES = {"up": "blue", "turning": "yellow", "draining": "dim", "lost": "bold red"}


def top(
    *, once: bool, resource: str | None, every: int, server: str | None, profile: str | None, as_json: bool
) -> None:
    """Show the cluster until Ctrl-C."""
    from slotwise.live.transport import ServiceError

    with connected(server, profile) as client:
        if as_json:
            print(json.dumps(read(client)))
            return
        from rich.console import Console
        from rich.live import Live

        console = Console()
        first = draw(read(client), resource, console.width, console.height)
        if once or not sys.stdout.isatty():
            console.print(first)
            return
        with Live(first, console=console, screen=True, auto_refresh=False) as live:
            while True:
                try:
                    live.update(draw(read(client), resource, console.width, console.height), refresh=True)
                except ServiceError as error:
                    if not error.passing:
                        raise
                    live.update(note(f"{error}; trying again"), refresh=True)
                time.sleep(every)


def read(client: Client) -> dict[str, Any]:
    """Return the board."""
    found: dict[str, Any] = client.call("GET", "/v1/board").json()
    return found


def note(text: str) -> Text:
    """A line that stands alone."""
    from rich.text import Text

    return Text(text, style="bold red")


def draw(board: dict[str, Any], resource: str | None, width: int, height: int) -> Group:
    """Draw the board: figures, queues, alarms and a cell for each server, as many as the terminal has room for."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from slotwise.display.numbers import printable

    resources: list[str] = board["resources"]
    which = resources.index(resource) if resource in resources else 0
    capacity = {one["name"]: one["capacity"] for one in board["classes"]}
    whole, used = 0.0, 0.0
    for kind, row in zip(board["server_classes"], board["servers"], strict=True):
        if board["statuses"][row[0]] != "lost":
            whole += capacity.get(kind, [0] * len(resources))[which]
            used += row[2][which]
    waiting = sum(row[0] for row in board["queues"].values())
    load = board["load"] or {}
    head = Text.assemble(
        ("slotwise ", "bold"),
        f"{board['policy']}   running {board['live']:,}   waiting {waiting:,}   ",
        f"{resources[which]} {used:g} of {whole:g}" + (f" ({used / whole:.0%})" if whole else ""),
        "" if load.get("intensity") is None else f"   load {load['intensity']:.0%} of what can be carried",
    )
    alarms = [Text(printable(f"! {one['kind']}: {one['text']}"), style="bold red") for one in board["alarms"]]
    queues = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (("type", "left"), ("waiting", "right"), ("running", "right"), ("oldest waits", "right")):
        queues.add_column(name, justify=justify)  # type: ignore[arg-type]
    listed = sorted(board["queues"].items(), key=lambda one: (-one[1][0], one[0]))
    most = max(3, height // 3)
    for name, (count, running, since) in listed[:most]:
        age = "-" if since is None else f"{max(0.0, board['now'] - since):,.0f} s"
        queues.add_row(printable(name), f"{count:,}", f"{running:,}", age)
    more = [] if len(listed) <= most else [Text(f"and {len(listed) - most} types more", style="dim")]
    room = height - len(alarms) - min(len(listed), most) - 6
    cells = draw_cells(board, which, capacity, width, max(3, room))
    legend = Text.assemble(
        "blue: how full; ", ("turning", "yellow"), ", ", ("draining", "dim"), ", ", ("down", "bold red")
    )
    return Group(head, *alarms, queues, *more, Text(), *cells, legend)


def draw_cells(
    board: dict[str, Any], which: int, capacity: dict[str, list[float]], width: int, lines: int
) -> list[Text]:
    """Draw servers by class: a name for each line, then a cell for each server."""
    from rich.text import Text

    from slotwise.display.numbers import printable

    places = sorted(range(len(board["names"])), key=lambda at: (board["server_classes"][at], at))
    widest = min(20, max((len(name) for name in board["names"]), default=0)) + 1
    a_line = max(8, width - widest - 1)
    drawn: list[Text] = []
    at = 0
    while at < len(places) and len(drawn) < lines:
        kind = board["server_classes"][places[at]]
        end = at
        while end < len(places) and end - at < a_line and board["server_classes"][places[end]] == kind:
            end += 1
        line = Text(printable(board["names"][places[at]])[: widest - 1].ljust(widest), style="default")
        for place in places[at:end]:
            status, _, used, _ = board["servers"][place]
            size = capacity.get(kind, [0.0] * (which + 1))[which]
            name = board["statuses"][status]
            full = min(1.0, used[which] / size) if size else 0.0
            line.append("x" if name == "lost" else SHADES[round(full * (len(SHADES) - 1))], STYLES[name])
        drawn.append(line)
        at = end
    if at < len(places):
        drawn.append(Text(f"and {len(places) - at:,} servers more; `slotwise servers` lists all", style="dim"))
    return drawn


TOP = Command(
    top,
    "Show the cluster in the terminal: queues, alarms, and how full each server is. Ctrl-C ends it.",
    (
        Option("once", "--once", "draw once and end"),
        Option("resource", "--resource", "the resource that cells show (default: the first)", "NAME"),
        Option("every", "--every", "seconds between two pictures", "SECONDS", positive, 2),
        *CONNECTION,
    ),
    ("slotwise top", "slotwise top --resource memory"),
)
