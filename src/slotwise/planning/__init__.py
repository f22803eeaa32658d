"""How many servers, and which setting: theory where it decides, simulation where it does not.

- `plan`: the fewest servers that meet targets; start there. `search` chooses what is tried, `trials` runs it, `limit` bounds it from below.
- `tradeoff`: one option of a policy, its guarantee against its queues. `targets`: what may be asked for.

Imports simulation and everything below it.
"""

from slotwise.planning.plan import Plan, plan
from slotwise.planning.targets import MEANINGS, check_targets, parse_targets
from slotwise.planning.tradeoff import Setting, Tradeoff, tradeoff
from slotwise.planning.trials import TargetAnswer, Trial

__all__ = [
    "MEANINGS",
    "Plan",
    "Setting",
    "TargetAnswer",
    "Tradeoff",
    "Trial",
    "check_targets",
    "parse_targets",
    "plan",
    "tradeoff",
]
