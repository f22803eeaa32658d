"""Scheduling: who starts where. Pure decisions, without a clock, input or output.

`Scheduler` is the core for other programs, `events` what can happen to it, `Situation` all that it knows; `POLICIES` is what it can
decide by, and `slotwise.scheduling.api` what the author of a policy uses.
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
