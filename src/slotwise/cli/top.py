"""`slotwise top`: the board in a terminal, drawn anew every other second."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from slotwise.cli.connecting import CONNECTION, connected
from slotwise.cli.light import LightCommand, Option, positive

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

    from slotwise.live.client import Client

SHADES = "·▁▂▃▄▅▆▇█"  # how full a server is
BAR = 8  # characters: eighths of a capacity can be seen
STYLES = {"up": "blue", "turning": "yellow", "draining": "magenta", "lost": "bold red"}


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
    """Draw the board: figures, alarms, queues and a cell for each server, as much as the terminal has room for."""
    from rich.console import Group
    from rich.text import Text

    from slotwise.display.numbers import printable

    resources: list[str] = board["resources"]
    which = resources.index(resource) if resource in resources else 0
    alarms = [Text(printable(f"! {one['kind']}: {one['text']}"), style="bold red") for one in board["alarms"]]
    for one in alarms:
        one.truncate(width, overflow="ellipsis")
    top_lines = [*figures(board, which, width), *alarms]
    queues = draw_queues(board, max(3, height // 3))
    room = height - len(top_lines) - len(queues) - 3
    cells = draw_servers(board, which, width, max(3, room))
    legend = Text.assemble(
        "how full: ", ("▁▄█", STYLES["up"]), "  ", ("turning", STYLES["turning"]), "  ",
        ("draining", STYLES["draining"]), "  ", ("x down", STYLES["lost"]),
        no_wrap=True, overflow="ellipsis",
    )  # fmt: skip
    return Group(*top_lines, *queues, Text(), *cells, legend)


def figures(board: dict[str, Any], which: int, width: int) -> list[Text]:
    """What matters most, in as few lines as the width allows."""
    from rich.text import Text

    whole, used = 0.0, 0.0
    capacity = capacities(board)
    for kind, row in zip(board["server_classes"], board["servers"], strict=True):
        if board["statuses"][row[0]] != "lost":
            whole += capacity[kind][which]
            used += row[2][which]
    waiting = sum(row[0] for row in board["queues"].values())
    load = board["load"] or {}
    parts = [
        f"slotwise, policy {board['policy']}", f"waiting {waiting:,}", f"running {board['live']:,}",
        f"{board['resources'][which]} {used:,g} of {whole:,g}" + (f" ({used / whole:.0%})" if whole else ""),
    ]  # fmt: skip
    if load.get("intensity") is not None:
        parts.append(f"load {load['intensity']:.0%} of what the servers can carry")
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) + 3 <= width:
            lines[-1] += f"   {part}"
        else:
            lines.append(part)
    return [Text(line, style="bold", no_wrap=True, overflow="ellipsis") for line in lines]


def draw_queues(board: dict[str, Any], most: int) -> list[Text]:
    """The longest queues as lines of a table."""
    from rich.text import Text

    from slotwise.display.numbers import printable
    from slotwise.live.durations import in_words

    listed = sorted(board["queues"].items(), key=lambda one: (-one[1][0], one[0]))
    if not listed:
        return [Text("no types of jobs yet", style="dim")]
    widest = min(32, max(4, *(len(name) for name, _ in listed[:most])))
    lines = [
        Text(
            f"{'type':{widest}} {'waiting':>9} {'running':>9}   oldest waits for",
            style="bold",
            no_wrap=True,
            overflow="ellipsis",
        )
    ]
    for name, (count, running, since) in listed[:most]:
        age = "-" if since is None else in_words(max(0, round(board["now"] - since)))
        shown = printable(name)
        shown = shown if len(shown) <= widest else f"{shown[: widest - 1]}…"
        lines.append(
            Text(
                f"{shown:{widest}} {count:>9,} {running:>9,}   {age}",
                style="yellow" if count else "",
                no_wrap=True,
                overflow="ellipsis",
            )
        )
    if len(listed) > most:
        lines.append(Text(f"and {len(listed) - most:,} more types", style="dim"))
    return lines


def capacities(board: dict[str, Any]) -> dict[str, list[float]]:
    """Return the capacity of a server of each class; a class that is gone has none."""
    nothing = [0.0] * len(board["resources"])
    known = {one["name"]: one["capacity"] for one in board["classes"]}
    return {kind: known.get(kind, nothing) for kind in board["server_classes"]}


def draw_servers(board: dict[str, Any], which: int, width: int, lines: int) -> list[Text]:
    """Draw each server with its name and a bar if there is room for that, else as one cell."""
    from slotwise.display.numbers import printable

    places = sorted(range(len(board["names"])), key=lambda at: (board["server_classes"][at], at))
    names = [printable(name) for name in board["names"]]
    widest = min(24, max((len(name) for name in names), default=0))
    a_block = widest + BAR + len(" 9999/9999 draining") + 2
    columns = max(1, width // a_block)
    if -(-len(places) // columns) <= lines:
        return draw_bars(board, which, places, names, widest, a_block, columns)
    return draw_cells(board, which, width, lines, places, names, widest + 1)


def draw_bars(
    board: dict[str, Any], which: int, places: list[int], names: list[str], widest: int, a_block: int, columns: int
) -> list[Text]:
    """Draw servers with their names, column by column."""
    from rich.text import Text

    capacity = capacities(board)
    rows = -(-len(places) // columns)
    drawn = []
    for row in range(rows):
        line = Text(no_wrap=True, overflow="crop")
        for at in range(row, len(places), rows):
            place = places[at]
            status, _, used, _ = board["servers"][place]
            state, size = board["statuses"][status], capacity[board["server_classes"][place]][which]
            full = round(BAR * min(1.0, used[which] / size)) if size else 0
            name = names[place] if len(names[place]) <= widest else f"…{names[place][1 - widest :]}"
            amount = f"{used[which]:g}/{size:g}" if size else "none"
            line.append(f"{name:{widest}} ")
            line.append("█" * full, STYLES[state])
            line.append("░" * (BAR - full), "dim")
            line.append(f" {'x down' if state == 'lost' else amount}", "" if state == "up" else STYLES[state])
            if state in ("turning", "draining"):
                line.append(f" {state}", STYLES[state])
            line.pad_right(max(0, a_block * ((at - row) // rows + 1) - line.cell_len))
        drawn.append(line)
    return drawn


def draw_cells(
    board: dict[str, Any], which: int, width: int, lines: int, places: list[int], names: list[str], margin: int
) -> list[Text]:
    """Draw servers by class: the name of the first for each line, then a cell for each server."""
    from rich.text import Text

    capacity = capacities(board)
    a_line = max(8, width - margin - 1)
    drawn: list[Text] = []
    at, before = 0, 0
    while at < len(places) and len(drawn) < lines:
        kind = board["server_classes"][places[at]]
        before = end = at
        while end < len(places) and end - at < a_line and board["server_classes"][places[end]] == kind:
            end += 1
        first = names[places[at]]
        first = first if len(first) < margin else f"…{first[2 - margin :]}"
        line = Text(first.ljust(margin))
        for place in places[at:end]:
            status, _, used, _ = board["servers"][place]
            size = capacity[kind][which]
            state = board["statuses"][status]
            full = min(1.0, used[which] / size) if size else 0.0
            line.append("x" if state == "lost" else SHADES[round(full * (len(SHADES) - 1))], STYLES[state])
        drawn.append(line)
        at = end
    if at < len(places):
        drawn[-1:] = [
            Text(
                f"and {len(places) - before:,} more servers; `slotwise servers` lists all",
                style="dim",
                no_wrap=True,
            )
        ]
    return drawn


TOP = LightCommand(
    top,
    "Show the cluster in the terminal: queues, alarms, and how full each server is. Ctrl-C ends it.",
    (
        Option("once", "--once", "draw once and end"),
        Option("resource", "--resource", "the resource whose use the cells show (default: the first)", "NAME"),
        Option("every", "--every", "seconds between updates", "SECONDS", positive, 2),
        *CONNECTION,
    ),
    ("slotwise top", "slotwise top --resource memory"),
)
