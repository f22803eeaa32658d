"""What is known of a cluster and a load before anything is run: capacity region, guarantees, bounds, Erlang.

- `capacity`: what `slotwise capacity` answers; start there. `guarantee`: how far the claim of a policy reaches, `needs` what it needs.
- `bounds`, `erlang`, `srpt`, `tracebound`: lower bounds on queues. `peak`: rates that change. `certificates`: proofs that can be checked.

Imports workloads, policies, region and what is below them.
"""

from slotwise.region.region import Headroom, Mix, Region, headroom_by_type, intensity, locate
from slotwise.theory.bounds import Bound, best_lower_bound
from slotwise.theory.capacity import Capacity, assess
from slotwise.theory.certificates import verify_separation, verify_witness
from slotwise.theory.guarantee import Guarantee, Verdict, guarantee, guarantees
from slotwise.theory.load import actual_load, columns_of, load_of, region_of, scaled_rates, with_load
from slotwise.theory.srpt import srpt_mean_queue

__all__ = [
    "Bound",
    "Capacity",
    "Guarantee",
    "Headroom",
    "Mix",
    "Region",
    "Verdict",
    "actual_load",
    "assess",
    "best_lower_bound",
    "columns_of",
    "guarantee",
    "guarantees",
    "headroom_by_type",
    "intensity",
    "load_of",
    "locate",
    "region_of",
    "scaled_rates",
    "srpt_mean_queue",
    "verify_separation",
    "verify_witness",
    "with_load",
]
