"""Every policy by name. The kernels are in the modules beside; here are their names, options and parameters."""

from __future__ import annotations

from slotwise.policies.catalogue import POLICIES, make_policy

__all__ = ["POLICIES", "make_policy"]
