"""What a long benchmark has measured so far, kept as it comes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Rows:
    """Lines of JSON in a file, by name; what is there already is not measured again."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.rows: dict[str, dict[str, Any]] = {row["name"]: row for row in map(json.loads, lines)}

    def add(self, name: str, row: dict[str, Any]) -> None:
        """Keep it."""
        self.rows[name] = {"name": name, **row}
        with self.path.open("a") as file:
            file.write(json.dumps(self.rows[name]) + "\n")
