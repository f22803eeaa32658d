"""The page: self-contained, deterministic, with its data beside it; colours that are one policy's each."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from slotwise.display.drawing import DrawnSeries, curves, dots, lines, plain_number
from slotwise.display.numbers import brief, cell, measured, with_band
from slotwise.display.palette import STYLES, style_of
from slotwise.errors import InputError
from slotwise.policies import POLICIES
from slotwise.report.blocks import ClaimTable, Figure, Panel, Prose, ReportPage, Section, Table
from slotwise.report.claims import Claim, Standing
from slotwise.report.manifest import Manifest
from slotwise.report.page import render, write_page
from slotwise.report.stepthrough import CAPACITY, SIZES, draw, record, telling, walk_of


def page() -> ReportPage:
    data = pl.DataFrame({"policy": ["algorithm1", "m14"], "mean": [1.5, 1e6], "runs": [[1.0, 2.0], [3.0, 4.0]]})
    svg = lines(
        [DrawnSeries("algorithm1", [1, 2, 3], [1, 10, 100], [0.5, 9, None], [2, 11, None])], "one", x="servers"
    )
    figure = Figure(
        "queue",
        "A <figure>",
        "Caption & more.",
        [Panel("p", svg, 'alt "text"')],
        data,
        ["algorithm1", "algorithm1"],
    )
    claim = Claim("c1", "It <holds>.", Standing.IN_PART, "1 & 2", "of this")
    table = Table("numbers", "Numbers", "All of them.", data)
    return ReportPage(
        "A title", ["lead"], [Section("s", "Section", [Prose("text"), ClaimTable([claim]), figure, table])]
    )


def manifest() -> Manifest:
    return Manifest("slotwise reproduce", 1, {"all": 1.0})


class Reader(HTMLParser):
    """Checks that tags are closed and collects what refers elsewhere."""

    VOID = frozenset({"meta", "link", "input", "br", "img"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.refers: list[str] = []
        self.labels: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        self.ids += [found["id"] or ""] if "id" in found else []
        self.labels += [found["aria-label"] or ""] if "aria-label" in found else []
        self.refers += [found[name] or "" for name in ("href", "src", "xlink:href") if name in found]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_whole_and_needs_nothing_else() -> None:
    text = render(page(), manifest())
    reader = Reader()
    reader.feed(text)
    assert not reader.open
    assert len(reader.ids) == len(set(reader.ids)), "ids on a page are unique"
    inside = {f"#{name}" for name in reader.ids}
    beside = {f"data/{name}.{kind}" for name in ("queue", "numbers") for kind in ("csv", "parquet")}
    for address in reader.refers:
        assert address in inside | beside | {"manifest.json", "data:,"}, address
    assert "@import" not in text
    assert "url(http" not in text
    assert 'alt "text"' in reader.labels
    assert "A &lt;figure&gt;" in text
    assert "because of this" in text


def test_written_twice_the_data_are_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        path = write_page(page(), tmp_path / name, manifest())
        assert path == tmp_path / name / "index.html"
    files = sorted(path.name for path in (tmp_path / "a" / "data").iterdir())
    assert files == ["numbers.csv", "numbers.parquet", "queue.csv", "queue.parquet"]
    for name in files:
        assert (tmp_path / "a" / "data" / name).read_bytes() == (tmp_path / "b" / "data" / name).read_bytes()
    back = pl.read_parquet(tmp_path / "a" / "data" / "queue.parquet")
    assert back.equals(page().data["queue"])
    assert pl.read_csv(tmp_path / "a" / "data" / "queue.csv")["runs"].to_list() == ["1.0 2.0", "3.0 4.0"]
    facts = json.loads((tmp_path / "a" / "manifest.json").read_text())
    assert facts["seed"] == 1
    assert facts["version"]
    assert facts["cores"] >= 1


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_page(page(), tmp_path / "file" / "sub", manifest())


def test_two_blocks_of_one_name_are_refused() -> None:
    whole = page()
    twice = ReportPage("t", [], [*whole.sections, *whole.sections])
    with pytest.raises(ValueError, match="two blocks"):
        _ = twice.data


def test_drawings_are_deterministic_and_their_ids_apart() -> None:
    time = np.arange(50.0)
    for draw_one in (
        lambda name: curves([("m14", time, time**2)], name, x="time", marks=[10.0]),
        lambda name: dots([("a", "m14", 5.0, 4.0, 6.0), ("b", "g16", 500.0, None, None)], name),
    ):
        assert draw_one("x") == draw_one("x")
        one, other = (set(re.findall(r'id="([^"]+)"', draw_one(name))) for name in ("x", "y"))
        assert not one & other
        assert "<text" not in draw_one("x")
        assert "http" not in re.sub(r'xmlns(:xlink)?="[^"]*"', "", draw_one("x"))


def test_every_policy_has_looks_of_its_own() -> None:
    assert set(POLICIES) <= set(STYLES)
    assert "guarded" in STYLES
    looks = [(style.colour, style.marker, str(style.line)) for style in STYLES.values()]
    assert len(looks) == len(set(looks))
    assert style_of("mine.py:Policy") == style_of("mine.py:Policy")


def test_numbers() -> None:
    assert [brief(x) for x in (0, 1234.5, 12.345, 0.00123, None, float("inf"))] == [
        "0",
        "1,234",
        "12.3",
        "0.0012",
        "–",
        "unbounded",
    ]
    assert with_band(12.3, 11.3, 13.3) == "12.3 ± 1"
    assert with_band(12.3, None, None) == "12.3"
    assert with_band(72.7, 13.0, 408.0) == "72.7 [13, 408]"
    assert with_band(12.3, 11.3, float("inf")) == "12.3"
    assert [measured(x) for x in (12.345, None, float("inf"))] == ["12.35", "–", "not known"]
    assert [cell(x) for x in (True, 1200, "text", None)] == ["yes", "1,200", "text", "–"]
    assert [plain_number(x) for x in (0, 1000, 2_000_000, 0.125)] == ["0", "1,000", "2 M", "0.125"]


def test_the_walk_shows_a_stall_and_a_reset_and_breaks_no_rule() -> None:
    steps = record(1, 1500)
    for step in steps:
        for server in step.servers:
            assert sum(SIZES[name] * n for name, n in server.jobs.items()) <= CAPACITY
            assert sum(SIZES[name] * n for name, n in server.slots.items()) <= CAPACITY
            if server.state == "active":
                assert all(n <= server.slots.get(name, 0) for name, n in server.jobs.items())
    before = steps[0]
    for step in steps[1:]:
        for old, new in zip(before.servers, step.servers, strict=True):
            if old.state == new.state == "stalled" and step.event == "arrival":
                assert old.jobs == new.jobs, "a stalled server takes no new jobs"
        before = step
    part = telling(steps)
    words = " ".join(step.words for step in part)
    assert "the server stalls" in words
    assert "starts anew" in words
    assert "it waits" in words
    assert draw(part[0]).count("<rect") >= 2


def test_the_walk_is_a_function_of_its_seed() -> None:
    one, other = walk_of(3), walk_of(3)
    assert [frame.svg for frame in one.frames] == [frame.svg for frame in other.frames]
    assert one.data.equals(other.data)
