"""Dependencies as users write them: `ok:7,8`, `failed:ARRAY`, `each-ok:ARRAY`. Standard library only.

A job waits until the other job, or every job of the other array, has ended. `ok`: and is done. `failed`: and is not done, or one job of the
array is not. `any`: however it ended. With `each-`, a job of an array waits only for the job of the other array with the same index.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slotwise.errors import InputError

KINDS = ("ok", "any", "failed")
EACH = "each-"
ONE = "one-"  # in the table of dependencies: only the job of this number, although an array has the number, too
WRITTEN = (*KINDS, *(EACH + kind for kind in KINDS))
ELEMENT = re.compile(r"(\d{1,15})_(\d{1,9})")  # a job of an array by its index, as in 7_1
NUMBER = re.compile(r"\d{1,15}")
SHOWN = 6  # jobs of a cycle that a message names


def after_of(texts: Iterable[str]) -> dict[str, list[Any]]:
    """Read what `--after` says.

    >>> after_of(["ok:7,8_3,any:5", "each-ok:9"])
    {'ok': [7, '8_3'], 'any': [5], 'each-ok': [9]}
    """
    found: dict[str, list[Any]] = {}
    for text in texts:
        kind = ""
        for word in text.split(","):
            said, colon, one = word.rpartition(":")
            kind = said if colon else kind
            if kind not in WRITTEN:
                wrong = f"names the unknown kind {kind!r}" if kind else f"says {word!r} without a kind"
                raise ValueError(f"{wrong}; write it like ok:7, any:7,8 or each-ok:7 (kinds: {', '.join(WRITTEN)})")
            if NUMBER.fullmatch(one):
                found.setdefault(kind, []).append(int(one))
            elif ELEMENT.fullmatch(one):
                found.setdefault(kind, []).append(one)
            else:
                raise ValueError(f"names {one!r}, which is no number of a job; write it like ok:7 or ok:7_1")
    return found


def element(text: str) -> tuple[int, int] | None:
    """Return the array and the index that a text such as 7_1 means; None: it is none.

    >>> element("7_1"), element("train")
    ((7, 1), None)
    """
    match = ELEMENT.fullmatch(text)
    return None if match is None else (int(match[1]), int(match[2]))


def names_in(after: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the names of jobs of the same file or request."""
    return [one for ids in after.values() for one in ids if isinstance(one, str) and element(one) is None]


def in_order(jobs: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the places of jobs in an order in which each comes after the jobs that it names. Refuse names that no job has, or two, and cycles.

    >>> in_order([{"name": "b", "after": {"ok": ["a"]}}, {"name": "a"}])
    [1, 0]
    """
    asked = [names_in(job.get("after") or {}) for job in jobs]
    needed = {name for names in asked for name in names}
    place: dict[str, int] = {}
    for at, job in enumerate(jobs):
        name = job.get("name")
        if name in needed:
            if name in place:
                raise InputError(
                    f"two jobs are called {name!r}", where="name", remedy="jobs wait for it: name it once"
                )
            place[name] = at
    left = [len(names) for names in asked]
    followers: dict[int, list[int]] = {}
    for at, names in enumerate(asked):
        for name in names:
            if name not in place:
                raise InputError(
                    f"no job is called {name!r}",
                    where=f"{where(jobs, at)}: after",
                    remedy="name a job of the same file or request, or give the number of a job",
                )
            followers.setdefault(place[name], []).append(at)
    order = [at for at in range(len(jobs)) if not left[at]]
    for at in order:  # grows
        for follower in followers.get(at, ()):
            left[follower] -= 1
            if not left[follower]:
                order.append(follower)
    if len(order) < len(jobs):
        raise InputError(
            f"{shown_cycle(jobs, asked, place, set(order))}", where="after", remedy="take one of them out"
        )
    return order


def shown_cycle(
    jobs: Sequence[Mapping[str, Any]], asked: Sequence[Sequence[str]], place: Mapping[str, int], free: set[int]
) -> str:
    """Return the words for a cycle among the jobs that are not free of it."""
    at = next(at for at in range(len(jobs)) if at not in free)
    path: list[int] = []
    while at not in path:
        path.append(at)
        at = next(place[name] for name in asked[at] if place[name] not in free)
    cycle = [str(jobs[one]["name"]) for one in path[path.index(at) :]]
    more = f"... ({len(cycle)} jobs)" if len(cycle) > SHOWN else ""
    return "jobs wait for each other: " + " after ".join([*cycle[:SHOWN], more or cycle[0]])


def where(jobs: Sequence[Mapping[str, Any]], at: int) -> str:
    """Return how a message names a job: by its name, or its place."""
    name = jobs[at].get("name")
    return f"job {name!r}" if name else f"job [{at}]"
