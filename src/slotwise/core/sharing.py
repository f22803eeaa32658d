"""Fair shares: the decayed use of each tenant, and the factor by which its share and its use scale its weights.

The use u of a tenant follows what it runs now, r, with a half-life H. Its activity a follows whether a job of the tenant waits:

    u' = (r - u) / tau,    a' = (1{a job waits} - a) / tau,    tau = s H / ln 2,    s = max(1, (N / PATIENT)^2)
    factor = exp(d + i),    d = strength ln(e C / v),    i' = (PACE a d - (1 - a) i) / tau
    c = u + (r - u) PRESENT_PART / s

| symbol | meaning | unit |
|---|---|---|
| r | dominant share: the largest share of a resource of the cluster that the running jobs of the tenant take | - |
| N | waiting jobs of all tenants | jobs |
| e | the tenant's fair share: of its group among its active tenants, times that of the group among active groups | - |
| c | use that counts: in part decayed, in part present | - |
| v | use charged to the tenant: its own c, and its part of the c of idle tenants of its group | - |
| C | sum of the c of all tenants | - |
| d | how far the tenant is below its share, as a logarithm; d and d + i lie within ln B | - |
| i | correction: what d adds up to, within ln MOST_CORRECTION; without it, a tenant with large jobs stays a few percent below its share | - |
| B | `bound`: a factor is at least 1 / B and at most B | - |

The present use stops servers from turning for a tenant that already runs its share. With the decayed use alone, which lags behind by about H, too many turn.

With more than PATIENT waiting jobs everything moves more slowly, and the present counts less. Factors then hardly change while a very long queue is worked off,
and the proof needs no more (docs/theory/shares.md). Between two events nothing changes, so u and a are exact.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import float_rows, floats, int_rows, ints
from slotwise.core import state as st

# Columns of `tenants` and of `tenant_groups`.
SHARE, USE, ACTIVE, CORRECTION, FACTOR, WORK, COUNTED = 0, 1, 2, 3, 4, 5, 6
TENANT_COLUMNS = 7  # of 64 bits
GROUP_SHARE, CLAIM, ACTIVE_GROUP, IDLE_USE = 0, 1, 2, 3
GROUP_COLUMNS = 4  # of 64 bits
PATIENT = 1e6  # waiting jobs; longer queues are rare, and there the guarantee matters more than quick factors
# Of a use that counts. With 0, single windows of 10,000 jobs missed a share by 15 and 22 % at loads of 2 and 1.2 times the shares; with 0.5 by 1.5 %.
PRESENT_PART = 0.5
PACE = 0.25  # of the correction; 1 made shares swing by twice as much, 0.06 took 40 half-lives to reach them
MOST_CORRECTION = 1000.0  # so that a tenant with little work gathers no more credit than that
LEAST_USE = 1e-12  # a tenant that has used nothing


@kernel
def tenants(s: st.State) -> NDArray[np.float64]:
    """(T, 7): SHARE of its group, USE, ACTIVE, CORRECTION, FACTOR, WORK (room for policies), COUNTED (c)."""
    return float_rows(s.at_tenants, s.n_tenants, TENANT_COLUMNS)


@kernel
def groups(s: st.State) -> NDArray[np.float64]:
    """(G, 4): GROUP_SHARE, and room to work in."""
    return float_rows(s.at_tenant_groups, s.n_tenant_groups, GROUP_COLUMNS)


@kernel
def group_of(s: st.State) -> NDArray[np.int64]:
    """(T,): the group of each tenant."""
    return ints(s.at_group_of, s.n_tenants)


@kernel
def tenant_of(s: st.State) -> NDArray[np.int64]:
    """(J,): the tenant of each type."""
    return ints(s.at_tenant_of, s.n_types)


@kernel
def tenant_running(s: st.State) -> NDArray[np.int64]:
    """(T, R): what the running jobs of each tenant take."""
    return int_rows(s.at_tenant_running, s.n_tenants, s.n_resources)


@kernel
def priority(s: st.State) -> NDArray[np.float64]:
    """(J,): the priority factor of each type."""
    return floats(s.at_priority, s.n_types)


@kernel
def advance(s: st.State) -> None:
    """Bring uses, activities and factors up to the time of the event that is about to happen."""
    elapsed = s.now - s.shares_at
    keep = 1.0
    if elapsed > 0.0:
        s.shares_at = s.now
        keep = math.exp(-s.forgetting * elapsed / slowness(s))
        decay(s, keep)
    set_factors(s, 1.0 - keep)


@kernel
def slowness(s: st.State) -> float:
    """Return s."""
    queues = float(s.n_waiting) / PATIENT
    return max(1.0, queues * queues)


@kernel
def decay(s: st.State, keep: float) -> None:
    """Let uses and activities follow what has been since the last event. `keep` is the weight of what was before."""
    rows, total = tenants(s), cluster_capacity(s)
    for t in range(s.n_tenants):
        share = dominant_share(s, t, total)
        rows[t, USE] = share + (rows[t, USE] - share) * keep
        rows[t, ACTIVE] *= keep
        rows[t, WORK] = 0.0
    for j in range(s.n_types):
        t = tenant_of(s)[j]
        if st.queue_length(s)[j] > 0 and rows[t, WORK] == 0.0:
            rows[t, WORK] = 1.0
            rows[t, ACTIVE] += 1.0 - keep


@kernel
def dominant_share(s: st.State, t: int, total: NDArray[np.float64]) -> float:
    """Return r: the largest share of a resource that the running jobs of the tenant take."""
    share = 0.0
    for r in range(s.n_resources):
        if total[r] > 0.0:
            share = max(share, tenant_running(s)[t, r] / total[r])
    return share


@kernel
def cluster_capacity(s: st.State) -> NDArray[np.float64]:
    """(R,): the capacity of all servers that take jobs."""
    total = floats(s.at_cluster_capacity, s.n_resources)
    for r in range(s.n_resources):
        total[r] = 0.0
        for c in range(s.n_classes):
            total[r] += float(st.present_by_class(s)[c]) * st.capacity(s)[c, r]
    return total


@kernel
def set_factors(s: st.State, passed: float) -> None:
    """Work out the factor of each tenant from uses and activities. `passed` is the weight of the time since the last event, 0 if only factors are lost."""
    rows, above, total, present = tenants(s), groups(s), cluster_capacity(s), PRESENT_PART / slowness(s)
    for g in range(s.n_tenant_groups):
        above[g, CLAIM] = above[g, ACTIVE_GROUP] = above[g, IDLE_USE] = 0.0
    used = 0.0
    for t in range(s.n_tenants):
        group = above[group_of(s)[t]]
        rows[t, COUNTED] = rows[t, USE] + present * (dominant_share(s, t, total) - rows[t, USE])
        group[CLAIM] += rows[t, SHARE] * rows[t, ACTIVE]
        group[ACTIVE_GROUP] = max(group[ACTIVE_GROUP], rows[t, ACTIVE])
        group[IDLE_USE] += (1.0 - rows[t, ACTIVE]) * rows[t, COUNTED]
        used += rows[t, COUNTED]
    claims = 0.0
    for g in range(s.n_tenant_groups):
        claims += above[g, GROUP_SHARE] * above[g, ACTIVE_GROUP]
    most = math.log(s.share_bound)
    for t in range(s.n_tenants):
        group, row = above[group_of(s)[t]], rows[t]
        active, use = row[ACTIVE], row[COUNTED]
        # the shares that hold while this tenant waits with the tenants that usually wait
        part = row[SHARE] / (group[CLAIM] + row[SHARE] * (1.0 - active))
        of_group = group[GROUP_SHARE] / (claims + group[GROUP_SHARE] * (1.0 - group[ACTIVE_GROUP]))
        charged = use + part * (group[IDLE_USE] - (1.0 - active) * use)
        ratio = part * of_group * used / max(charged, LEAST_USE) if used > LEAST_USE else 1.0
        below = limited(s.share_strength * math.log(max(ratio, LEAST_USE)), most)
        correction = row[CORRECTION] + passed * (PACE * active * below - (1.0 - active) * row[CORRECTION])
        row[CORRECTION] = limited(correction, math.log(MOST_CORRECTION))
        row[FACTOR] = math.exp(limited(below + row[CORRECTION], most))


@kernel
def limited(value: float, most: float) -> float:
    """Return the value, at least -most and at most most."""
    return min(max(value, -most), most)


@kernel
def charge(s: st.State, i: int, j: int, sign: int) -> None:
    """Charge (sign 1) a job that starts to its tenant, or discharge (sign -1) a job that leaves its server."""
    row = tenant_running(s)[tenant_of(s)[j]]
    for r in range(s.n_resources):
        row[r] += sign * (st.job_demand(s)[i, r] if s.actual else st.demand(s)[j, r])
