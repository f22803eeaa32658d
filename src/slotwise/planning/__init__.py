"""How many servers, and which setting: theory where it decides, simulation where it does not."""

from slotwise.planning.plan import Plan, plan
from slotwise.planning.targets import MEANINGS, check_targets, parse_targets
from slotwise.planning.tradeoff import Setting, Tradeoff, tradeoff
from slotwise.planning.trials import Answer, Trial

__all__ = [
    "MEANINGS",
    "Answer",
    "Plan",
    "Setting",
    "Tradeoff",
    "Trial",
    "check_targets",
    "parse_targets",
    "plan",
    "tradeoff",
]
