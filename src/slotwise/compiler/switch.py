"""Which compiler makes machine code of the kernels: ours, Numba alone, or none.

`SLOTWISE_COMPILER` chooses; without it ours is used on the versions of Numba that it was tested on, and Numba alone on all others.
All three give the same figures to the last bit (`make pins`, and the core tests, run on each of them).
"""

from __future__ import annotations

import os
import sys
from typing import Literal

import numba
from numba.core import config

Mode = Literal["ours", "numba", "off"]

TESTED = ("0.68",)  # minor versions of Numba whose inside `whole` and `lowering` were tested on
VARIABLE = "SLOTWISE_COMPILER"


def chosen(wanted: str, version: str, *, disabled: bool) -> tuple[Mode, str]:
    """Return the mode, and a line to be said where the user has not asked for it ("" for none)."""
    if disabled or wanted == "off":
        return "off", ""
    if wanted in ("numba", "ours"):
        return ("numba" if wanted == "numba" else "ours"), ""
    if wanted:
        raise ValueError(f"{VARIABLE} is {wanted!r}; use ours, numba or off")
    if ".".join(version.split(".")[:2]) in TESTED:
        return "ours", ""
    line = (
        f"slotwise: Numba {version} is not a tested version ({', '.join(TESTED)}): kernels are compiled by Numba alone,"
        f" which takes longer and gives the same results; {VARIABLE}=numba says so without this line"
    )
    return "numba", line


MODE, _line = chosen(os.environ.get(VARIABLE, ""), numba.__version__, disabled=bool(config.DISABLE_JIT))
JIT = MODE != "off"  # without the compiler every kernel runs as the Python function that it is
if _line:
    print(_line, file=sys.stderr)
    os.environ[VARIABLE] = "numba"  # helpers and workers of this process need not say it again
