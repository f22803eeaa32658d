"""What a run needs is compiled ahead of it, by processes of their own, one a core; and how far that is can be told.

What is needed is a list of pieces: functions that are called by their address, such as a policy's hooks, each `module:function`, and DRIVERS, which
call them. Helpers (`parts`) compile one piece after the other and leave it in the cache on disk, where this process and every
later one finds it. This process stays free to listen. It also runs faster: a process that has compiled has every
kernel on a page of its own.
If a helper fails nothing is lost but time: what is not in the cache is compiled when it is needed.
"""

from __future__ import annotations

import importlib
import os
import selectors
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any

from slotwise.compiler.kernel import JIT, is_compiled
from slotwise.core import server_steps, steps
from slotwise.core.contract.hooks import HOOKS
from slotwise.core.contract.policy import Policy
from slotwise.core.indexes import fitindex
from slotwise.core.store import linked_late
from slotwise.packing.kernels import lattice, settling, simplex
from slotwise.policies.guarded import sizes
from slotwise.simulation.measure import measuring
from slotwise.simulation.run import churn, ends, loop
from slotwise.theory import erlang
from slotwise.workloads import merge

LOOP, CHURN, SCHEDULER, REST = "loop", "churn", "scheduler", "rest"
# pieces that are compiled by being used, with kernels by which they are known to be there
DRIVERS: dict[str, tuple[Any, ...]] = {
    LOOP: (loop.run_jobs, server_steps.join_all, measuring.finish, merge.play),
    CHURN: (churn.run,),
    REST: (
        lattice.walk,
        simplex.maximise,
        settling.settle,
        sizes.most_usable,
        fitindex.clear,
        ends.insert,
        erlang._loss,
    ),
    SCHEDULER: (steps.submit, steps.complete, server_steps.join, server_steps.fail),
}

MOST_HELPERS = 4  # each compiles anew what pieces have in common
PATIENCE = 300.0  # seconds for a piece, which takes some three; then something must be wrong

# (n, m, piece): the n-th of m pieces is at hand; n = m + 1 with no piece when all are done
Told = Callable[[int, int, str], None]

told: list[Told] = []  # who wants to know how far it is
_known: set[str] = set()  # pieces that need no more asking for in this process
_lock = threading.Lock()
_helping = False


def pieces_of(
    policy: Policy, hooks: Iterable[str], drivers: Iterable[str], *, everything: bool = False
) -> list[str]:
    """Return the pieces that a policy with these hooks and drivers needs. Pieces are taken from both ends of the
    list, and those that take longest stand there, so that the last to be compiled are small. Of a policy that is
    not written for the compiler return the drivers only."""
    first, *others = [getattr(policy, name) or getattr(policy, HOOKS[name]) for name in hooks]
    late = linked_late(policy, everything)
    half = (len(late) + 1) // 2
    functions = [first, *late[:half], *others, *late[half:]] if policy.compiled else late
    pieces = [f"{function.__module__}:{function.__qualname__}" for function in functions]
    return list(dict.fromkeys([*pieces, *drivers]))


def function_of(piece: str) -> Any:
    """Return the function of the piece."""
    module, _, name = piece.partition(":")
    return getattr(importlib.import_module(module), name)


def missing(pieces: Iterable[str]) -> list[str]:
    """Return the pieces that are not in the cache."""
    if not JIT or _helping:
        return []
    found = [piece for piece in dict.fromkeys(pieces) if piece not in _known and not in_cache(piece)]
    _known.update(set(pieces) - set(found))
    return found


def in_cache(piece: str) -> bool:
    """Return whether the piece has been compiled."""
    return all(is_compiled(kernel) for kernel in ((function_of(piece),) if ":" in piece else DRIVERS[piece]))


def compile_pieces(pieces: Sequence[str]) -> None:
    """Compile the pieces that are not in the cache, by helpers. Ctrl-C ends the helpers at once."""
    with _lock:
        if wanted := missing(pieces):
            helpers = _Helpers(wanted)
            try:
                helpers.work()
            finally:
                helpers.end()
            _known.update(wanted)


def help_others() -> None:
    """Make this process one of the helpers, which asks for none itself."""
    global _helping
    _helping = True


class _Helpers:
    """Some processes that share the pieces. They take them from both ends, since neighbours have much in common."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self._waiting, self._total, self._begun = deque(pieces), len(pieces), 0
        self._busy = selectors.DefaultSelector()
        self._processes: list[subprocess.Popen[str]] = []

    def work(self) -> None:
        """Work until all is done, or no helper answers."""
        self._start()
        while self._busy.get_map() and (ready := self._busy.select(PATIENCE)):
            for key, _ in ready:
                n, helper = key.data
                answer: IO[str] = key.fileobj  # type: ignore[assignment]
                if not answer.readline() or not self._hand_out(n, helper):
                    self._busy.unregister(answer)
        for listener in told:
            listener(self._total + 1, self._total, "")

    def _start(self) -> None:
        """Start as many helpers as there are cores for. Without an interpreter to start, start none."""
        if not sys.executable:
            return
        plain = {**os.environ, "NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING": "1"}  # thousands that are never shown
        for n in range(min(len(self._waiting), os.cpu_count() or 1, MOST_HELPERS)):
            # in a session of its own: Ctrl-C is for this process, which then ends its helpers
            helper = subprocess.Popen(
                [sys.executable, "-m", "slotwise.simulation.run.parts"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=plain,
                start_new_session=True,
            )
            self._processes.append(helper)
            self._busy.register(helper.stdout or sys.stdin, selectors.EVENT_READ, (n, helper))
            self._hand_out(n, helper)

    def _hand_out(self, n: int, helper: subprocess.Popen[str]) -> bool:
        """Give a helper its next piece; False where there is none."""
        if not self._waiting or helper.stdin is None:
            return False
        piece = self._waiting.pop() if n % 2 else self._waiting.popleft()
        self._begun += 1
        for listener in told:
            listener(self._begun, self._total, piece)
        try:
            helper.stdin.write(piece + "\n")
            helper.stdin.flush()
        except BrokenPipeError:
            return False
        return True

    def end(self) -> None:
        """End all helpers."""
        for helper in self._processes:
            helper.kill()
            helper.communicate()
        self._busy.close()
