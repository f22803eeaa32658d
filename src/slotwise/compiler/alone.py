"""Kernels compiled by Numba alone: `njit`, `cfunc` and Numba's cache, by their documented interface only.

Numba's cache notices a change of the file that a function stands in, but not of what the function calls. So each kernel has a folder
that is named after what it was made from (`sources.stamp`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
from numba.core import config

from slotwise.compiler.sources import PACKAGE, stamp

OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}  # as in `whole`: division by zero gives inf


def dispatcher(function: Any) -> Any:
    """Return the function as a kernel."""
    with _cache_of(function):
        return numba.njit(function, cache=True, **OPTIONS)


def callback(function: Any, signature: Any) -> Any:
    """Return the function as one that compiled code calls by its address."""
    with _cache_of(function):
        return numba.cfunc(signature, cache=True, error_model=OPTIONS["error_model"])(function)


def is_compiled(function: Any) -> bool:
    """Return whether the cache holds the function."""
    name, line = function.__qualname__, function.__code__.co_firstlineno
    return any(folder_of(function).rglob(f"*.{name}-{line}.*nbi"))


def folder_of(function: Any) -> Path:
    """Return the folder of the function's machine code."""
    base = Path(config.CACHE_DIR) if config.CACHE_DIR else PACKAGE / "__pycache__" / "numba"
    return base / stamp(function.__module__)[:16]


@contextmanager
def _cache_of(function: Any) -> Iterator[None]:
    before = config.CACHE_DIR
    folder = folder_of(function)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        config.CACHE_DIR = str(folder)
    except OSError:
        ...  # installed where this user may not write: Numba finds another folder
    try:
        yield
    finally:
        config.CACHE_DIR = before
