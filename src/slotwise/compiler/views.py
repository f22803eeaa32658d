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
from numba import types
from numba.core.cgutils import pack_array
from numba.extending import intrinsic, overload
from numba.np.arrayobj import make_array, populate_array
from numpy.typing import NDArray

from slotwise.compiler.kernel import JIT

LATE: dict[int, Callable[[Any, int, int], None]] = {}  # Without the compiler, what `call_at` calls.

if JIT:

    @intrinsic  # type: ignore[untyped-decorator]
    def natural(context: Any, n: Any) -> Any:
        """Return n, which the caller knows to be 0 or more. The compiler then leaves out counting from the end of
        an array."""

        def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.and_(arguments[0], target.get_constant(types.int64, 2**63 - 1))

        return types.int64(types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def pointer(context: Any, address: Any) -> Any:
        """Return the address as `carray` takes it."""

        def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], target.get_value_type(types.voidptr))

        return types.voidptr(types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def trailing_zeros(context: Any, word: Any) -> Any:
        """Return the position of the lowest set bit of a word that is not zero."""

        def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.cttz(arguments[0], target.get_constant(types.boolean, True))

        return types.int64(types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def highest_bit(context: Any, word: Any) -> Any:
        """Return the position of the highest set bit of a word above zero."""

        def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            zeros = builder.ctlz(arguments[0], target.get_constant(types.boolean, True))
            return builder.sub(target.get_constant(types.int64, 63), zeros)

        return types.int64(types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def prefetch(context: Any, address: Any) -> Any:
        """Prefetch the cache line at an address for writing, without waiting for it."""

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
        """Call the compiled hook at an address. Such code is linked late, so that only runs that use it compile it."""

        def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            whole = ir.IntType(64)
            kind = ir.FunctionType(ir.VoidType(), [arguments[1].type, whole, whole])
            builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
            return target.get_dummy_value()

        return types.void(types.int64, s, types.int64, types.int64), generate

    def call(hook: Any, s: Any, a: int, b: int) -> None:
        """Call a hook that is a function value, or is given by its address."""

    @overload(call)
    def _call(hook, s, a, b):  # type: ignore[no-untyped-def]  # must look like what it returns
        if isinstance(hook, types.Integer):
            return lambda hook, s, a, b: call_at(hook, s, a, b)
        return lambda hook, s, a, b: hook(s, a, b)

    def record_viewer(kind: Any, dtype: np.dtype[Any]) -> Callable[[Any], Any]:
        """Return a function that takes a record of this kind, or its address, and returns the record."""

        def typed(context: Any, state: Any) -> Any:
            def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                if isinstance(state, types.Integer):
                    return builder.inttoptr(arguments[0], target.get_value_type(kind))
                return arguments[0]

            return kind(types.int64 if isinstance(state, types.Integer) else kind), generate

        return intrinsic(typed)

    def _viewer(kind: Any, dimensions: int) -> Callable[..., Any]:
        """Return a function of an address and a shape that returns the array there. It is an intrinsic, since
        `carray` is compiled anew for every place that uses it."""
        array = types.Array(kind, dimensions, "C")
        signature = array(types.int64, *(types.int64,) * dimensions)

        def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            view = make_array(array)(target, builder)
            size = target.get_constant(types.intp, target.get_abi_sizeof(target.get_data_type(kind)))
            steps = [size]
            for length in arguments[:1:-1]:
                steps.insert(0, builder.mul(steps[0], length))
            populate_array(
                view,
                data=builder.inttoptr(arguments[0], view.data.type),
                shape=pack_array(builder, list(arguments[1:])),
                strides=pack_array(builder, steps),
                itemsize=size,
                meminfo=None,
            )
            return view._getvalue()

        if dimensions == 1:

            def typed(context: Any, address: Any, n: Any) -> Any:
                return signature, generate

        else:

            def typed(context: Any, address: Any, rows: Any, columns: Any) -> Any:  # type: ignore[misc]
                return signature, generate

        return intrinsic(typed)

    ints, floats, shorts = (_viewer(kind, 1) for kind in (types.int64, types.float64, types.int32))
    tinies, halves = _viewer(types.uint16, 1), _viewer(types.int16, 1)
    half_rows = _viewer(types.int16, 2)
    int_rows, float_rows, short_rows = (_viewer(kind, 2) for kind in (types.int64, types.float64, types.int32))

else:

    def natural(n: int) -> int:
        """Return n itself."""
        return int(n)

    # Without the compiler the same views are made with ctypes; remembering them makes that bearable.
    @lru_cache(maxsize=100_000)
    def _view(address: int, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
        size = int(np.prod(shape)) * int(dtype[1])
        memory: Any = (ctypes.c_char * size).from_address(address)
        return np.frombuffer(memory, dtype).reshape(shape)

    def pointer(address: int) -> int:
        """Return the address itself."""
        return address

    def record_viewer(kind: Any, dtype: np.dtype[Any]) -> Callable[[Any], Any]:
        """Return a function that takes a record of this kind, or its address, and returns the record."""

        def record(state: Any) -> Any:
            if not isinstance(state, int):
                return state
            memory: Any = (ctypes.c_char * dtype.itemsize).from_address(state)
            return np.frombuffer(memory, dtype)[0]

        return record

    def trailing_zeros(word: int) -> int:
        """Return the position of the lowest set bit of a word that is not zero."""
        word = int(word)
        return (word & -word).bit_length() - 1

    def highest_bit(word: int) -> int:
        """Return the position of the highest set bit of a word above zero."""
        return int(word).bit_length() - 1

    def prefetch(address: int) -> None:
        """Do nothing: Python gains nothing by it."""

    def call_at(address: int, s: Any, a: int, b: int) -> None:
        """Call the hook with this number."""
        LATE[int(address)](s, a, b)

    def call(hook: Any, s: Any, a: int, b: int) -> None:
        """Call the hook, or the one with this number."""
        (LATE[hook] if isinstance(hook, int) else hook)(s, a, b)

    def _maker(dtype: str) -> Callable[..., NDArray[Any]]:
        def view(address: int, *shape: int) -> NDArray[Any]:
            return _view(int(address), tuple(int(n) for n in shape), dtype)

        return view

    int_rows = ints = _maker("i8")
    short_rows = shorts = _maker("i4")
    tinies = _maker("u2")
    half_rows = halves = _maker("i2")
    float_rows = floats = _maker("f8")
