"""The one decorator of compiled code, `kernel`, and what Python may ask of a kernel.

The decorator hides which compiler is in use (`switch`): ours (`whole`), Numba alone (`alone`), or none, where a kernel stays the Python
function that it is. Machine code is kept on disk and is void when anything that it was made from has changed (`sources`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

from slotwise.compiler.switch import JIT as JIT
from slotwise.compiler.switch import MODE

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile `function` when Python first calls it, cached on disk, without the GIL; division by zero gives inf."""
    if MODE == "off":
        return function
    if MODE == "numba":
        from slotwise.compiler import alone

        return cast(F, alone.dispatcher(function))
    from slotwise.compiler import whole

    return cast(F, whole.dispatcher(function))


def hook_value(function: Any, signature: Any) -> Any:
    """Return the function as one that compiled code calls by its address: compiled now, or loaded from the cache."""
    if MODE == "numba":
        from slotwise.compiler import alone

        return alone.callback(function, signature)
    from slotwise.compiler import whole

    return whole.callback(function, signature)


@cache
def as_python(function: F) -> F:
    """Return a kernel, with the kernels that it calls, as Python: for little work, compiling or loading takes longer."""
    if not JIT:
        return function
    original: Any = function.py_func  # type: ignore[attr-defined]
    called = {name: original.__globals__.get(name) for name in original.__code__.co_names}
    others = {name: as_python(one) for name, one in called.items() if hasattr(one, "py_func")}
    made = FunctionType(original.__code__, original.__globals__ | others, original.__name__, original.__defaults__)
    return cast(F, made)


def is_compiled(function: Any) -> bool:
    """Return whether the cache on disk holds a kernel, or a function that is to be a hook."""
    original = getattr(function, "py_func", function)
    if MODE == "off":
        return True
    if MODE == "numba":
        from slotwise.compiler import alone

        return alone.is_compiled(original)
    from slotwise.compiler import whole

    return whole.StampedCache(original).holds()


def cache_path() -> Path:
    """Return the folder, or one of the folders, in which compiled kernels are kept."""
    if MODE == "numba":
        from slotwise.compiler import alone

        return alone.folder_of(kernel).parent
    from slotwise.compiler import whole

    return Path(whole.StampedCache(kernel).cache_path)
