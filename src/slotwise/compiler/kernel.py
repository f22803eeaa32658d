"""Compiled kernels, in Python: the one decorator, and a compile cache that is never stale.

What is compiled stays on disk and is void as soon as anything in the package has changed: see `stamp`. How it is
compiled says `whole`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import llvmlite
import numba
from numba.core import config

F = TypeVar("F", bound=Callable[..., Any])

JIT: bool = not config.DISABLE_JIT
"""False under NUMBA_DISABLE_JIT=1, where every kernel runs as the plain Python function that it is."""

_PACKAGE = Path(__file__).parents[1]
_WITHOUT_KERNELS = ("cli", "foresee", "live", "display", "report")
"""no kernel lies there or uses them, so that their sources may change without compiling all anew"""


def kernel(function: F) -> F:
    """Compile `function` when Python first calls it, cached on disk, without the GIL; division by zero gives inf."""
    if not JIT:
        return function
    from slotwise.compiler.whole import dispatcher

    return cast(F, dispatcher(function, stamp))


@cache
def plain(function: F) -> F:
    """A kernel, with the kernels that it calls, as the Python that it is: for so little work that compiling, or loading, takes longer."""
    if not JIT:
        return function
    original: Any = function.py_func  # type: ignore[attr-defined]
    called = {name: original.__globals__.get(name) for name in original.__code__.co_names}
    others = {name: plain(one) for name, one in called.items() if hasattr(one, "py_func")}
    made = FunctionType(original.__code__, original.__globals__ | others, original.__name__, original.__defaults__)
    return cast(F, made)


def hook_value(function: Any, signature: Any) -> Any:
    """The function as one that compiled code calls by its address: compiled now, or loaded from the cache."""
    from slotwise.compiler.whole import callback

    return callback(function, signature, stamp)


def is_compiled(function: Any) -> bool:
    """Whether a kernel, or a function that is to be a hook, is in the cache on disk: then a first run need not compile it."""
    if not JIT:
        return True
    from slotwise.compiler.whole import StampedCache

    return StampedCache(getattr(function, "py_func", function), stamp()).holds()


def cache_path() -> Path:
    """The folder, or one of the folders, in which compiled kernels are kept."""
    from slotwise.compiler.whole import StampedCache

    return Path(StampedCache(kernel, stamp()).cache_path)


@cache
def stamp() -> str:
    """What the compiled kernels were made from: the sources, and the compiler.

    Reading all sources takes some milliseconds, so the answer is kept beside sizes and times of the files. By their contents they are
    known again where only their times have changed, as in the layers of a container's image. What
    was made from other sources is removed.
    """
    sources = sorted(
        source for source in _PACKAGE.rglob("*.py") if source.relative_to(_PACKAGE).parts[0] not in _WITHOUT_KERNELS
    )
    compiler = f"{numba.__version__} {llvmlite.__version__}"
    looks, contents = hashlib.sha256(compiler.encode()), hashlib.sha256(compiler.encode())
    for source in sources:
        info = source.stat()
        looks.update(f"{source.relative_to(_PACKAGE)} {info.st_size} {info.st_mtime_ns}".encode())
    record = _PACKAGE / "__pycache__" / "kernels.stamp"
    known = record.read_text().split() if record.is_file() else []
    if len(known) == 2 and known[0] == looks.hexdigest():
        return known[1]
    for source in sources:
        contents.update(str(source.relative_to(_PACKAGE)).encode() + source.read_bytes())
    found = contents.hexdigest()
    try:
        if known[1:] != [found]:
            for compiled in [*_PACKAGE.rglob("*.nbi"), *_PACKAGE.rglob("*.nbc")]:
                compiled.unlink(missing_ok=True)
        record.parent.mkdir(exist_ok=True)
        record.write_text(f"{looks.hexdigest()} {found}\n")
    except OSError:
        ...  # installed where this user may not write: Numba then keeps its cache elsewhere
    return found
