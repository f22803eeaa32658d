"""What a job needs, as people write it: `cpu=2,memory=4G`. Imports nothing but the standard library: every command line pays for it."""

from __future__ import annotations

import re

from slotwise.errors import InputError

# Megabytes, the unit of memory: K, M, G and T are powers of 1,000, Ki, Mi, Gi and Ti powers of 1,024.
UNITS = {letter: 1000.0 ** (power - 2) for power, letter in enumerate("KMGT", 1)} | {
    f"{letter}I": 1024.0**power / 1000.0**2 for power, letter in enumerate("KMGT", 1)
}


def parse_needs(text: str) -> dict[str, float]:
    """Read `cpu=2,memory=4G`; units are of memory, which is counted in megabytes.

    >>> parse_needs("cpu=2,memory=4G")
    {'cpu': 2.0, 'memory': 4000.0}
    >>> parse_needs("memory=1Gi")
    {'memory': 1073.741824}
    """
    needs: dict[str, float] = {}
    for part in text.split(","):
        name, _, amount = (piece.strip() for piece in part.partition("="))
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(?:([KMGT]I?)B?)?", amount, re.IGNORECASE | re.ASCII)
        if not name or match is None:
            raise InputError(f"{part!r} is no need", where="--needs", remedy="write it like cpu=2,memory=4G")
        if name in needs:
            raise InputError(f"names {name} twice", where="--needs", remedy="name each resource once")
        if match[2] and name == "cpu":
            raise InputError(
                f"{part!r}: CPUs have no unit", where="--needs", remedy="write it like cpu=2 or cpu=0.5"
            )
        needs[name] = float(match[1]) * UNITS.get((match[2] or "M").upper(), 1.0)
    return needs
