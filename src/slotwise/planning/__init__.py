"""How many servers, and which setting: theory where it decides, simulation where it does not."""

from slotwise.planning.plan import Plan, plan
from slotwise.planning.targets import MEANINGS, check_targets, parse_targets
from slotwise.planning.tradeoff import Setting, Tradeoff, tradeoff
from slotwise.planning.trials import Trial, Verdict

__all__ = [
    "MEANINGS",
    "Plan",
    "Setting",
    "Tradeoff",
    "Trial",
    "Verdict",
    "check_targets",
    "parse_targets",
    "plan",
    "tradeoff",
]
