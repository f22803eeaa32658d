"""Slotwise: scheduling of uninterruptible jobs on unlike servers, with a proven share of the maximum throughput.

import slotwise

result = slotwise.simulate("table1", policy="best-fit")
comparison = slotwise.compare("table1", ["algorithm1", "best-fit"], overrides={"run.events": 20_000})
print(slotwise.capacity("table1"))
plan = slotwise.plan("table1", {"p95_wait": 0.5})
scheduler = slotwise.Scheduler.from_scenario(slotwise.load_scenario("example1"))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from slotwise._version import __version__

if TYPE_CHECKING:
    from slotwise.core.contract.policy import Policy
    from slotwise.errors import InputError, SlotwiseError, SlotwiseWarning
    from slotwise.model import (
        Cluster,
        JobType,
        Scenario,
        ServerClass,
        load_scenario,
        parse_scenario,
        shipped_scenarios,
    )
    from slotwise.planning.plan import Plan, plan
    from slotwise.planning.tradeoff import Tradeoff, tradeoff
    from slotwise.policies import POLICIES, make_policy
    from slotwise.scheduling.events import Outcome, Placement
    from slotwise.scheduling.scheduler import Scheduler
    from slotwise.scheduling.situation import Situation
    from slotwise.simulation.result import Comparison, Result
    from slotwise.simulation.simulate import compare, simulate
    from slotwise.theory.capacity import Capacity, capacity
    from slotwise.workloads.traces import Trace, import_trace, read_trace, summarise, write_trace

# Where each public name lives; imported when first used, so that `import slotwise` is quick.
_HOMES = {
    "InputError": "slotwise.errors",
    "SlotwiseError": "slotwise.errors",
    "Cluster": "slotwise.model",
    "JobType": "slotwise.model",
    "Scenario": "slotwise.model",
    "ServerClass": "slotwise.model",
    "load_scenario": "slotwise.model",
    "parse_scenario": "slotwise.model",
    "POLICIES": "slotwise.policies",
    "make_policy": "slotwise.policies",
    "Policy": "slotwise.core.contract.policy",
    "Outcome": "slotwise.scheduling.events",
    "Placement": "slotwise.scheduling.events",
    "Scheduler": "slotwise.scheduling.scheduler",
    "Situation": "slotwise.scheduling.situation",
    "Comparison": "slotwise.simulation.result",
    "Result": "slotwise.simulation.result",
    "Plan": "slotwise.planning.plan",
    "plan": "slotwise.planning.plan",
    "Tradeoff": "slotwise.planning.tradeoff",
    "tradeoff": "slotwise.planning.tradeoff",
    "Capacity": "slotwise.theory.capacity",
    "capacity": "slotwise.theory.capacity",
    "Trace": "slotwise.workloads.traces",
    "import_trace": "slotwise.workloads.traces",
    "read_trace": "slotwise.workloads.traces",
    "summarise": "slotwise.workloads.traces",
    "write_trace": "slotwise.workloads.traces",
    "shipped_scenarios": "slotwise.model",
    "SlotwiseWarning": "slotwise.errors",
    "compare": "slotwise.simulation.simulate",
    "simulate": "slotwise.simulation.simulate",
}

__all__ = [
    "POLICIES",
    "Capacity",
    "Cluster",
    "Comparison",
    "InputError",
    "JobType",
    "Outcome",
    "Placement",
    "Plan",
    "Policy",
    "Result",
    "Scenario",
    "Scheduler",
    "ServerClass",
    "Situation",
    "SlotwiseError",
    "SlotwiseWarning",
    "Trace",
    "Tradeoff",
    "__version__",
    "capacity",
    "compare",
    "import_trace",
    "load_scenario",
    "make_policy",
    "parse_scenario",
    "plan",
    "read_trace",
    "shipped_scenarios",
    "simulate",
    "summarise",
    "tradeoff",
    "write_trace",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'slotwise' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List what there is, although most of it is imported only when used."""
    return sorted({*globals(), *__all__})
