"""The first run ever compiles on two cores: another process compiles the loop while this one compiles the policy.

The other one (`parts`) leaves its part in the cache on disk, where this one finds it. If it fails nothing is lost but time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from slotwise._kernel import is_compiled
from slotwise.simulation import loop

LOOP = "loop"
LATE = "late:"
"""before the name of a policy: what of it is linked late; without it, all that it needs beside the loop"""

PATIENCE = 120.0
"""seconds; a part takes some ten"""

_others: dict[str, subprocess.Popen[bytes] | None] = {}
"""who compiles a part; None: somebody has asked for it, but nobody need do it"""


def compiled() -> bool:
    """Whether there was a run before this one."""
    return is_compiled(loop.run_jobs)


def begin(*parts: str) -> None:
    """Have the loop, or some policies, compiled by another process if nothing is compiled yet and there is a second core."""
    if _others.keys() >= set(parts):
        return
    other = None
    if not compiled() and (os.cpu_count() or 1) > 1 and sys.executable:
        command = [sys.executable, "-m", "slotwise.simulation.parts", *parts]
        # in a session of its own: Ctrl-C is for this process, which then ends the other
        nul = subprocess.DEVNULL
        other = subprocess.Popen(command, stdin=nul, stdout=nul, stderr=nul, start_new_session=True)
    _others.update(dict.fromkeys(parts, other))


@contextmanager
def by_others(*parts: str) -> Iterator[None]:
    """The same, and if what is done meanwhile goes wrong or is interrupted, the others are ended."""
    begin(*parts)
    try:
        yield
    except BaseException:
        give_up()
        raise


def wait(*parts: str) -> None:
    """Until these parts are done, or it takes so long that something must be wrong: then this process does them."""
    for part in parts:
        other = _others.get(part)
        if other is not None:
            try:
                other.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                other.kill()


def give_up() -> None:
    """End all that others do."""
    for other in _others.values():
        if other is not None:
            other.kill()


def alone() -> None:
    """This process is one of the others, and asks for no more of them."""
    _others[LOOP] = None
