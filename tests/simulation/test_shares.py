"""Fair shares in the simulator: tenants that have more work than they can get are served by their shares."""

from __future__ import annotations

from typing import Any

import pytest

from slotwise.compiler.kernel import JIT
from slotwise.errors import InputError
from slotwise.model import parse_scenario
from slotwise.simulation.simulate import compare, simulate

TENANTS = [{"name": "physics", "share": 5}, {"name": "biology", "share": 3}, {"name": "chemistry", "share": 2}]
TYPES = [
    {"name": "large", "tenant": "physics", "demand": [8], "mean_service": 2.0, "rate": 20.0},
    {"name": "middle", "tenant": "biology", "demand": [3], "mean_service": 1.0, "rate": 60.0},
    {"name": "small", "tenant": "chemistry", "demand": [1], "mean_service": 3.0, "rate": 40.0},
]


def tables(**changes: Any) -> dict[str, Any]:
    return {
        "name": "shared",
        "cluster": {"resources": ["cpu"], "servers": [{"name": "node", "count": 20, "capacity": [16]}]},
        "types": TYPES,
        "shares": {"half_life": 20, "tenants": TENANTS},
        "run": {"jobs": 60_000, "replications": 1, "warmup": 0.25},
    } | changes


@pytest.mark.skipif(not JIT, reason="too slow without the compiler")
def test_saturated_tenants_get_their_shares() -> None:
    found = simulate(parse_scenario(tables()), workers=1)
    assert found.use_of_tenants == pytest.approx({"physics": 0.5, "biology": 0.3, "chemistry": 0.2}, rel=0.03)
    assert found.utilisation["cpu"] > 0.98
    assert found.as_dict()["use_of_tenants"] == found.use_of_tenants


@pytest.mark.skipif(not JIT, reason="too slow without the compiler")
def test_the_share_of_an_idle_tenant_goes_to_its_group_first() -> None:
    shares = {
        "half_life": 20,
        "strength": 4,
        "groups": [{"name": "science", "share": 8}, {"name": "teaching", "share": 2}],
        "tenants": [
            {"name": "physics", "share": 2, "group": "science"},
            {"name": "biology", "share": 1, "group": "science"},
            {"name": "idle", "share": 7, "group": "science"},
            {"name": "chemistry", "group": "teaching"},
        ],
    }
    types = [*TYPES, {"name": "rare", "tenant": "idle", "demand": [1], "rate": 1e-9}]
    run = {"jobs": 120_000, "replications": 1, "warmup": 0.25}
    found = simulate(parse_scenario(tables(shares=shares, types=types, run=run)), workers=1)
    wanted = {"physics": 0.8 * 2 / 3, "biology": 0.8 / 3, "chemistry": 0.2}
    assert {name: found.use_of_tenants[name] for name in wanted} == pytest.approx(wanted, rel=0.03)


def test_without_tenants_nothing_is_said_of_them_and_other_policies_refuse() -> None:
    run = {"jobs": 200, "replications": 1}
    plain = simulate(parse_scenario(tables(shares=None, run=run)), workers=1)
    assert plain.use_of_tenants == {}
    assert "use_of_tenants" not in plain.as_dict()
    with pytest.raises(InputError, match="best-fit cannot honour shares"):
        compare(parse_scenario(tables(run=run)), ["guarded", "best-fit"], workers=1)
