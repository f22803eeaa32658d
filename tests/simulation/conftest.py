"""Scenarios that the tests of the simulator share, and the naive simulator beside this file."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from slotwise.model import Scenario, parse_scenario


@pytest.fixture(scope="session")
def naive() -> ModuleType:
    """tests/simulation/naive.py."""
    spec = importlib.util.spec_from_file_location("naive_simulator", Path(__file__).with_name("naive.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def scenario() -> Callable[..., Scenario]:
    """Make a scenario of one resource: capacities by class, types as (demand, rate), the rest by section."""

    def make(
        servers: dict[str, tuple[int, float]], types: list[tuple[float, float | None]], /, **sections: Any
    ) -> Scenario:
        cluster = {
            "resources": ["units"],
            "servers": [{"name": name, "count": n, "capacity": [size]} for name, (n, size) in servers.items()],
        }
        cluster |= sections.pop("cluster", {})
        made = [
            {"name": f"type{j}", "demand": [size]} | ({} if rate is None else {"rate": rate})
            for j, (size, rate) in enumerate(types)
        ]
        return parse_scenario({"cluster": cluster, "types": made, **sections})

    return make
