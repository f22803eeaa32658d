"""What a policy did wrong, what callers did wrong, and how both are told."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NoReturn

from slotwise.core.contract.hooks import PythonHook
from slotwise.core.contract.policy import Policy
from slotwise.core.steps import FINE, NO_JOB_WAITS, NO_ROOM, NOT_THERE, RAISED
from slotwise.errors import InputError, SlotwiseError
from slotwise.scheduling.events import Outcome

FAULTS = {
    NO_JOB_WAITS: "wanted to start a job of a type that has no waiting job",
    NOT_THERE: "wanted to start a job on a server that takes no jobs",
    NO_ROOM: "wanted to start a job on a server that has no room for it, or may not hold it",
    RAISED: "raised an exception in a compiled hook; take @njit away to see it",
}


def fault_of(policy: Policy, hooks: Sequence[Any], failed: int) -> Exception | None:
    """Return what a policy did wrong, or None."""
    if failed == FINE:
        return None
    for hook in hooks:
        if isinstance(hook, PythonHook) and hook.error is not None:
            error, hook.error = hook.error, None
            if not isinstance(error, Exception):
                raise error  # Ctrl-C is no fault of the policy
            return error
    return SlotwiseError(f"policy {policy.label} {FAULTS.get(failed, 'failed')}")


def telling(outcome: Outcome) -> Exception:
    """Return the fault, with what was decided before it."""
    assert outcome.fault is not None
    for placement in outcome.placements:
        outcome.fault.add_note(f"before that, {placement.job!r} was started on {placement.server!r}")
    return outcome.fault


def refuse_waiting(job: Hashable) -> NoReturn:
    raise InputError(f"job {job!r} has not started", remedy="only running jobs end; cancel a waiting one")


def refuse_without_duration(job: Hashable, policy: Policy) -> NoReturn:
    raise InputError(
        "has no duration", where=f"job {job!r}", remedy=f"{policy.label} is clairvoyant: give duration"
    )
