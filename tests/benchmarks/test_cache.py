"""Kept results of the benchmark of policies are void once the code that they come from has changed."""

from __future__ import annotations

from benchmarks.policies import cache


def test_a_policy_is_made_of_its_own_modules_and_those_that_it_imports() -> None:
    found = {path.relative_to(cache.POLICIES).as_posix() for path in cache.modules_of("guarded")}
    assert {"guarded/rules.py", "guarded/margin.py", "backfill/reservation.py"} <= found
    assert "paper/algorithm1.py" not in found


def test_every_place_that_matters_is_there() -> None:
    for part in cache.MATTERS:
        assert any((cache.SOURCE / part).rglob("*.py")), part
    assert any(cache.POLICIES.rglob("*.py"))
