"""Fair shares: what the weights of a tenant are multiplied by.

    W_j = g_j b + x phi_t N_t^(-7/8) p_j w_j,        N_t^2 = sum over the tenant's types of p_j w_j Q_j S_j

| symbol | meaning | unit |
|---|---|---|
| w_j | g_j (Q_j + a D_j) (`weights`) | servers x jobs |
| p_j | priority of type j | - |
| phi_t | factor of tenant t, by its share and its use (`core.sharing`) | - |
| N_t | length of the tenant's queues | - |
| S_j | mean service time of type j (`services`) | time |
| x | makes the largest of phi_t N_t^(-7/8) one, so that the margin fits the weights | - |

N_t^(-7/8) lets a tenant with 100,000 waiting jobs weigh about four times as much as a tenant with ten, not ten thousand times. A larger exponent would be fairer to
short queues, and the proof needs one below 1 (docs/theory/shares.md).
"""

from __future__ import annotations

from slotwise.compiler.kernel import kernel
from slotwise.core.sharing import FACTOR, WORK, priority, tenant_of, tenants
from slotwise.core.state import State, offset, order, queue_length, weight
from slotwise.core.steps import next_waiting
from slotwise.policies.guarded.services import mean_service
from slotwise.policies.guarded.weights import weigh as weigh_alone

HALF = -7.0 / 16.0  # of the exponent, as N_t squared is what is added up


@kernel
def weigh(s: State) -> None:
    """Bring the weights of all waiting types up to date, by shares if there are any."""
    weigh_alone(s)
    if s.n_tenants > 0:
        scale(s)


@kernel
def scale(s: State) -> None:
    """Multiply the weights of waiting types, which are up to date, by the factors of their tenants and their priorities."""
    rows = tenants(s)
    for t in range(s.n_tenants):
        rows[t, WORK] = 0.0
    n = next_waiting(s, 0)
    while n >= 0:
        j = order(s)[0, n]
        own = priority(s)[j] * (weight(s)[j] - offset(s)[j])
        rows[tenant_of(s)[j], WORK] += own * queue_length(s)[j] * mean_service(s, j)
        n = next_waiting(s, n + 1)
    most = 0.0
    for t in range(s.n_tenants):
        if rows[t, WORK] > 0.0:
            rows[t, WORK] = rows[t, FACTOR] * rows[t, WORK] ** HALF
            most = max(most, rows[t, WORK])
    n = next_waiting(s, 0)
    while n >= 0:
        j = order(s)[0, n]
        factor = priority(s)[j] * rows[tenant_of(s)[j], WORK] / most
        weight(s)[j] = offset(s)[j] + factor * (weight(s)[j] - offset(s)[j])
        n = next_waiting(s, n + 1)
