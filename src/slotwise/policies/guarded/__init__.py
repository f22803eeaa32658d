"""The default policy, on one page: `rules` has its rules in order, `weights` and `margin` its two formulas.

Start with `rules`. `docs/theory/guarded.md` has the theorem; its proof names the functions of this package. May import: core, packing.
"""

from slotwise.policies.guarded.policy import Guarded as Guarded
from slotwise.policies.guarded.policy import GuardedOptions as GuardedOptions
