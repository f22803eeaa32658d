"""A plan for people: `+` is added, `~` is changed, `-` is taken away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slotwise.live.changes.plan import ChangeItem

SIGNS = {"add": "+", "change": "~", "remove": "-"}
# Servers that are listed by name: a longer list would hide the rest of the plan.
MOST_NAMES = 5


def jobs(count: int, state: str) -> str:
    """Return a number of jobs in words, '' for none."""
    return f"{count} {state} {'job' if count == 1 else 'jobs'}" if count else ""


def jobs_do(count: int, state: str, verb: str) -> str:
    """Return what a number of jobs does.

    >>> jobs_do(1, "running", "keep"), jobs_do(2, "waiting", "take")
    ('1 running job keeps', '2 waiting jobs take')
    """
    return f"{jobs(count, state)} {verb}{'s' if count == 1 else ''}"


def names(found: Sequence[str]) -> str:
    """Return names in words.

    >>> names(["a-0", "a-1", "a-2"])
    'a-0, a-1, a-2'
    """
    shown = ", ".join(found[:MOST_NAMES])
    return shown if len(found) <= MOST_NAMES else f"{shown} and {len(found) - MOST_NAMES} more"


def value(of: Any) -> str:
    """Return a value of a definition in words.

    >>> value(["cpu", "memory"]), value({"gpu": ["a100", "h100"]})
    ('cpu, memory', 'gpu a100 or h100')
    """
    if isinstance(of, Mapping):
        named = {
            key: " or ".join(map(str, one)) if isinstance(one, list | tuple) else one for key, one in of.items()
        }
        return ", ".join(f"{key} {one}" for key, one in named.items()) or "none"
    return ", ".join(map(str, of)) if isinstance(of, list | tuple) else str(of)


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return what differs between two definitions."""
    keys = [key for key in dict.fromkeys([*before, *after]) if before.get(key) != after.get(key)]
    return "; ".join(
        f"{key} {value(before.get(key, 'default'))} -> {value(after.get(key, 'default'))}" for key in keys
    )


def of_change(change: ChangeItem) -> list[str]:
    """Return the lines of one change."""
    name = f"{change.what} {change.name}".rstrip()
    if change.before is not None and change.after is not None:
        differs = difference(change.before, change.after)
        name = f"{name}: {differs}" if differs else name
    elif (of := change.after or change.before) is not None:
        name = f"{name} ({'; '.join(f'{key} {value(one)}' for key, one in of.items())})"
    lines = [f"{SIGNS[change.action]} {name}"]
    return lines + [f"    {part}" for part in change.effect.split("; ")] if change.effect else lines


def of_plan(changes: Sequence[ChangeItem], counts: Mapping[str, int]) -> str:
    """Return all of a plan."""
    if not changes:
        return "nothing differs: the file is what runs"
    number = {action: sum(one.action == action for one in changes) for action in SIGNS}
    lines = [line for one in changes for line in of_change(one)]
    lines.append(
        f"{number['add']} to add, {number['change']} to change, {number['remove']} to take away; "
        f"running jobs that go on: {counts['running']}; waiting jobs that start at once: {counts['start']}"
    )
    return "\n".join(lines)
