"""What is known of a cluster and a load before anything is run: capacity region, guarantees, bounds, Erlang."""

from slotwise.theory.load import columns_of, load_of, region_of, scaled_rates, spaces_of
from slotwise.theory.region import Mix, Region, headroom_by_type, intensity, locate

__all__ = [
    "Mix",
    "Region",
    "columns_of",
    "headroom_by_type",
    "intensity",
    "load_of",
    "locate",
    "region_of",
    "scaled_rates",
    "spaces_of",
]
