"""Why a job runs, waits or is held."""

from __future__ import annotations

from slotwise.live.durations import in_words
from slotwise.live.ledger import Ledger


def explained(ledger: Ledger, number: int, now: float) -> str:
    """Return why a job waits or runs, or that it is being stopped."""
    if number in ledger.holds:
        return f"job {number} is held: {why_held(ledger, number, now)}"
    live = ledger.live.get(number)
    if live is not None and live.stop_asked:
        return f"job {number} is being stopped on server {live.server}: it was asked to end, and its end is not known yet"
    return f"job {ledger.core.explain(number)}"


def why_held(ledger: Ledger, number: int, now: float) -> str:
    """Return what holds a job: other jobs, the back-off before a retry, its array, or the quota of its tenant."""
    reasons = []
    for key, kind, left, first in ledger.holds.open_needs(number):
        what = f"job {first} has not ended" if left == 1 else f"{left:,} jobs have not ended"
        reasons.append(f"it starts after {kind}:{key.number}, and {what}")
    due = ledger.holds.due_of(number)
    if due is not None:
        made = ledger.retried.get(number, 0)
        reasons.append(f"it has failed, and retry {made} begins in {in_words(max(0.0, due - now))}")
    most = ledger.holds.at_once(number)
    if not reasons and most is not None and not ledger.quotas.is_parked(number):
        reasons.append(f"at most {most} jobs of its array are active at the same time, and {most} are")
    if not reasons and (quota := ledger.quotas.why(number)) is not None:
        reasons.append(quota)
    return "; ".join(reasons) or "nothing holds it any more, and it is about to be queued"
