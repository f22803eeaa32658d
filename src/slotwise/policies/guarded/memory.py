"""What `guarded` remembers between events."""

from __future__ import annotations

from slotwise.core.contract.memory import Memory
from slotwise.policies.backfill import reservation

MEMORY = Memory()

# Options.
MARGIN = MEMORY.number("margin", kept=False)
TIGHTNESS = MEMORY.number("tightness", kept=False)

# `weights`
SIZES = MEMORY.numbers("sizes", per="type", kept=False)  # g_j

# `services`: service times, relative to each other
SAMPLES = MEMORY.count("arrivals_since_count")
LAST_COUNT = MEMORY.number("last_count")
SEEN_RUNNING = MEMORY.numbers("seen_running", per="type")  # sum of the counts of running jobs
COMPLETED = MEMORY.numbers("completed", per="type")  # completions in the same period
ALL_COMPLETED = MEMORY.number("all_completed")
SIZE_COMPLETED = MEMORY.number("size_completed")  # sum of the sizes of the completed jobs
ALL_SEEN = MEMORY.number("all_seen")
COUNTS = MEMORY.number("counts")  # how often running jobs were counted
DRAINS_EXPECTED = MEMORY.number(
    "drains_expected"
)  # periods that all turns should have taken, by their service times
DRAINS_TOOK = MEMORY.number("drains_took")  # periods that servers were turning
NEVER = 1e18  # servers; a server that has not turned yet may turn at once
SINCE_TURN = MEMORY.numbers(
    "size_since_turn", per="server", start=NEVER
)  # size of the jobs completed since the last turn

# `refill`
CANDIDATES = MEMORY.counts("candidates", per="type", columns=2, kept=False)  # by size, and in the order of a refill
LISTED = MEMORY.count("listed", kept=False)  # how many candidates

# why the server turns, for explanations: held weight, best weight, margin
REASON = MEMORY.numbers("turn_reason", per="server", columns=3)

# `placement`
SHARES = MEMORY.numbers("shares", per="type", kept=False)  # what a job counts in V, the mean over the resources
UNITS = MEMORY.numbers("units", per="resource", kept=False)  # what a unit of a resource counts in V
REST = MEMORY.counts("rest", per="resource", kept=False)
SEARCH_ROOM = MEMORY.counts(
    "search_room", per=lambda store: store.state.n_types + 1, columns="resource", kept=False
)
SEARCH_COUNTS = MEMORY.counts("search_counts", per="type", kept=False)
SEARCH_TYPES = MEMORY.counts("search_types", per="type", kept=False)
SEARCH_VALUES = MEMORY.numbers("search_values", per=lambda store: store.state.n_types + 1, kept=False)
MEMO = 4096  # free vectors whose V is remembered
KEYS = MEMORY.counts("keys", per=MEMO, columns=lambda store: store.state.n_resources + 1, kept=False)
VALUES = MEMORY.numbers("values", per=MEMO, kept=False, start=-1.0)

# `overdue`
RESERVATION = reservation.declare(MEMORY)
LAST_EVENT = MEMORY.number("last_event")  # when
ELAPSED = MEMORY.number("elapsed")
IDLE = MEMORY.number("idle")
IDLE_NOW = MEMORY.number(
    "idle_now"
)  # free capacity of the reserved server since the last event, as a share of all capacity
