"""The alarms, and what packaging/ says about metrics: every name in the Prometheus rules and on the Grafana board is one that the service exports."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from house import SETUP, SLOW, House

from slotwise.live import metrics, observed
from slotwise.live.alarms import Alarms
from slotwise.live.board import Board, copy
from slotwise.live.observed import Load, Seen, observe

PACKAGING = Path(__file__).parents[2] / "packaging"
RULES = PACKAGING / "prometheus" / "slotwise-rules.yml"
BOARD = PACKAGING / "grafana" / "slotwise.json"
NAME = re.compile(r"\bslotwise_[a-z_]+")
LABEL = re.compile(r'(slotwise_[a-z_]+)\{([a-z]+)="([^"]*)"')


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(tmp_path_factory.mktemp("house"))
    number = made.submit()
    made.until_placed(number)
    yield made
    made.service.close()


def expressions() -> list[str]:
    rules = re.findall(r"^ +expr: (.*)$", RULES.read_text(), re.MULTILINE)
    board = json.loads(BOARD.read_text())
    return rules + [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def test_every_name_is_exported(house: House) -> None:
    exported = house.call("GET", "/metrics").text
    samples = set(re.findall(r"^(slotwise_[a-z_]+)", exported, re.MULTILINE))
    described = set(re.findall(r"^# HELP (slotwise_[a-z_]+)", exported, re.MULTILINE))
    found = expressions()
    assert len(found) > 20
    for text in found:
        for name in NAME.findall(text):
            assert name in samples | described, f"{name} of {text!r} is not exported"
        for name, label, value in LABEL.findall(text):
            assert f'{name}{{{label}="{value}"' in exported, f"{name} has no {label}={value}"


def test_every_alarm_has_a_rule() -> None:
    text = RULES.read_text()
    ruled = {value for name, _, value in LABEL.findall(text) if name == "slotwise_alarm"}
    other = {"trouble": "slotwise_ready", "servers": "slotwise_servers", "overload": "slotwise_load_headroom"}
    for kind in metrics.KINDS:
        assert kind in ruled or other[kind] in text, kind


def test_panels_do_not_overlap() -> None:
    seen: Counter[tuple[int, int]] = Counter()
    for panel in json.loads(BOARD.read_text())["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            seen.update((x, y) for y in range(place["y"], place["y"] + place["h"]))
    assert max(seen.values()) == 1
    assert max(x for x, _ in seen) < 24


def quiet(alarms: Alarms, load: Load | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarms, "_look", lambda: None)
    monkeypatch.setattr(alarms, "_load", load)


LOAD = Load(3600.0, {"one": Seen(10, 10, 20.0, 5.0)}, 0.5, 1.0, False, 0.9, "certified", "")


def kinds(alarms: Alarms, board: Board) -> dict[str, Any]:
    return {one["kind"]: one for one in alarms.now(board)}


def test_alarms_are_raised_and_go(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    alarms = Alarms(house.service)
    quiet(alarms, LOAD, monkeypatch)
    board: Board = house.service.loop.ask(copy).result().board()
    assert kinds(alarms, board) == {}
    starving = board._replace(queues={"one": [1, 4, board.now - 251.0]})
    assert set(kinds(alarms, starving)) == {"starvation"}
    assert kinds(alarms, board._replace(queues={"one": [1, 4, board.now - 249.0]})) == {}
    first = kinds(alarms, board._replace(fault="ZeroDivisionError"))["fault"]
    later = kinds(alarms, board._replace(fault="ZeroDivisionError", now=board.now + 60))["fault"]
    assert later["since"] == first["since"] == board.now
    down = board._replace(rows=[[3, 0, [0, 0], [0, 0]]])
    assert "s" in kinds(alarms, down)["servers"]["text"]
    quiet(alarms, LOAD._replace(outside=True, intensity=1.2, headroom=-0.17), monkeypatch)
    assert "1.20" in kinds(alarms, board)["overload"]["text"]
    quiet(alarms, LOAD, monkeypatch)
    for coverage, of, raised in (
        (0.5, 1000, True),
        (0.5, 50, False),
        (0.8, 1000, False),
        (0.97, 1000, True),
        (None, 0, False),
    ):
        monkeypatch.setattr(alarms, "_coverage", (coverage, of))
        assert ("forecast" in kinds(alarms, board)) == raised
    monkeypatch.setattr(house.service.loop, "trouble", "the disk is full")
    assert kinds(alarms, board)["trouble"]["text"] == "the disk is full"


def test_the_observed_load_is_located(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """One server with 4 CPUs; jobs of 1 CPU: at 3 in service on average the intensity is 3/4, at 5 it is 5/4."""
    core = house.service.loop.ledger.core
    for arrivals, intensity in ((540, 0.75), (900, 1.25)):
        found = {"one": Seen(arrivals, arrivals, 20.0, 1.0)}
        monkeypatch.setattr(observed, "seen", lambda *_, found=found: (3600.0, found))
        load = observe(house.service.store, core.cluster, list(core.types), core.policy, Counter({"a": 1}), 0.0)
        assert load.intensity == pytest.approx(intensity)
        assert load.headroom == pytest.approx(1 / intensity - 1)
        assert load.outside == (intensity > 1)
    nothing = observe(house.service.store, core.cluster, list(core.types), core.policy, Counter(), 0.0)
    assert nothing.intensity is None
    assert nothing.why == "no server is up"
    monkeypatch.setattr(observed, "seen", lambda *_: (3600.0, {"one": Seen(5, 0, None, None)}))
    unknown = observe(house.service.store, SETUP.cluster, list(core.types), core.policy, Counter({"a": 1}), 0.0)
    assert "too few jobs have ended" in unknown.why


def test_what_was_seen_of_each_type(tmp_path: Path) -> None:
    house = House(tmp_path)
    try:
        for _ in range(4):
            house.submit(duration=SLOW)
        store, now = house.service.store, house.service.loop.clock.now() + 100.0
        window, found = observed.seen(store, now)
        assert 100.0 <= window < 100.0 + SLOW
        assert found["one"].arrivals == 4
        assert found["one"].service is None, "nothing has ended yet"
    finally:
        house.service.close()
