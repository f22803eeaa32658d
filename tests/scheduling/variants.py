"""Every policy, with the options that change how it works: what the property tests go through."""

from __future__ import annotations

from typing import Any

from slotwise.core.contract.policy import Policy
from slotwise.scheduling import POLICIES

VARIANTS: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in POLICIES]
VARIANTS += [
    ("algorithm1", {"beta": 0.9}),
    ("algorithm1", {"beta": 0.9, "reduce_stalls": False}),
    ("algorithm1", {"beta": 0.9, "stall_cap": 0.5}),
    ("algorithm1", {"beta": 0.9, "faithful": True}),
    ("algorithm1", {"p": 0.9, "spread": "cap", "stall_cap": 0.5}),
    ("algorithm1", {"p": 0.9, "spread": "off", "ties": "first"}),
    ("algorithm1", {"p": 0.9, "spread": "off", "faithful": True, "reduce_stalls": False}),
    *[
        ("algorithm1", {"beta": 0.9, "solver": solver})
        for solver in ("hull", "enumerate", "dp", "greedy", "greedy-fill", "approximate", "search")
    ],
    ("m14", {"weights": "log"}),
    ("m14", {"queues": "own"}),
    ("m14", {"queues": "own", "weights": "log", "ties": "first", "solver": "dp"}),
    ("g16", {"alpha": 5.0}),
    *[
        (name, {"pack_by": "type"})
        for name in POLICIES
        if name not in ("algorithm1", "m14", "g16", "g16-retention")
    ],
    ("guarded", {"durations": "exact"}),
    ("guarded", {"durations": "exact", "pack_by": "type"}),
    ("guarded", {"margin": 0.2}),
    ("quickswap", {"threshold": 2}),
    ("nmsr", {"fill": False, "cycle": 3}),
    ("myopic-maxweight", {"solver": "dp"}),
    ("myopic-maxweight", {"solver": "approximate"}),
]


def looks_at_all(policy: Policy) -> bool:
    """Whether a job may overtake an older one of its own type: those that look at all who wait, by what each really asks for or how long it will run."""
    return bool({"line", "unlike"} & policy.keeps) and (policy.actual or policy.needs_durations)


def label(variant: tuple[str, dict[str, Any]]) -> str:
    name, options = variant
    return " ".join([name, *(f"{key}={value}" for key, value in options.items())])
