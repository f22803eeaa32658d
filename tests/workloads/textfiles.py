"""Small text files for the tests of formats."""

from __future__ import annotations

import gzip
from pathlib import Path


def write(path: Path, lines: list[str]) -> Path:
    """Write the lines, compressed where the name says so."""
    text = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path
