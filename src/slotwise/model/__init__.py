"""Resources, job types, server classes and scenarios: validated, immutable, with exact decimal sizes."""

from slotwise.model.integers import Integers, integers
from slotwise.model.rateprofile import RateProfile
from slotwise.model.reader import Overrides, changed, load_scenario, parse_scenario, shipped_scenarios
from slotwise.model.scenario import (
    MOST_EVENTS,
    MOST_SERVERS,
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
from slotwise.model.units import SECONDS, labelled, per_time, span, time_in, with_unit

__all__ = [
    "MOST_EVENTS",
    "MOST_SERVERS",
    "SECONDS",
    "Cluster",
    "Failures",
    "Integers",
    "JobType",
    "Overrides",
    "PolicyChoice",
    "RateProfile",
    "Run",
    "Scenario",
    "ServerClass",
    "ServerEvent",
    "TypeMaking",
    "Workload",
    "changed",
    "integers",
    "labelled",
    "load_scenario",
    "parse_scenario",
    "per_time",
    "shipped_scenarios",
    "span",
    "time_in",
    "with_unit",
]
