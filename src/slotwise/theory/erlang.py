"""Many alike servers: M/M/n by Erlang's formulas.

With offered load a = lambda / mu on n servers, the loss probability obeys

    B(0) = 1,   B(k) = a B(k-1) / (k + a B(k-1)),

a recursion of positive terms that damps every error made before, so it holds to rounding for a million servers and
more. The probability to wait is C = n B / (n - a (1 - B)). Waits are 0 with probability 1 - C and else exponential of
rate n mu - lambda. E[Q] = C a / (n - a).
"""

from __future__ import annotations

import math

from slotwise.compiler.kernel import as_python, kernel
from slotwise.errors import InputError

FEW = 20_000  # steps that plain Python does before the compiler would be ready


@kernel
def _loss(n: int, a: float) -> float:
    loss = 1.0
    for k in range(1, n + 1):
        loss = a * loss / (k + a * loss)
    return loss


def erlang_b(n: int, a: float) -> float:
    """Return the share of arrivals that find all n servers busy and are lost (M/G/n/n)."""
    _check(n, a)
    if a == 0:
        return float(n == 0)
    return (as_python(_loss) if n <= FEW else _loss)(n, a)


def erlang_c(n: int, a: float) -> float:
    """Return the share of arrivals that wait (M/M/n), or 1 if the load is too much for the servers."""
    _check(n, a)
    if a >= n:
        return 1.0
    loss = erlang_b(n, a)
    return n * loss / (n - a * (1 - loss))


def mean_queue(n: int, a: float) -> float:
    """Return E[Q] of M/M/n, the mean number of waiting jobs; infinite if a >= n."""
    return erlang_c(n, a) * a / (n - a) if a < n else math.inf


def mean_wait(n: int, rate: float, mean_service: float) -> float:
    """Return E[wait] of M/M/n."""
    return mean_queue(n, rate * mean_service) / rate if rate > 0 else 0.0


def wait_quantile(n: int, rate: float, mean_service: float, p: float) -> float:
    """Return the least t with P(wait <= t) >= p in M/M/n, first come first served."""
    if not 0 <= p < 1:
        raise InputError(f"is {p}", where="probability of a quantile", remedy="use a number from 0 to less than 1")
    a = rate * mean_service
    if a >= n:
        return math.inf
    waits = erlang_c(n, a)
    return math.log(waits / (1 - p)) * mean_service / (n - a) if waits > 1 - p else 0.0


def _check(n: int, a: float) -> None:
    if n < 0 or not (a >= 0 and math.isfinite(a)):
        raise InputError(
            f"{n} servers with load {a}", where="Erlang's formula", remedy="use whole n >= 0 and a finite load >= 0"
        )
