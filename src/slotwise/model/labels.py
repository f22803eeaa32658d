"""Labels of server classes, and what job types require of them.

A class matches a type when it has every label that the type names, with one of the values that the type allows. A class that
does not match holds no job of the type; everything else (what fits, the capacity region, plans, policies) follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

Word = Annotated[str, Field(min_length=1)]
Labels = dict[Word, Word]


def _as_list(value: Any) -> Any:
    """Let one value alone stand for a list of one."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple):
        raise ValueError('is neither a text nor a list of texts; write it like "a" or ["a", "b"]')
    return value


Requirements = dict[Word, Annotated[tuple[Word, ...], BeforeValidator(_as_list), Field(min_length=1)]]


def unmet(requires: Mapping[str, Sequence[str]], labels: Mapping[str, str]) -> list[str]:
    """Return the labels that the class lacks, or has with a value that is not allowed."""
    return [key for key, values in requires.items() if labels.get(key) not in values]


def matches(requires: Mapping[str, Sequence[str]], labels: Mapping[str, str]) -> bool:
    """Return whether a class with these labels may hold a type with these requirements."""
    return not unmet(requires, labels)


def in_words(requires: Mapping[str, Sequence[str]]) -> str:
    """Write labels as "gpu = a100 or h100, zone = b"."""
    return ", ".join(f"{key} = {' or '.join(values)}" for key, values in requires.items())
