"""Servers whose capacity or labels change while they hold jobs: which classes they are of then.

A class is a capacity and labels. If all servers of a class get the same new labels, the class itself gets them and no server moves. Otherwise a
server moves to a class that is alike, or to a new one. A class stays as it is, even without servers, as long as a type fits no other class.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from slotwise.live.engines.protocol import ServerUp
from slotwise.model import JobType, ServerClass
from slotwise.model.labels import matches
from slotwise.scheduling.situation import Situation

Kind = tuple[tuple[Decimal, ...], tuple[tuple[str, str], ...]]
FOUND = re.compile(r"class-\d+")  # names of classes that were made for what engines told


def kind_of(capacity: Sequence[Decimal], labels: Mapping[str, str]) -> Kind:
    """Return what makes servers be of one class."""
    return tuple(plain(one) for one in capacity), tuple(sorted(labels.items()))


def plain(value: Decimal) -> Decimal:
    """Return a number as people write it: 110, neither 110.0 nor 1.1E+2.

    >>> plain(Decimal("110.0"))
    Decimal('110')
    """
    return Decimal(f"{value.normalize():f}")


def wanted_kind(up: ServerUp, resources: Sequence[str]) -> Kind:
    """Return the kind of a server that an engine tells."""
    return kind_of([Decimal(repr(float(up.capacity.get(name, 0)))) for name in resources], up.labels)


def fits(job_type: JobType, classes: Sequence[ServerClass]) -> bool:
    """Return whether a server of some class can hold a job of a type."""
    return any(
        matches(job_type.requires, one.labels)
        and all(amount <= has for amount, has in zip(job_type.demand, one.capacity, strict=True))
        for one in classes
    )


def without_empty(
    classes: Sequence[ServerClass], types: Sequence[JobType], used: Collection[str]
) -> list[ServerClass]:
    """Return the classes without those that were found by an engine and are not used, except the newest that some type needs.

    Capacities of nodes change with what other pods hold. Without this, each capacity that there ever was would stay, and slow each decision.
    """
    if any(one.feasible is not None for one in classes):
        return list(classes)
    kept = {one.name for one in classes if one.name in used or not FOUND.fullmatch(one.name)}
    for job_type in types:
        if not fits(job_type, [one for one in classes if one.name in kept]):
            kept |= {next((one.name for one in reversed(classes) if fits(job_type, [one])), "")}
    return [one for one in classes if one.name in kept] or list(classes)


def reclassify(
    classes: Sequence[ServerClass],
    resources: Sequence[str],
    now: Mapping[str, str],
    ups: Sequence[ServerUp],
    types: Sequence[JobType] = (),
) -> tuple[list[ServerClass], dict[str, str]]:
    """Return the classes after a change, and the new class of each server that moves. `now` is the class of every server."""
    kinds = {one.name: kind_of(one.capacity, one.labels) for one in classes}
    wanted = {name: kinds[of] for name, of in now.items()}
    wanted |= {up.name: wanted_kind(up, resources) for up in ups if not up.server_class}
    members: dict[str, Counter[Kind]] = {}
    for name, of in now.items():
        members.setdefault(of, Counter())[wanted[name]] += 1
    found = list(classes)
    for at, one in enumerate(classes):
        counts = members.get(one.name, Counter())
        alike = [kind for kind, _ in counts.most_common() if kind[0] == kinds[one.name][0]]
        if alike and not counts[kinds[one.name]] and alike[0] not in kinds.values():
            relabelled = one.model_copy(update={"labels": dict(alike[0][1])})
            if all(fits(job_type, [*found[:at], relabelled, *found[at + 1 :]]) for job_type in types):
                found[at], kinds[one.name] = relabelled, alike[0]
    by_kind = {kind: name for name, kind in reversed(kinds.items())}
    numbers = iter(range(1, len(classes) + len(ups) + 1))
    for up in ups:
        kind = wanted.get(up.name)
        if kind is not None and kind not in by_kind:
            name = next(f"class-{n}" for n in numbers if f"class-{n}" not in kinds)
            found.append(
                ServerClass.model_validate(
                    {"name": name, "count": 0, "capacity": [str(x) for x in kind[0]], "labels": dict(kind[1])}
                )
            )
            by_kind[kind] = name
            kinds[name] = kind
    moves = {name: by_kind[wanted[name]] for name, of in now.items() if kinds[of] != wanted[name]}
    return found, moves


def moved(situation: Situation, classes: Sequence[ServerClass], servers: Mapping[str, str]) -> Situation:
    """Return the situation in which these servers, which are drained, are of other classes, without configurations."""
    place = {one.name: at for at, one in enumerate(classes)}
    table, policy = situation.servers, situation.policy
    names = [
        servers.get(name, situation.classes[of].name)
        for name, of in zip(table.name, table.server_class, strict=True)
    ]
    clear = [name in servers for name in table.name]
    return replace(
        situation,
        classes=list(classes),
        servers=replace(table, server_class=[place[name] for name in names]),
        policy=replace(
            policy,
            mode=[0 if one else mode for one, mode in zip(clear, policy.mode, strict=True)],
            slots=[[0] * len(row) if one else row for one, row in zip(clear, policy.slots, strict=True)],
        ),
    )
