"""How kernels are compiled."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slotwise._kernel import JIT
from slotwise.scheduling import make_policy

pytestmark = pytest.mark.skipif(not JIT, reason="without the compiler")


def test_what_a_kernel_contains_has_no_name_in_machine_code() -> None:
    """Else the loader gives it to others that bring a function of the same name, such as somebody's own policy, though the optimiser may have changed how it is called."""
    cache = make_policy("guarded").hook("arrive")._cache
    kept = max(Path(cache.cache_path).glob("turning.arrive-*.nbc"), key=lambda file: file.stat().st_mtime)
    names = set(re.findall(rb"_ZN8slotwise[\w.]+", kept.read_bytes()))
    assert names
    assert all(b"turning6arrive" in name for name in names), names
