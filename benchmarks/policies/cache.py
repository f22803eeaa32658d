"""Results that are known already: one small file for each scenario and policy, under build/policies.

A result is kept under a name made of the scenario, its length, the policy with its options, and the code that matters.
That is the scenarios' own code, the simulator's, the scheduler's core, and of the policies only the modules that this
policy is made of. So a change to one policy makes only its own results void.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "slotwise"
POLICIES = SOURCE / "policies"
KEPT = ROOT / "build" / "policies"
MATTERS = ("compiler", "core", "model", "packing", "scheduling", "simulation", "workloads")
SCENARIOS = ("suite.py", "families.py", "reality.py", "traces.py", "running.py")
OWN = re.compile(r"slotwise\.policies\.(\w+)")


class Cache:
    """Reads and writes them; where it is off it does neither."""

    def __init__(self, on: bool = True) -> None:
        self.on = on

    def _place(self, *what: Any) -> Path:
        key = hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:24]
        return KEPT / f"{key}.json"

    def get(self, policy: str, *what: Any) -> Any:
        """What was kept, or None."""
        place = self._place(code_of(policy), policy, *what)
        return json.loads(place.read_text()) if self.on and place.exists() else None

    def put(self, found: Any, policy: str, *what: Any) -> None:
        """Keep it."""
        if self.on:
            KEPT.mkdir(parents=True, exist_ok=True)
            self._place(code_of(policy), policy, *what).write_text(json.dumps(found))


@cache
def code_of(policy: str) -> str:
    """A hash of the code that the results of a policy come from; "" for what all share."""
    files = [Path(__file__).parent / name for name in SCENARIOS]
    files += [path for part in MATTERS for path in (SOURCE / part).rglob("*.py")]
    if policy:
        files += modules_of(policy)
    stamp = hashlib.sha256()
    for path in sorted(files):
        stamp.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return stamp.hexdigest()


def modules_of(policy: str) -> list[Path]:
    """The modules that a policy is made of, found by their imports; all of them for a policy of the user's own."""
    named = re.compile(rf'name = "{re.escape(policy)}"')
    todo = [path for path in POLICIES.rglob("*.py") if named.search(path.read_text())]
    if not todo:
        return list(POLICIES.rglob("*.py"))
    found: set[Path] = set()
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found.add(path)
        if path.parent != POLICIES:
            todo += path.parent.glob("*.py")
        for module in OWN.findall(path.read_text()):
            whole, package = POLICIES / f"{module}.py", POLICIES / module
            todo += [whole] if whole.exists() else list(package.glob("*.py"))
    return sorted(found)
