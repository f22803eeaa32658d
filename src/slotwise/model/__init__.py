"""Resources, job types, server classes and scenarios: validated, immutable, with exact decimal sizes.

- `scenario`: what a scenario is; start there. `reader` reads TOML, `checks` refuses what cannot be.
- `integers`, `sizes`, `units`: decimals as whole numbers, with units. `laws`, `rateprofile`, `labels`, `shares`: parts of a scenario.

Imports errors.
"""

from slotwise.model.integers import Integers, integers
from slotwise.model.quotas import Quota
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
from slotwise.model.shares import Group, Shares, Tenant
from slotwise.model.units import SECONDS, labelled, per_time, span, time_in, with_unit

__all__ = [
    "MOST_EVENTS",
    "MOST_SERVERS",
    "SECONDS",
    "Cluster",
    "Failures",
    "Group",
    "Integers",
    "JobType",
    "Overrides",
    "PolicyChoice",
    "Quota",
    "RateProfile",
    "Run",
    "Scenario",
    "ServerClass",
    "ServerEvent",
    "Shares",
    "Tenant",
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
