"""Text that is safe to show, whatever a job is named or writes."""

from __future__ import annotations

import pytest

from slotwise.cli.columns import table
from slotwise.display.numbers import printable, terminal_output


@pytest.mark.parametrize("evil", ["\x1b[2J", "\x9b2J", "\u202e", "\u2066", "\x07", "\x7f", "\u200b", "\x00"])
def test_control_and_bidi_characters_are_written_out(evil: str) -> None:
    shown = printable(f"a{evil}b")
    assert shown.isprintable()
    assert shown.startswith("a\\")


def test_a_name_that_looks_like_markup_is_only_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    table(["id", "name"], [["1", "[/red]boom"], ["2", "[bold]\x9bx\n"]])
    shown = capsys.readouterr().out
    assert "[/red]boom" in shown
    assert "[bold]\\x9bx" in shown


@pytest.mark.parametrize(
    ("wrote", "shown"),
    [
        (b"plain \xc3\xa9\tx\r\n", b"plain \xc3\xa9\tx\r\n"),
        (b"\x1b[1;31mred\x1b[0m", b"\x1b[1;31mred\x1b[0m"),
        (b"\x1b]0;title\x07", b"\\x1b]0;title\\x07"),
        (b"\x1b[6n\x1b[2J", b"\\x1b[6n\\x1b[2J"),
        ("\u202ex\x9b".encode(), b"\\u202ex\\x9b"),
        (b"\x9b2J\xff", b"\\udc9b2J\\udcff"),
    ],
)
def test_output_on_a_terminal_keeps_colours_only(wrote: bytes, shown: bytes) -> None:
    assert terminal_output(wrote) == shown
