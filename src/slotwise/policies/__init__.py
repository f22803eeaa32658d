"""Every policy by name, each a class in one module with its hooks beside it.

- `catalogue` lists them; start there, and then with `fit.fitting`, the simplest.
- `paper` (Algorithm 1 and those that its paper compares it with), `fit`, `backfill` (EASY), `rivals` (later papers), `guarded` (the default).

Imports core, region and packing. A policy changes the state by `core.steps.start` and `start_job` only.
"""

from __future__ import annotations

from slotwise.policies.catalogue import POLICIES, make_policy

__all__ = ["POLICIES", "make_policy"]
