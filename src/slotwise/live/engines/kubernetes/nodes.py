"""Nodes as servers: what they have, whether they take pods, and why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from slotwise.live.engines.kubernetes.quantities import amounts, quantities
from slotwise.live.engines.kubernetes.selectors import HARD, STATES, NodeFacts, taint_words


@dataclass(frozen=True)
class Node:
    """What is kept of a node."""

    name: str
    uid: str
    allocatable: Mapping[str, Decimal]
    facts: NodeFacts
    closed: str  # why it takes no pods; "" if it does


def read_node(node: Mapping[str, Any]) -> Node:
    """Return what is kept of a node."""
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    hard = [
        (one["key"], one.get("value") or "", one["effect"])
        for one in spec.get("taints") or ()
        if one.get("effect") in HARD
    ]
    taints = tuple(sorted(one for one in hard if not one[0].startswith(STATES)))
    return Node(
        name=meta["name"],
        uid=meta.get("uid") or "",
        allocatable=amounts(quantities(status.get("allocatable")), up=False),
        facts=NodeFacts(meta["name"], meta.get("labels") or {}, taints),
        closed=why_closed(meta, spec, status, [one for one in hard if one[0].startswith(STATES)]),
    )


def why_closed(
    meta: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any], states: list[tuple[str, str, str]]
) -> str:
    """Return why a node takes no pods: cordoned, being deleted, not ready, or tainted by its state."""
    if spec.get("unschedulable"):
        return "cordoned"
    if meta.get("deletionTimestamp"):
        return "being deleted"
    for one in status.get("conditions") or ():
        if one.get("type") == "Ready" and one.get("status") != "True":
            return f"not ready: {one.get('reason') or one.get('status')}"
    if states:
        return f"taint {', '.join(taint_words(one) for one in sorted(states))}"
    if not status.get("allocatable"):
        return "has not reported its resources"
    return ""
