"""Time limits of tenants: the limit of a job that names none, and the longest that a job may name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slotwise.errors import InputError
from slotwise.live.durations import in_words, seconds_of

ALL = ""  # stands for tenants without a limit of their own


def by_tenant(texts: Sequence[str], where: str) -> dict[str, float]:
    """Read `2h` (for all tenants) and `physics=2d`.

    >>> by_tenant(["2h", "physics=2d"], "--time")
    {'': 7200.0, 'physics': 172800.0}
    """
    found: dict[str, float] = {}
    for text in texts:
        tenant, _, amount = text.rpartition("=")
        try:
            seconds = seconds_of(amount)
        except ValueError as error:
            raise InputError(
                f"{amount!r} {error}", where=where, remedy="or like physics=2d, for one tenant"
            ) from None
        if seconds <= 0:
            raise InputError(f"{amount!r} is no time limit", where=where, remedy="use more than 0 seconds")
        found[tenant] = seconds
    return found


@dataclass(frozen=True)
class TimeLimits:
    """In seconds, by tenant."""

    default: dict[str, float] = field(default_factory=dict)
    longest: dict[str, float] = field(default_factory=dict)

    def of(self, tenant: str, asked: float | None) -> float | None:
        """Return the time limit of a job; None: it has none. Raise InputError where the job asks for too much."""
        longest = self.longest.get(tenant, self.longest.get(ALL))
        if asked is None:
            default = self.default.get(tenant, self.default.get(ALL))
            return min((one for one in (default, longest) if one is not None), default=None)
        if longest is not None and asked > longest:
            raise InputError(
                f"{in_words(asked)} is more than jobs of tenant {tenant!r} may have",
                where="time",
                remedy=f"ask for at most {in_words(longest)}",
            )
        return asked
