"""Which lower bound on the mean queue holds for which policy.

Jobs from laws: the best bound for policies that do not know service times; none for one that does, unless no policy at all can
carry the load. A trace: shortest remaining time first on these very jobs, which bounds every policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from slotwise.model import Scenario
from slotwise.region.ray import Columns
from slotwise.simulation.measure.measurements import Measurements
from slotwise.theory.bounds import Bound, best_lower_bound
from slotwise.theory.tracebound import TraceBound
from slotwise.workloads.jobs import Jobs

CLAIRVOYANT = Bound(0.0, "none", ("the policy knows service times, and no bound for such is known here",))


class LowerBounds:
    """The bounds for one scenario, each worked out once and only if it is asked for."""

    def __init__(self, scenario: Scenario, jobs: Jobs, columns: Columns | None = None) -> None:
        self._scenario, self._jobs, self._columns = scenario, jobs, columns

    def before(self, *, knows_durations: bool) -> Bound:
        """Return the bound that is known before the first run."""
        known = self._by_laws
        return CLAIRVOYANT if knows_durations and known.kind != "unstable" else known

    def of(self, runs: Sequence[Measurements], *, knows_durations: bool) -> Bound:
        """Return the bound for these runs of a policy."""
        if self._scenario.workload.trace is not None:
            return self._on_trace.of(list(runs))
        return self.before(knows_durations=knows_durations)

    @cached_property
    def _by_laws(self) -> Bound:
        return best_lower_bound(self._scenario, self._jobs.rates, self._columns)

    @cached_property
    def _on_trace(self) -> TraceBound:
        return TraceBound(self._scenario, self._jobs)
