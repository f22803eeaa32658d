"""Slotwise: scheduling of uninterruptible jobs on unlike servers, with a proven share of the maximum throughput.

import slotwise

result = slotwise.simulate("table1", policy="best-fit")
comparison = slotwise.compare("table1", ["algorithm1", "best-fit"])
scheduler = slotwise.Scheduler.from_scenario(slotwise.load_scenario("example1"))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from slotwise._version import __version__

if TYPE_CHECKING:
    from slotwise.errors import InputError, SlotwiseError
    from slotwise.model import Cluster, JobType, Scenario, ServerClass, load_scenario, parse_scenario
    from slotwise.scheduling.events import Outcome, Placement
    from slotwise.scheduling.policies import POLICIES, make_policy
    from slotwise.scheduling.policy import Policy
    from slotwise.scheduling.scheduler import Scheduler
    from slotwise.scheduling.situation import Situation
    from slotwise.simulation.result import Comparison, Result
    from slotwise.simulation.simulate import compare, simulate

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
    "POLICIES": "slotwise.scheduling.policies",
    "make_policy": "slotwise.scheduling.policies",
    "Policy": "slotwise.scheduling.policy",
    "Outcome": "slotwise.scheduling.events",
    "Placement": "slotwise.scheduling.events",
    "Scheduler": "slotwise.scheduling.scheduler",
    "Situation": "slotwise.scheduling.situation",
    "Comparison": "slotwise.simulation.result",
    "Result": "slotwise.simulation.result",
    "compare": "slotwise.simulation.simulate",
    "simulate": "slotwise.simulation.simulate",
}

__all__ = [
    "POLICIES",
    "Cluster",
    "Comparison",
    "InputError",
    "JobType",
    "Outcome",
    "Placement",
    "Policy",
    "Result",
    "Scenario",
    "Scheduler",
    "ServerClass",
    "Situation",
    "SlotwiseError",
    "__version__",
    "compare",
    "load_scenario",
    "make_policy",
    "parse_scenario",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'slotwise' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
