"""Resources, job types, server classes and scenarios: validated, immutable, with exact decimal sizes."""

from slotwise.model.integers import Integers, integers
from slotwise.model.reader import Overrides, changed, load_scenario, parse_scenario, shipped_scenarios
from slotwise.model.scenario import (
    Cluster,
    Failures,
    JobType,
    PolicyChoice,
    Run,
    Scenario,
    ServerClass,
    ServerEvent,
    TypeMaking,
    Workload,
)

__all__ = [
    "Cluster",
    "Failures",
    "Integers",
    "JobType",
    "Overrides",
    "PolicyChoice",
    "Run",
    "Scenario",
    "ServerClass",
    "ServerEvent",
    "TypeMaking",
    "Workload",
    "changed",
    "integers",
    "load_scenario",
    "parse_scenario",
    "shipped_scenarios",
]
