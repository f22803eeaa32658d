"""What the first run of a policy shows while it compiles: one line that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from slotwise.simulation.run import ahead


def name_of(piece: str) -> str:
    """A piece as people read it: guarded.rules.place for a function of a policy, loop for a driver."""
    module, colon, function = piece.partition(":")
    below = module.removeprefix("slotwise.").removeprefix("scheduling.").removeprefix("policies.")
    return f"{below}.{function}" if colon else module


def show(n: int, m: int, piece: str) -> None:
    """The n-th of m kernels is being compiled; all are where n is larger."""
    terminal = sys.stderr.isatty()
    text = f"compiling (once): kernel {n} of {m}, {name_of(piece)}" if n <= m else ""
    if terminal:
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


@contextmanager
def shown(listener: ahead.Told = show) -> Iterator[None]:
    """Whatever is compiled meanwhile is shown."""
    ahead.told.append(listener)
    try:
        yield
    finally:
        ahead.told.remove(listener)
