"""How a policy's functions reach compiled drivers: function values of one fixed signature over the state.

A hook is `hook(s, a, b) -> None` on the state and two whole numbers. Passed as a typed function value it costs a few
nanoseconds a call, drivers need no recompiling for a new policy, and their on-disk cache works. A hook in plain
Python is reached through a C callback: slower by a thousand, but on the same drivers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numba
import numba.experimental.function_type  # without it the compiler does not know function values in plain Python
import numpy as np
from numba import types
from numba.core.dispatcher import Dispatcher

from slotwise.compiler.kernel import JIT, hook_value
from slotwise.compiler.views import LATE
from slotwise.core import state as st
from slotwise.core.steps import RAISED

Hook = Callable[[st.State, int, int], None]
SIGNATURE = types.void(st.RECORD, types.int64, types.int64)
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def nothing(s: st.State, _: int, __: int) -> None:
    """Do nothing: the hook of a policy that has nothing to do here."""


class Hooks(NamedTuple):
    """What a policy does, in the form that drivers take."""

    arrive: Any
    """(s, j, i): job i of type j has joined queue j"""
    complete: Any
    """(s, j, server): a type-j job has left the server"""
    join: Any
    """(s, server, 0): the server is there, and empty"""
    leave: Any
    """(s, server, 0): the server takes no more jobs"""
    cancel: Any
    """(s, j, i): job i has left queue j unserved"""
    tick: Any
    """(s, 0, 0): the policy's own clock, if it sets `tick_rate`"""


# Every hook by name, with the hook that stands in for it if a policy leaves it out. All drivers need the hooks of
# `Hooks`. These come besides. resume (s, server, 0): the server takes jobs, and may hold some. stop (s, j, server): as
# complete, but the policy learns nothing from it. file (s, server, 0): the server was put back from a situation; work
# out what follows from it.
HOOKS = dict.fromkeys(Hooks._fields, "") | {"resume": "join", "stop": "complete", "file": ""}


class PythonHook(types.WrapperAddressProtocol):  # type: ignore[misc]
    """A plain Python function as a function value. What it raises is kept and raised again by the driver."""

    def __init__(self, function: Hook) -> None:
        self.error: BaseException | None = None
        self._function = function

        def call(address: int, a: int, b: int) -> None:
            memory: Any = (ctypes.c_char * st.DTYPE.itemsize).from_address(address)
            self.run(np.frombuffer(memory, st.DTYPE)[0], a, b)

        self._callback = _CALLBACK(call)

    def run(self, s: Any, a: int, b: int) -> None:
        """Call the function and keep what it raises."""
        try:
            self._function(s, a, b)
        except BaseException as error:  # it cannot pass through compiled code
            self.error = error
            s.failed = RAISED

    def __wrapper_address__(self) -> int:
        return ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def signature(self) -> Any:
        return SIGNATURE


class PlainHook(PythonHook):
    """The same without the compiler, where drivers just call it."""

    def __call__(self, s: Any, a: int, b: int) -> None:
        self.run(s, a, b)


def as_value(hook: Hook | Dispatcher, *, compiled: bool) -> Any:
    """Return the function as drivers take it; `compiled` for hooks that are written for the compiler."""
    if isinstance(hook, Dispatcher) or (JIT and compiled):
        return _compiled(hook)
    if compiled:
        return hook
    return PythonHook(hook) if JIT else PlainHook(hook)


@cache
def _compiled(hook: Hook | Dispatcher) -> Any:
    """Compile the hook, once in a process. Only hooks of the package are cached on disk. The cache of a user's file
    would not notice a change of the state, whose layout is compiled in."""
    if isinstance(hook, Dispatcher):
        return numba.cfunc(SIGNATURE, error_model="numpy")(_guarded(hook))
    if hook.__module__.startswith("slotwise."):
        return hook_value(hook, SIGNATURE)
    return numba.cfunc(SIGNATURE, error_model="numpy")(hook)


def _guarded(hook: Dispatcher) -> Hook:
    """Wrap a hook in Python so that its exception ends the event. An exception cannot leave a compiled hook;
    without this it would be printed and forgotten."""

    def guarded(s: st.State, a: int, b: int) -> None:
        try:
            hook(s, a, b)
        except Exception:  # the compiler knows no other kind
            s.failed = RAISED

    return guarded


def address_of(value: Any) -> int:
    """Return the address of a hook that `as_value` made; without the compiler, a number by which `call` finds it."""
    if JIT:
        return int(value.__wrapper_address__() if isinstance(value, PythonHook) else value.address)
    LATE[id(value)] = value
    return id(value)


_linked: dict[Hook, tuple[Any, int]] = {}


def late(hook: Hook) -> int:
    """Return the address of a hook for `call_at`. The hook is compiled, or loaded from the cache, at the first
    request."""
    if hook not in _linked:
        if JIT:
            value = as_value(hook, compiled=True)
            _linked[hook] = (value, value.address)
        else:
            LATE[len(LATE) + 1] = hook
            _linked[hook] = (hook, len(LATE))
    return _linked[hook][1]
