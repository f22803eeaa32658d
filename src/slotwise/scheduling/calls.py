"""The driver's kernels for callers in Python: by address.

Handing a record and a function value over to compiled code takes tens of microseconds, a whole number hardly any time. So
`Scheduler` hands over where the state and the policy's hook are; what is decided, and by which kernels of `core.steps`, is the same.
Each call returns the number n of placements, or -1 - n where the policy did what it must not do.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numba import carray

from slotwise.compiler.kernel import JIT, kernel
from slotwise.compiler.views import LATE, call_at, pointer
from slotwise.core import state as st
from slotwise.core import steps
from slotwise.core.contract.hooks import PythonHook
from slotwise.core.moves import FINE

NOT_RUNNING = -(2**62)

if JIT:

    def reach(hook: Any) -> int:
        """Where a hook is."""
        return int(hook.__wrapper_address__() if isinstance(hook, PythonHook) else hook.address)

    @kernel
    def _state(at: int) -> st.State:
        return carray(pointer(at), (1,), st.DTYPE)[0]

else:

    def reach(hook: Any) -> int:
        """A number for the hook, under which it is called."""
        LATE[id(hook)] = hook
        return id(hook)

    def _state(at: int) -> st.State:
        memory: Any = (ctypes.c_char * st.DTYPE.itemsize).from_address(at)
        return np.frombuffer(memory, st.DTYPE)[0]


@kernel
def _outcome(s: st.State) -> int:
    return s.n_placed if s.failed == FINE else -1 - s.n_placed


@kernel
def submit(at: int, arrive: int, j: int, has_demand: bool) -> int:
    """A job of type j arrives. Where demands are kept and its own is not written yet, it asks for what its type does."""
    s = _state(at)
    if s.actual and not has_demand:
        for r in range(s.n_resources):
            st.job_demand(s)[s.free_job, r] = st.demand(s)[j, r]
    call_at(arrive, s, j, steps.enter(s, j))
    return _outcome(s)


@kernel
def complete(at: int, policy_complete: int, i: int) -> int:
    """Job i has ended, or was stopped: then the hook is the policy's `stop`. Returns NOT_RUNNING, and does nothing, where it waits."""
    s = _state(at)
    j, server = int(st.jobs(s)[i, st.TYPE]), int(st.jobs(s)[i, st.SERVER])
    if server < 0:
        return NOT_RUNNING
    if steps.depart(s, i, False):
        call_at(policy_complete, s, j, server)
    return _outcome(s)


@kernel
def requeue(at: int, policy_stop: int, arrive: int, i: int) -> int:
    """Job i could not be started."""
    s = _state(at)
    steps.requeue(s, i, policy_stop, arrive)
    return _outcome(s)


@kernel
def cancel(at: int, policy_cancel: int, i: int) -> int:
    """Job i, which waits, will not be served."""
    s = _state(at)
    steps.cancel(s, i, policy_cancel)
    return _outcome(s)


@kernel
def tick(at: int, policy_tick: int) -> int:
    """The policy's own clock has rung."""
    s = _state(at)
    steps.tick(s, policy_tick)
    return _outcome(s)


@kernel
def resume(at: int, policy_resume: int, server: int) -> int:
    """A server that drains takes jobs again."""
    s = _state(at)
    steps.resume(s, server, policy_resume)
    return _outcome(s)


@kernel
def drain(at: int, leave: int, arrive: int, server: int) -> int:
    """The server takes no more jobs."""
    s = _state(at)
    steps.drain(s, server, leave, arrive)
    return _outcome(s)


@kernel
def fail(at: int, leave: int, arrive: int, server: int) -> int:
    """The server is gone."""
    s = _state(at)
    steps.fail(s, server, leave, arrive)
    return _outcome(s)


@kernel
def remove(at: int, server: int) -> None:
    """A drained server, empty, gives its number back."""
    steps.remove(_state(at), server)


@kernel
def join(at: int, policy_join: int, server: int, c: int) -> int:
    """A server of class c comes."""
    s = _state(at)
    steps.set_up(s, server, c)
    call_at(policy_join, s, server, 0)
    return _outcome(s)
