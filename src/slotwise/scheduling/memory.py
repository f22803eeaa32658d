"""Views of arrays by their address: what lets one record stand for a state of many arrays.

A kernel that is handed some twenty arrays counts references on each of them at every call. A record of numbers is
one pointer, and a view made from an address costs nothing. The arrays belong to the `Store` that made the record
and live as long as it does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from slotwise._kernel import JIT, kernel

LATE: dict[int, Callable[[Any, int, int], None]] = {}
"""Without the compiler, what `call_at` calls."""

if JIT:

    @intrinsic  # type: ignore[untyped-decorator]
    def pointer(context: Any, address: Any) -> Any:
        """The address as `carray` takes it."""

        def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], target.get_value_type(types.voidptr))

        return types.voidptr(types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def trailing_zeros(context: Any, word: Any) -> Any:
        """The position of the lowest set bit of a word that is not zero."""

        def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.cttz(arguments[0], target.get_constant(types.boolean, True))

        return types.int64(types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def prefetch(context: Any, address: Any) -> Any:
        """Bring the cache line at an address near, to be written soon; nobody waits for it."""

        def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            short = ir.IntType(32)
            line = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
            kind = ir.FunctionType(ir.VoidType(), [line.type, short, short, short])
            fetch = builder.module.declare_intrinsic("llvm.prefetch", [line.type], kind)
            builder.call(fetch, [line, short(1), short(3), short(1)])  # to write, to keep, data
            return target.get_dummy_value()

        return types.void(types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def call_at(context: Any, address: Any, s: Any, a: Any, b: Any) -> Any:
        """Call the compiled hook at an address: code that is linked late, so that not everybody compiles it."""

        def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            whole = ir.IntType(64)
            kind = ir.FunctionType(ir.VoidType(), [arguments[1].type, whole, whole])
            builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
            return target.get_dummy_value()

        return types.void(types.int64, s, types.int64, types.int64), generate

    @kernel
    def int_rows(address: int, rows: int, columns: int) -> NDArray[np.int64]:
        return carray(pointer(address), (rows, columns), np.int64)

    @kernel
    def ints(address: int, n: int) -> NDArray[np.int64]:
        return carray(pointer(address), (n,), np.int64)

    @kernel
    def short_rows(address: int, rows: int, columns: int) -> NDArray[np.int32]:
        return carray(pointer(address), (rows, columns), np.int32)

    @kernel
    def float_rows(address: int, rows: int, columns: int) -> NDArray[np.float64]:
        return carray(pointer(address), (rows, columns), np.float64)

    @kernel
    def floats(address: int, n: int) -> NDArray[np.float64]:
        return carray(pointer(address), (n,), np.float64)

else:
    # Without the compiler the same views are made with ctypes; remembering them makes that bearable.
    @lru_cache(maxsize=100_000)
    def _view(address: int, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
        size = int(np.prod(shape)) * int(dtype[1])
        memory: Any = (ctypes.c_char * size).from_address(address)
        return np.frombuffer(memory, dtype).reshape(shape)

    def pointer(address: int) -> int:
        """The address itself."""
        return address

    def trailing_zeros(word: int) -> int:
        """The position of the lowest set bit of a word that is not zero."""
        word = int(word)
        return (word & -word).bit_length() - 1

    def prefetch(address: int) -> None:
        """Nothing is gained by it here."""

    def call_at(address: int, s: Any, a: int, b: int) -> None:
        """Call the hook with this number."""
        LATE[int(address)](s, a, b)

    def _maker(dtype: str) -> Callable[..., NDArray[Any]]:
        def view(address: int, *shape: int) -> NDArray[Any]:
            return _view(int(address), tuple(int(n) for n in shape), dtype)

        return view

    int_rows = ints = _maker("i8")
    short_rows = _maker("i4")
    float_rows = floats = _maker("f8")
