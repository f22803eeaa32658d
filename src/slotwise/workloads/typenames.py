"""Names of types by their size: 4cpu-16GB.

Each resource that a type asks for is a part: the amount, then the unit where that says what it is (a number of bytes), else the name of the
resource. Amounts have three figures, or as many more as it takes to tell the types apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

BYTES = re.compile(r"[kKMGTPE]?i?B")
FIGURES = 3  # of the amounts in a name, unless two types would have one name
MOST_FIGURES = 17  # of a float


def names_by_size(
    demands: Sequence[Sequence[Decimal | float]], resources: Sequence[str], units: Mapping[str, str]
) -> list[str]:
    """Return a name for each type, all different. The same sizes always have the same names."""
    for figures in range(FIGURES, MOST_FIGURES + 1):
        names = [_name(row, resources, units, figures) for row in demands]
        if len(set(names)) == len(names):
            return names
    return [
        f"{name}-{names[:j].count(name) + 1}" if names.count(name) > 1 else name for j, name in enumerate(names)
    ]


def _name(row: Sequence[Decimal | float], resources: Sequence[str], units: Mapping[str, str], figures: int) -> str:
    byte_sized = [name for name in resources if BYTES.fullmatch(units.get(name, ""))]
    parts = []
    for size, name in zip(row, resources, strict=True):
        if size:
            # two resources in GB would look the same: then both go by their names
            word = units[name] if byte_sized == [name] else name
            parts.append(f"{_amount(float(size), figures)}{word}")
    return "-".join(parts) or "nothing"


def _amount(size: float, figures: int) -> str:
    """Write whole numbers as they are, other numbers with so many figures, and no exponent."""
    if size == round(size) and size < 1e15:
        return str(round(size))
    return format(Decimal(f"{size:.{figures}g}").normalize(), "f")
