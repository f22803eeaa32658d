"""Which nodes a pod may run on, as labels and requirements of the scheduler.

Node selectors, required node affinity and tolerations become constraints. A constraint gives each node a label with a value or none, and
the pod requires certain values of that label. `LabelIn` uses the node's own label. `NodeCondition` is for all other conditions (other operators,
alternatives, tolerations): its label is the condition in words, and its value is "yes" on nodes that meet the condition.
Only labels that some pod refers to become labels of servers: nodes that differ in nothing else are of one class.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any

YES = "yes"
EMPTY = "(empty)"  # stands for the empty value, which labels of the scheduler cannot have
TAINTS = "node taints"  # with a space: no label of a node can be called so
NONE = "none"
LONGEST = 160  # characters of a condition in words; a longer one is cut, and a hash tells it apart
HARD = ("NoSchedule", "NoExecute")
STATES = "node.kubernetes.io/"  # prefix of taints that tell the state of a node; such a node is drained
AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"

Taint = tuple[str, str, str]  # key, value, effect


@dataclass(frozen=True)
class LabelIn:
    """The node's label has one of these values."""

    key: str
    values: tuple[str, ...]

    def value(self, node: NodeFacts) -> str | None:
        """Return the value of the node's label if it is one of these; another value would only make another class of servers."""
        value = node.labels.get(self.key)
        shown = None if value is None else value or EMPTY
        return shown if shown in self.values else None


@dataclass(frozen=True)
class NodeCondition:
    """A condition on the node that is not a list of allowed values of one label."""

    key: str
    condition: str  # JSON: {"terms": [...]} or {"tolerations": [...]}
    values: tuple[str, ...] = (YES,)

    def value(self, node: NodeFacts) -> str | None:
        """Return "yes" if the node meets the condition."""
        return YES if meets(self.condition, node) else None


Constraint = LabelIn | NodeCondition


@dataclass(frozen=True)
class NodeFacts:
    """What constraints look at."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]  # with a hard effect, sorted; states of the node left out


def in_words(text: str) -> str:
    """Return a condition in words, short enough for a label."""
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 12]}... {sha256(text.encode()).hexdigest()[:8]}"


# -- from pods to constraints ------------------------------------------------------------------------------------------


def constraints(spec: Mapping[str, Any]) -> tuple[Constraint, ...]:
    """Return what a pod requires of its node, by its spec."""
    allowed: dict[str, tuple[str, ...]] = {}
    found: list[Constraint] = []
    for key, value in sorted((spec.get("nodeSelector") or {}).items()):
        allowed[key] = (value,)
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(AFFINITY)
    if required is not None:
        terms = required.get("nodeSelectorTerms") or []
        rest = terms
        if len(terms) == 1 and not terms[0].get("matchFields"):
            rest = []
            for expression in terms[0].get("matchExpressions") or []:
                if expression["operator"] == "In":
                    values = tuple(sorted(set(expression.get("values") or ())))
                    both = allowed.get(expression["key"])
                    allowed[expression["key"]] = (
                        values if both is None else tuple(one for one in both if one in values)
                    )
                else:
                    found.append(holds({"terms": [{"matchExpressions": [expression]}]}))
            if not terms[0].get("matchExpressions"):
                rest = terms  # an empty term matches no node
        if rest or not terms:
            found.append(holds({"terms": rest}))
    for key, values in allowed.items():
        if values:
            found.append(LabelIn(key, tuple(sorted(value or EMPTY for value in values))))
        else:  # two conditions that exclude each other
            found.append(holds({"terms": []}))
    tolerations = relevant_tolerations(spec.get("tolerations") or [])
    if tolerations:
        found.append(holds({"tolerations": tolerations}))
    else:
        found.append(LabelIn(TAINTS, (NONE,)))
    return tuple(sorted(set(found), key=lambda one: one.key))


def holds(condition: Mapping[str, Any]) -> NodeCondition:
    """Return the constraint for a condition."""
    return NodeCondition(in_words(words_of(condition)), json.dumps(condition, sort_keys=True))


def requires(found: Sequence[Constraint]) -> dict[str, tuple[str, ...]]:
    """Return constraints as requirements of a job."""
    return {one.key: one.values for one in found}


def relevant_tolerations(tolerations: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the tolerations that matter for placing, in a fixed order.

    Tolerations of node states do not matter: such nodes are drained. Neither do tolerations of soft effects.
    """
    kept: set[tuple[str, str, str, str]] = set()
    for one in tolerations:
        key, effect = one.get("key") or "", one.get("effect") or ""
        if key.startswith(STATES) or effect not in ("", *HARD):
            continue
        kept.add((key, one.get("operator") or "Equal", one.get("value") or "", effect))
    return [dict(zip(("key", "operator", "value", "effect"), one, strict=True)) for one in sorted(kept)]


def words_of(condition: Mapping[str, Any]) -> str:
    """Return a condition in words."""
    if "tolerations" in condition:
        return "tolerates " + ", ".join(toleration_words(one) for one in condition["tolerations"])
    terms = condition["terms"]
    return " or ".join(term_words(one) for one in terms) if terms else "no node"


def toleration_words(one: Mapping[str, str]) -> str:
    """Return a toleration in words."""
    text = one["key"] or "everything"
    if one["operator"] == "Equal":
        text += f"={one['value']}"
    elif one["operator"] != "Exists":
        text += f" {one['operator']} {one['value']}"
    return text + (f":{one['effect']}" if one["effect"] else "")


def term_words(term: Mapping[str, Any]) -> str:
    """Return a node selector term in words."""
    parts = [
        expression_words(one) for one in [*(term.get("matchExpressions") or []), *(term.get("matchFields") or [])]
    ]
    return " and ".join(parts) if parts else "no node"


def expression_words(one: Mapping[str, Any]) -> str:
    """Return an expression in words."""
    values = ", ".join(sorted(one.get("values") or ()))
    return {
        "In": f"{one['key']} in ({values})",
        "NotIn": f"{one['key']} not in ({values})",
        "Exists": f"has {one['key']}",
        "DoesNotExist": f"has no {one['key']}",
        "Gt": f"{one['key']} > {values}",
        "Lt": f"{one['key']} < {values}",
    }.get(one["operator"], f"{one['key']} {one['operator']} ({values})")


# -- from nodes to labels ----------------------------------------------------------------------------------------------


def labels_of(node: NodeFacts, referred: Iterable[Constraint]) -> dict[str, str]:
    """Return the labels of a node as a server: one for each constraint it has a value for, and its taints."""
    taints = ", ".join(taint_words(one) for one in node.taints)
    found = {TAINTS: taints or NONE}
    for one in referred:
        value = one.value(node)
        if value is not None and one.key != TAINTS:
            found[one.key] = value
    return found


def taint_words(taint: Taint) -> str:
    """Return a taint as kubectl writes it."""
    key, value, effect = taint
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


def unmet(found: Iterable[Constraint], node: NodeFacts) -> list[str]:
    """Return the constraints that a node does not meet, in words."""
    lacking = []
    for one in found:
        if one.key == TAINTS and isinstance(one, LabelIn):
            if node.taints:
                lacking.append(f"taint {', '.join(taint_words(taint) for taint in node.taints)} is not tolerated")
        elif one.value(node) not in one.values:
            lacking.append(f"{one.key} in ({', '.join(one.values)})" if isinstance(one, LabelIn) else one.key)
    return lacking


@lru_cache(maxsize=4096)
def parsed(condition: str) -> dict[str, Any]:
    """Return a condition from its JSON."""
    loaded: dict[str, Any] = json.loads(condition)
    return loaded


def meets(condition: str, node: NodeFacts) -> bool:
    """Return whether a node meets a condition."""
    found = parsed(condition)
    if "tolerations" in found:
        return all(any(tolerates(one, taint) for one in found["tolerations"]) for taint in node.taints)
    return any(term_matches(term, node) for term in found["terms"])


def tolerates(toleration: Mapping[str, str], taint: Taint) -> bool:
    """Return whether a toleration covers a taint."""
    key, value, effect = taint
    if toleration["effect"] not in ("", effect):
        return False
    if toleration["key"] not in ("", key):
        return False
    operator = toleration["operator"]
    if operator == "Exists":
        return True
    if operator in ("Gt", "Lt"):
        return compares(operator, value, toleration["value"])
    return operator == "Equal" and toleration["key"] == key and toleration["value"] == value


def term_matches(term: Mapping[str, Any], node: NodeFacts) -> bool:
    """Return whether all expressions of a term hold. A term without expressions matches no node."""
    expressions = term.get("matchExpressions") or []
    names = term.get("matchFields") or []
    if not expressions and not names:
        return False
    return all(matches(one, node.labels) for one in expressions) and all(
        matches(one, {"metadata.name": node.name}) for one in names
    )


def matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether an expression holds for labels. An operator that is not known never holds."""
    operator, value = expression["operator"], labels.get(expression["key"])
    values = expression.get("values") or []
    match operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return value is not None and len(values) == 1 and compares(operator, value, values[0])
    return False


def compares(operator: str, value: str, bound: str) -> bool:
    """Return whether a whole number is greater or less than another; other text never is."""
    try:
        left, right = int(value), int(bound)
    except ValueError:
        return False
    return left > right if operator == "Gt" else left < right


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector of pods selects these labels. None selects nothing, an empty selector everything."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(matches(one, labels) for one in selector.get("matchExpressions") or [])
