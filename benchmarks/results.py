"""The committed figures, benchmarks/results.json, and whether new ones are worse.

A figure is worse when its speed has lost more than a fifth: v < 0.8 v_0 where more is better, v > v_0 / 0.8 where less is. Only
figures of the same machine (processor, number of cores, system) are compared. Figures that are no speed, such as the waste of a way
to make types, are not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

COMMITTED = Path(__file__).parent / "results.json"
KEPT = 0.8  # the share of its speed that a figure must keep
SAME_MACHINE = ("processor", "cores", "system")
MORE_IS_BETTER = ("events/s", "times", "of the speed with")
LESS_IS_BETTER = ("s", "ms", "us", "ns", "MB", "ratio")  # units, or how they begin

Row = dict[str, Any]
Results = dict[str, Any]


def speed_kept(row: Row, before: Row) -> float | None:
    """The speed as a share of what it was; None where the unit is none of speed."""
    unit, now, then = row["unit"], float(row["value"]), float(before["value"])
    if unit != before["unit"] or now <= 0 or then <= 0:
        return None
    if unit.startswith(MORE_IS_BETTER):
        return now / then
    return then / now if unit in LESS_IS_BETTER else None


def compare(now: Results, before: Results) -> tuple[list[str], str]:
    """A warning for each figure that lost too much, and a sentence on what was compared."""
    strange = [key for key in SAME_MACHINE if now["machine"].get(key) != before["machine"].get(key)]
    when = str(before["machine"].get("time", "an unknown time"))
    if strange:
        key = strange[0]
        return [], (
            f"cannot compare with {COMMITTED.name} of {when}: that was another machine"
            f" ({key} {before['machine'].get(key)}, here {now['machine'].get(key)})"
        )
    known = {row["name"]: row for row in before["rows"]}
    warnings, compared = [], 0
    for row in now["rows"]:
        kept = speed_kept(row, known[row["name"]]) if row["name"] in known else None
        if kept is None:
            continue
        compared += 1
        if kept < KEPT:
            then = known[row["name"]]
            warnings.append(
                f"{row['name']}: {row['value']:,.4g} {row['unit']}, was {then['value']:,.4g}: {1 - kept:.0%} slower"
            )
    lost = f"{len(warnings)} lost more than {1 - KEPT:.0%}" if warnings else f"none lost more than {1 - KEPT:.0%}"
    return warnings, f"{compared} figures compared with {COMMITTED.name} of {when}: {lost}"


def read(path: Path = COMMITTED) -> Results | None:
    """What was committed, if anything."""
    if not path.is_file():
        return None
    found: Results = json.loads(path.read_text())
    return found


def write(results: Results, path: Path) -> None:
    """As JSON, with figures that can be read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
