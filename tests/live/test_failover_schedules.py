"""Random failovers on a real PostgreSQL, a few of those that `make failover` runs by the thousand."""

from __future__ import annotations

import os

import pytest


@pytest.mark.system
def test_random_failovers(monkeypatch: pytest.MonkeyPatch) -> None:
    import failover

    for module, names in (
        (failover.postgres, ("LEASE", "GRACE", "BEAT", "TRY_SECONDS")),
        (failover.loop_module, ("RETRY_SECONDS",)),
    ):
        for name in names:
            monkeypatch.setattr(module, name, getattr(module, name))  # put back afterwards
    failover.quicken()
    for seed in range(12):
        assert failover.run_schedule(seed, os.environ["SLOTWISE_TEST_POSTGRES"]) == []
