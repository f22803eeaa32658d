"""Random failovers on a real PostgreSQL, a few of those that `make failover` runs by the thousand."""

from __future__ import annotations

import os
from types import ModuleType

import pytest


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The harness with short leases; what it changes is put back afterwards."""
    import failover

    for module, names in (
        (failover.postgres, ("LEASE", "GRACE", "BEAT", "TRY_SECONDS")),
        (failover.loop_module, ("RETRY_SECONDS",)),
        (failover.PostgresStore, ("commit",)),
    ):
        for name in names:
            monkeypatch.setattr(module, name, getattr(module, name))
    failover.quicken()
    return failover


@pytest.mark.system
def test_random_failovers(quick: ModuleType) -> None:
    for seed in range(12):
        assert quick.run_schedule(seed, os.environ["SLOTWISE_TEST_POSTGRES"]) == []


@pytest.mark.system
def test_an_unfenced_commit_is_found(quick: ModuleType) -> None:
    """The harness sees a job that was acknowledged and is not there, once repeated commits look at the store without a fence."""
    quick.put_defect_back()
    found = (quick.run_schedule(seed, os.environ["SLOTWISE_TEST_POSTGRES"]) for seed in range(100))
    assert "was acknowledged as job" in next(wrong[0] for wrong in found if wrong)
