"""`guarded`: best-fit's delay with the paper's guarantee. `turning` is the algorithm; start reading there."""

from __future__ import annotations

from slotwise.policies.guarded.policy import Guarded

__all__ = ["Guarded"]
