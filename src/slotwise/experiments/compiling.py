"""Compiles what all experiments need before the first of them, so that no two of them wait for it."""

from __future__ import annotations

from slotwise.policies import make_policy
from slotwise.simulation.run import ahead
from slotwise.simulation.run.replication import HOOKS_OF_JOBS

POLICIES = ("guarded", "best-fit", "algorithm1", "m14", "g16", "g16-retention")


def compile_ahead() -> None:
    """Compile the policies of the experiments, where this is the first run."""
    ahead.compile_pieces(
        [p for name in POLICIES for p in ahead.pieces_of(make_policy(name), HOOKS_OF_JOBS, [ahead.LOOP])]
    )
