"""Scheduling: who starts where. Pure decisions, without a clock, input or output.

`Scheduler` is the core for other programs, `POLICIES` what it can decide by, and `slotwise.scheduling.api` what the author of a
policy uses.
"""

from __future__ import annotations

from slotwise.scheduling.policies import POLICIES, make_policy
from slotwise.scheduling.policy import Policy
from slotwise.scheduling.reasons import Because, Explanation, Reason
from slotwise.scheduling.scheduler import Event, Placement, Scheduler, Snapshot

__all__ = [
    "POLICIES",
    "Because",
    "Event",
    "Explanation",
    "Placement",
    "Policy",
    "Reason",
    "Scheduler",
    "Snapshot",
    "make_policy",
]
