"""Proofs of an intensity, checked in exact arithmetic by other means than those that found them.

Any mix of feasible configurations proves an upper limit on zeta, any prices prove a lower one:

    max_j rho_j / carried_j   >=   zeta   >=   w.rho / W(w).

Both are computed here in fractions: floats are taken at their exact value, feasibility is added up in
integers, and W(w) is found by plain recursion over everything that fits. Slow, short and independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from slotwise.errors import SlotwiseError
from slotwise.packing import Space
from slotwise.region.pricing import Vector
from slotwise.region.region import Mix

STATES = 500_000  # The most states that the recursion for W(w) visits per server class.


class CertificateError(SlotwiseError):
    """A proof that does not prove what it should, or is too large to be checked this way."""


def verify_witness(
    rho: Sequence[float] | Vector, spaces: Sequence[Space], counts: Sequence[int], witness: Sequence[Mix]
) -> Fraction:
    """Return the intensity that the witness proves: with it, rho <= zeta * (the load that the mix carries)."""
    load = [Fraction(float(x)) for x in rho]
    carried = [Fraction(0)] * len(load)
    for space, count, mix in zip(spaces, counts, witness, strict=True):
        shares = [Fraction(float(share)) for share in mix.shares]
        if any(share < 0 for share in shares):
            raise CertificateError("a share is negative")
        whole = max(Fraction(1), sum(shares, Fraction(0)))  # rounding may have left a little more than all servers
        for row, share in zip(mix.configurations.tolist(), shares, strict=True):
            if any(k < 0 for k in row) or not _fits(space, row):
                raise CertificateError(f"configuration {tuple(row)} does not fit its server")
            for j, k in enumerate(row):
                carried[j] += count * share / whole * k
    if any(x > 0 and c == 0 for x, c in zip(load, carried, strict=True)):
        raise CertificateError("a type that arrives is not carried at all")
    return max((x / c for x, c in zip(load, carried, strict=True) if x > 0), default=Fraction(0))


def verify_separation(
    rho: Sequence[float] | Vector, spaces: Sequence[Space], counts: Sequence[int], prices: Sequence[float] | Vector
) -> Fraction | None:
    """Return the intensity that the prices prove rho to have at least; None stands for infinite (W = 0 < w.rho).

    Above 1 the prices separate rho from the capacity region: no policy whatsoever carries the load.
    """
    w = [Fraction(float(price)) for price in prices]
    if any(price < 0 for price in w):
        raise CertificateError("a price is negative")
    unit = max((price.denominator for price in w), default=1)  # floats: powers of two, so the largest serves all
    whole = [int(price * unit) for price in w]
    worth = Fraction(
        sum(count * _most(space, whole) for space, count in zip(spaces, counts, strict=True) if count), unit
    )
    paid = sum((price * Fraction(float(x)) for price, x in zip(w, rho, strict=True)), Fraction(0))
    if worth == 0:
        if paid == 0:
            raise CertificateError("the prices are worth nothing, so they prove nothing")
        return None
    return paid / worth


def _fits(space: Space, row: Sequence[int]) -> bool:
    if space.predicate is not None:
        return bool(space.predicate(tuple(row)))
    assert space.demand is not None
    assert space.capacity is not None
    sizes = space.demand.tolist()
    if any(k > 0 and space.most(j) == 0 for j, k in enumerate(row)):
        return False  # each alone too large, or not allowed on this class
    return all(
        sum(k * size[r] for k, size in zip(row, sizes, strict=True)) <= room
        for r, room in enumerate(space.capacity.tolist())
    )


def _most(space: Space, prices: Sequence[int]) -> int:
    """Return max {w.k : k fits} in integers, by visiting everything that can be reached by adding jobs one by one."""
    if space.predicate is not None:
        return _most_by_predicate(space, prices)
    assert space.demand is not None
    assert space.capacity is not None
    sizes = [tuple(size) for size in space.demand.tolist()]
    kinds = [j for j in range(len(sizes)) if prices[j] > 0 and space.most(j) > 0]
    best = {tuple(space.capacity.tolist()): 0}
    most = 0
    # Free room is left by jobs in a fixed order of types, so that each type's states follow the earlier ones'.
    for j in kinds:
        waiting = list(best)
        while waiting:
            room = waiting.pop()
            left = tuple(have - need for have, need in zip(room, sizes[j], strict=True))
            worth = best[room] + prices[j]
            if min(left) >= 0 and best.get(left, -1) < worth:
                best[left] = worth
                most = max(most, worth)
                waiting.append(left)
                if len(best) > STATES:
                    raise CertificateError("too many configurations to check the prices one by one")
    return most


def _most_by_predicate(space: Space, prices: Sequence[int]) -> int:
    assert space.predicate is not None
    start = (0,) * space.n_types
    seen = {start}
    waiting = [start]
    most = 0
    while waiting:
        k = waiting.pop()
        most = max(most, sum(price * n for price, n in zip(prices, k, strict=True)))
        for j in range(space.n_types):
            up = (*k[:j], k[j] + 1, *k[j + 1 :])
            if up not in seen and space.predicate(up):
                seen.add(up)
                waiting.append(up)
                if len(seen) > STATES:
                    raise CertificateError("too many configurations to check the prices one by one")
    return most
