"""Compiled kernels, in Python: the one decorator, and a compile cache that is never stale.

Numba keys its on-disk cache by the file a function stands in and does not see that a function it calls, in
another file, has changed. So the first import after any kernel source changed drops the whole cache of the
package; an installed package never changes and pays only for a few `stat` calls.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import config

F = TypeVar("F", bound=Callable[..., Any])

JIT: bool = not config.DISABLE_JIT
"""False under NUMBA_DISABLE_JIT=1, where every kernel runs as the plain Python function that it is."""

_PACKAGE = Path(__file__).parent
_WITHOUT_KERNELS = ("cli", "live", "looks", "report")
"""no kernel lies there or uses them, so that their sources may change without compiling all anew"""


def kernel(function: F) -> F:
    """Compile `function` on its first call, cached on disk, without the GIL; division by zero gives inf."""
    return cast(F, numba.njit(function, cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True))


def is_compiled(function: Any) -> bool:
    """Whether a kernel is in the on-disk cache, wherever Numba keeps it, so that a first run need not compile it."""
    if not JIT:
        return True
    name = f"{function.py_func.__module__.rpartition('.')[2]}.{function.py_func.__qualname__}"
    return any(Path(function._cache.cache_path).glob(f"{name}-*.nbi"))


def _drop_stale_cache() -> None:
    stamp = hashlib.sha256(importlib.metadata.version("numba").encode())
    for source in sorted(_PACKAGE.rglob("*.py")):
        if source.relative_to(_PACKAGE).parts[0] in _WITHOUT_KERNELS:
            continue
        info = source.stat()
        stamp.update(f"{source.relative_to(_PACKAGE)} {info.st_size} {info.st_mtime_ns}".encode())
    record = _PACKAGE / "__pycache__" / "kernels.stamp"
    try:
        if record.read_text() == stamp.hexdigest():
            return
    except FileNotFoundError:
        ...  # the first import ever
    try:
        for compiled in [*_PACKAGE.rglob("*.nbi"), *_PACKAGE.rglob("*.nbc")]:
            compiled.unlink(missing_ok=True)
        record.parent.mkdir(exist_ok=True)
        record.write_text(stamp.hexdigest())
    except PermissionError:
        ...  # installed read-only: Numba then keeps its cache elsewhere, by file and time


if JIT:
    _drop_stale_cache()
