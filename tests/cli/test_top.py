"""`slotwise top`: everything fits into the terminal, whatever its size and however many servers there are."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from slotwise.cli.top import draw

STATUSES = ["up", "turning", "draining", "lost"]


def board(servers: int, types: int = 5, *, name: str = "node", alarms: int = 0) -> dict[str, Any]:
    chance = random.Random(servers)
    rows = [
        [chance.choices(range(4), [90, 4, 4, 2])[0], 2, [chance.randrange(33), 0], [0, 0]] for _ in range(servers)
    ]
    return {
        "policy": "guarded", "live": 2 * servers, "now": 2000.0, "resources": ["cpu", "gpu"], "statuses": STATUSES,
        "classes": [{"name": "a", "capacity": [32, 0]}, {"name": "b", "capacity": [32, 8]}],
        "names": [f"{name}-{number}" for number in range(servers)],
        "server_classes": ["a" if number % 3 else "b" for number in range(servers)], "servers": rows,
        "queues": {f"type-{number}": [number, 7, 100.0 if number else None] for number in range(types)},
        "alarms": [{"kind": "servers", "text": "2 servers are down: " + "x" * 200}] * alarms,
        "load": {"intensity": 0.85},
    }  # fmt: skip


def shown(found: dict[str, Any], width: int, height: int, resource: str | None = None) -> list[str]:
    console = Console(width=width, height=height, record=True, file=io.StringIO())
    console.print(draw(found, resource, width, height))
    return console.export_text().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 50), (48, 20), (300, 80)])
@pytest.mark.parametrize("servers", [0, 1, 3, 48, 300, 10_000])
@pytest.mark.parametrize("alarms", [0, 2])
def test_it_fits(width: int, height: int, servers: int, alarms: int) -> None:
    for name in ("n", "a-server-with-quite-a-long-host-name.cluster.example.org", "\x1b[31mred\u202e"):
        lines = shown(board(servers, 40, name=name, alarms=alarms), width, height)
        assert len(lines) <= height, lines
        assert all(cell_len(line) <= width for line in lines)
        assert "\x1b" not in "".join(lines)
        assert "waiting" in lines[0] or "waiting" in lines[1]
        assert any("type-39" in line for line in lines), "the longest queue"


def test_every_server_is_named_where_there_is_room() -> None:
    found = board(48)
    text = "\n".join(shown(found, 160, 50))
    for number, (status, _, used, _) in enumerate(found["servers"]):
        after = text.partition(f"node-{number} ")[2].split()
        assert after[0] == "█" * round(8 * used[0] / 32) + "░" * (8 - round(8 * used[0] / 32))
        assert after[1] == ("x" if STATUSES[status] == "lost" else f"{used[0]}/32")
    assert "none" in "\n".join(shown(found, 160, 50, "gpu")), "a class without this resource"


@pytest.mark.parametrize("servers", [300, 10_000])
def test_servers_that_are_not_drawn_are_counted(servers: int) -> None:
    lines = shown(board(servers), 80, 24)
    cells = sum(character in "·▁▂▃▄▅▆▇█x" for line in lines if line.startswith("node") for character in line)
    left = [int(line.split()[1].replace(",", "")) for line in lines if "more servers" in line]
    assert cells + sum(left) == servers
