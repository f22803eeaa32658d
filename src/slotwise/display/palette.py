"""One colour, one marker and one line for each policy, the same in every figure of the project.

The colours are Okabe and Ito's: people with any common kind of colour blindness can tell them apart. Marker and line
repeat what the colour says, so a figure also works in black and white.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
INK, SOFT, RULE = "#1a2027", "#5b6670", "#dfe4e8"
SOLID, DASHED, DOTTED, DASHDOT = "solid", (0, (5, 2)), (0, (1, 1.6)), (0, (5, 1.5, 1, 1.5))
LineStyle = str | tuple[int, tuple[float, ...]]


@dataclass(frozen=True)
class Style:
    """How a policy is drawn and called."""

    label: str
    colour: str
    marker: str
    line: LineStyle = SOLID


# The one place where a policy gets its looks.
STYLES: dict[str, Style] = {
    "algorithm1": Style("Algorithm 1", BLUE, "o"),
    "m14": Style("M14 (reconstruction)", ORANGE, "s"),
    "g16": Style("G16 (reconstruction)", PURPLE, "^"),
    "g16-retention": Style("G16 with retention (reconstruction)", PURPLE, "v", DASHED),
    "best-fit": Style("best-fit", GREEN, "D"),
    "guarded": Style("guarded", VERMILION, "*"),
    "first-fit": Style("first-fit", SKY, "<"),
    "worst-fit": Style("worst-fit", SKY, ">", DASHED),
    "random-fit": Style("random-fit", SKY, "h", DOTTED),
    "fifo": Style("fifo", SOFT, "x"),
    "kubernetes-least-allocated": Style("kubernetes-least-allocated", YELLOW, "p"),
    "kubernetes-most-allocated": Style("kubernetes-most-allocated", YELLOW, "P", DASHED),
    "tetris": Style("tetris", VERMILION, "d", DASHED),
    "myopic-maxweight": Style("myopic-maxweight", ORANGE, "X", DASHDOT),
    "vqs": Style("vqs (reconstruction)", GREEN, "8", DASHED),
    "vqs-bf": Style("vqs-bf (reconstruction)", GREEN, "H", DASHDOT),
    "easy-backfill": Style("easy-backfill (knows durations)", BLACK, "1", DASHDOT),
    "quickswap": Style("quickswap", PURPLE, "D", DASHDOT),
    "nmsr": Style("nmsr (knows rates)", BLUE, "2", DASHDOT),
    "lower-bound": Style("lower bound (no policy can be below)", BLACK, "", DOTTED),
}

_OTHERS = ((SKY, "d"), (VERMILION, "P"), (BLACK, "X"), (YELLOW, "D"), (BLUE, "s"), (GREEN, "o"))


def style_of(policy: str) -> Style:
    """The looks of a policy; one that is not known here, such as a user's own, always gets the same."""
    if policy in STYLES:
        return STYLES[policy]
    colour, marker = _OTHERS[zlib.crc32(policy.encode()) % len(_OTHERS)]
    return Style(policy, colour, marker, DASHDOT)


def label_of(policy: str) -> str:
    """What a policy is called in figures and tables."""
    return style_of(policy).label
