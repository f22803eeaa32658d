"""The driver's kernels for callers in Python: by address.

Handing a record and a function value over to compiled code takes tens of microseconds, a whole number hardly any time. So
`Scheduler` hands over where the state and the policy's hook are; what is decided, and by which kernels of `drive`, is the same.
Each call returns the number n of placements, or -1 - n where the policy did what it must not do.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numba import carray

from slotwise._kernel import JIT, kernel
from slotwise.scheduling import drive
from slotwise.scheduling.hooks import PythonHook
from slotwise.scheduling.memory import LATE, call_at, pointer
from slotwise.scheduling.moves import FINE
from slotwise.scheduling.state import DTYPE, SERVER, TYPE, State, jobs

if JIT:

    def reach(hook: Any) -> int:
        """Where a hook is."""
        return int(hook.__wrapper_address__() if isinstance(hook, PythonHook) else hook.address)

    @kernel
    def _state(at: int) -> State:
        return carray(pointer(at), (1,), DTYPE)[0]

else:

    def reach(hook: Any) -> int:
        """A number for the hook, under which it is called."""
        LATE[id(hook)] = hook
        return id(hook)

    def _state(at: int) -> State:
        memory: Any = (ctypes.c_char * DTYPE.itemsize).from_address(at)
        return np.frombuffer(memory, DTYPE)[0]


@kernel
def _outcome(s: State) -> int:
    return s.n_placed if s.failed == FINE else -1 - s.n_placed


@kernel
def submit(at: int, arrive: int, j: int) -> int:
    """A job of type j arrives."""
    s = _state(at)
    call_at(arrive, s, j, drive.enter(s, j))
    return _outcome(s)


@kernel
def complete(at: int, policy_complete: int, i: int) -> int:
    """Job i has ended, or was stopped: then the hook is the policy's `stop`."""
    s = _state(at)
    j, server = int(jobs(s)[i, TYPE]), int(jobs(s)[i, SERVER])
    if drive.depart(s, i):
        call_at(policy_complete, s, j, server)
    return _outcome(s)


@kernel
def join(at: int, policy_join: int, server: int, c: int) -> int:
    """A server of class c comes."""
    s = _state(at)
    drive.set_up(s, server, c)
    call_at(policy_join, s, server, 0)
    return _outcome(s)
