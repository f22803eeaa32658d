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

# `services`
NEVER = 1e18
EVENTS_SINCE = MEMORY.count("events_since_count")
LAST_COUNT = MEMORY.number("last_count", start=-NEVER)  # when
JOB_TIME = MEMORY.numbers("job_time", per="type")  # running jobs, summed over time
COMPLETED = MEMORY.numbers("completed_jobs", per="type")  # in the same period
ALL_JOB_TIME = MEMORY.number("all_job_time")
ALL_COMPLETED = MEMORY.number("all_completed_jobs")
BUSY_TIME = MEMORY.number("busy_time")  # time during which jobs waited
SIZE_COMPLETED = MEMORY.number("size_completed_busy")  # sizes of the jobs that completed in it
DRAINS_EXPECTED = MEMORY.number(
    "drain_time_expected"
)  # time that all turns should have taken, by their service times
DRAINS_TOOK = MEMORY.number("drain_time_taken")  # time that servers were turning

# `rules`
# Size of the jobs completed since the last turn, in servers. A server that has not turned yet may turn at once.
SINCE_TURN = MEMORY.numbers("size_since_turn", per="server", start=NEVER)

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
WORK = MEMORY.number("work")  # size x time of the jobs that have completed
AS_ESTIMATED = MEMORY.number("as_estimated")  # the part of it that was as estimated
LAST_EVENT = MEMORY.number("last_event", start=-NEVER)  # when
ELAPSED = MEMORY.number("elapsed")
IDLE = MEMORY.number("idle")
IDLE_NOW = MEMORY.number(
    "idle_now"
)  # free capacity of the reserved server since the last event, as a share of all capacity
