"""Scheduling: which job starts where. Pure decisions, without a clock, input or output.

- `Scheduler` is the core for other programs; start in `verbs`, where each event is written once. `events`: what can happen.
- `Situation`: all that a scheduler knows, as plain data, made by `capture` and read by `rebuild`.
- `explain`, `refusals`, `occupancy`, `figures`, `earliest`: questions about a scheduler. `api`: what the author of a policy uses.

Imports policies, core and what is below them.
"""

from __future__ import annotations

from slotwise.core.contract.policy import Policy
from slotwise.core.contract.reasons import Because, Explanation, Reason
from slotwise.policies import POLICIES, make_policy
from slotwise.scheduling.events import (
    Cancel,
    Complete,
    Drain,
    Event,
    Fail,
    Join,
    Outcome,
    Placement,
    Remove,
    Requeue,
    Resume,
    StaleReportError,
    Stop,
    Submit,
    Tick,
    as_dict,
    from_dict,
)
from slotwise.scheduling.scheduler import Scheduler
from slotwise.scheduling.situation import Situation

__all__ = [
    "POLICIES",
    "Because",
    "Cancel",
    "Complete",
    "Drain",
    "Event",
    "Explanation",
    "Fail",
    "Join",
    "Outcome",
    "Placement",
    "Policy",
    "Reason",
    "Remove",
    "Requeue",
    "Resume",
    "Scheduler",
    "Situation",
    "StaleReportError",
    "Stop",
    "Submit",
    "Tick",
    "as_dict",
    "from_dict",
    "make_policy",
]
