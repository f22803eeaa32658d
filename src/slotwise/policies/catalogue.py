"""Every policy by name, and a user's own by its file."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from slotwise.core.contract.policy import Policy
from slotwise.errors import InputError

HERE = "slotwise.policies"
# Module below HERE, and class, of each policy.
MODULES = {
    "guarded": ("guarded", "Guarded"),
    "algorithm1": ("paper.algorithm1", "Algorithm1"),
    "m14": ("paper.m14", "M14"),
    "g16": ("paper.sampling", "G16"),
    "g16-retention": ("paper.sampling", "G16Retention"),
    "best-fit": ("fit.fitting", "BestFit"),
    "first-fit": ("fit.fitting", "FirstFit"),
    "worst-fit": ("fit.fitting", "WorstFit"),
    "random-fit": ("fit.fitting", "RandomFit"),
    "fifo": ("fit.fitting", "Fifo"),
    "kubernetes-least-allocated": ("fit.fitting", "KubernetesLeast"),
    "kubernetes-most-allocated": ("fit.fitting", "KubernetesMost"),
    "tetris": ("fit.fitting", "Tetris"),
    "myopic-maxweight": ("fit.fitting", "MyopicMaxWeight"),
    "vqs": ("rivals.virtual", "Vqs"),
    "vqs-bf": ("rivals.virtual", "VqsBf"),
    "easy-backfill": ("backfill.easy", "EasyBackfill"),
    "quickswap": ("rivals.quickswap", "Quickswap"),
    "nmsr": ("rivals.nmsr", "Nmsr"),
}


class Catalogue(Mapping[str, type[Policy]]):
    """The policies by name. One is imported when it is asked for: most runs need one of them, and hundreds of kernels take a moment."""

    def __getitem__(self, name: str) -> type[Policy]:
        module, found = MODULES[name]
        policy: type[Policy] = getattr(importlib.import_module(f"{HERE}.{module}"), found)
        return policy

    def __contains__(self, name: object) -> bool:
        return name in MODULES

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


POLICIES = Catalogue()


def is_own(name: str) -> bool:
    """Return whether a name is a user's own policy, "file.py:ClassName": making it executes the file."""
    return ":" in name and name.partition(":")[0].endswith(".py")


def make_policy(name: str, **options: Any) -> Policy:
    """Return a policy by its name, or a user's own policy as "file.py:ClassName"."""
    if is_own(name):
        own = _from_file(name)(**options)
        own.origin = name
        return own
    if name not in POLICIES:
        if name.endswith(".py"):
            raise InputError("names no class", where=f"policy {name}", remedy=f"write {name}:ClassName")
        near = difflib.get_close_matches(name, POLICIES, 1)
        raise InputError(
            f"no policy is called {name!r}",
            where="policy.name",
            remedy=f"did you mean {near[0]}?" if near else f"use one of: {', '.join(POLICIES)}",
        )
    return POLICIES[name](**options)


def _from_file(name: str) -> type[Policy]:
    path, _, attribute = name.partition(":")
    if not Path(path).is_file():
        raise InputError("no such file", where=f"policy {name}", remedy="give the path of a Python file")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(
            f"cannot be loaded: {type(error).__name__}: {error}",
            where=f"policy {name}",
            remedy=f"make it run with `python {path}` first",
        ) from error
    policy = getattr(module, attribute, None)
    if not (inspect.isclass(policy) and issubclass(policy, Policy)):
        raise InputError(
            f"{attribute!r} is not a policy in it",
            where=f"policy {name}",
            remedy="name a class that derives from slotwise.Policy",
        )
    return policy
