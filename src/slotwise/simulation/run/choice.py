"""This policy with these options: what is run, and which options of a scenario apply to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slotwise.core.contract.policy import Policy
from slotwise.model import Scenario
from slotwise.policies import POLICIES, make_policy
from slotwise.workloads.jobs import Jobs

PolicyLike = str | type[Policy]  # a name, `file.py:Class` or `module:Class`, or a class of one's own


@dataclass(frozen=True)
class Choice:
    """A policy and its options."""

    policy: PolicyLike
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, scenario: Scenario, policy: PolicyLike | None = None, /, **options: Any) -> Choice:
        """Return the scenario's own policy, or another. The options of a scenario are for its own policy; options
        given here go first."""
        chosen = scenario.policy.name if policy is None else policy
        own = scenario.policy.options if chosen == scenario.policy.name else {}
        return cls(chosen, {**own, **options})

    def make(self) -> Policy:
        """Return a new instance. A mistake in the options raises an error here."""
        if isinstance(self.policy, str):
            return make_policy(self.policy, **self.options)
        return self.policy(**self.options)

    def make_for(self, jobs: Jobs) -> Policy:
        """Return a new instance for these jobs: with their users' estimates if the jobs have some and the policy
        wants them."""
        policy = self.make()
        return policy.with_estimates() if jobs.has_estimates else policy

    @property
    def name(self) -> str:
        """As results name it."""
        return self.policy if isinstance(self.policy, str) else self.policy.name or self.policy.__name__

    @property
    def shipped(self) -> bool:
        """Whether it comes with the package: a user's own policy may do anything."""
        return isinstance(self.policy, str) and self.policy in POLICIES
