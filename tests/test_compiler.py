"""How kernels are compiled."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from numba import njit, types

from slotwise.compiler.kernel import JIT, kernel
from slotwise.scheduling import make_policy

pytestmark = pytest.mark.skipif(not JIT, reason="without the compiler")


def test_what_a_kernel_contains_has_no_name_in_machine_code() -> None:
    """Otherwise the loader gives it to other libraries with a function of the same name, such as a user's own policy,
    though the optimiser may have changed how it is called."""
    cache = make_policy("guarded").hook("arrive")._cache
    kept = max(Path(cache.cache_path).glob("rules.arrive-*.nbc"), key=lambda file: file.stat().st_mtime)
    machine_code = next(_elves(pickle.loads(kept.read_bytes())))  # beside it lies LLVM's code, in which names stay
    names = set(re.findall(rb"_ZN8slotwise[\w.]+", machine_code))
    assert names
    assert all(b"rules6arrive" in name for name in names), names


def _elves(kept: Any) -> Iterator[bytes]:
    """Yield the machine code in what Numba's cache keeps of a kernel."""
    if isinstance(kept, bytes) and kept.startswith(b"\x7fELF"):
        yield kept
    elif isinstance(kept, tuple | list):
        for part in kept:
            yield from _elves(part)


@kernel
def _least(a: int) -> int:
    return a - 1


@kernel
def _middle(a: int) -> int:
    return _least(2 * a) + max(_least(7), 3)


def test_constants_make_no_kernel_of_their_own() -> None:
    for given in (types.literal(5), types.literal(6), types.int64):
        assert _least.get_call_template((given,), {})[2] == (types.int64,)


def test_somebody_elses_compiled_function_gets_all_that_a_kernel_calls() -> None:
    """Parts are linked into a whole of ours one by one; into a function of Numba's own with what they call."""

    @njit
    def own(a: int) -> int:
        return _middle(a) + _least(a)

    assert own(10) == _middle(10) + 9 == 34
