"""Every policy by name, and a user's own by its file."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
from pathlib import Path
from typing import Any

from slotwise.errors import InputError
from slotwise.scheduling.policies.algorithm1 import Algorithm1
from slotwise.scheduling.policies.backfill import EasyBackfill
from slotwise.scheduling.policies.fitting import (
    BestFit,
    Fifo,
    FirstFit,
    KubernetesLeast,
    KubernetesMost,
    MyopicMaxWeight,
    RandomFit,
    Tetris,
    WorstFit,
)
from slotwise.scheduling.policies.guarded import Guarded
from slotwise.scheduling.policies.m14 import M14
from slotwise.scheduling.policies.nmsr import Nmsr
from slotwise.scheduling.policies.quickswap import Quickswap
from slotwise.scheduling.policies.sampling import G16, G16Retention
from slotwise.scheduling.policies.virtual import Vqs, VqsBf
from slotwise.scheduling.policy import Policy

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        Guarded,
        Algorithm1,
        M14,
        G16,
        G16Retention,
        BestFit,
        FirstFit,
        WorstFit,
        RandomFit,
        Fifo,
        KubernetesLeast,
        KubernetesMost,
        Tetris,
        MyopicMaxWeight,
        Vqs,
        VqsBf,
        EasyBackfill,
        Quickswap,
        Nmsr,
    )
}


def make_policy(name: str, **options: Any) -> Policy:
    """A policy by name, or a user's own as "file.py:ClassName"."""
    if ":" in name and name.partition(":")[0].endswith(".py"):
        own = _from_file(name)(**options)
        own.origin = name
        return own
    if name not in POLICIES:
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
