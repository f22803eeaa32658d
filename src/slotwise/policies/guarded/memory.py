"""What `guarded` remembers, beside what `slots` does, whose beta it uses. J types, R resources."""

from __future__ import annotations

from slotwise.core.contract.memory import Memory
from slotwise.policies.backfill import reservation
from slotwise.policies.paper import slots

MEMORY = Memory(slots.MEMORY)

# options
BASE = MEMORY.number("tightness", kept=False)
EXPONENT = MEMORY.number("size_exponent", kept=False)
POWER = MEMORY.number("scarcity", kept=False)
PERSISTENCE = MEMORY.number("persistence", kept=False)
FLOOR = MEMORY.number("floor", kept=False)
STANDING = MEMORY.number("standing", kept=False)
PATIENCE = MEMORY.number("patience", kept=False)
OVERDUE = MEMORY.number("overdue", kept=False)
DRAIN_SHARE = MEMORY.number("drain_share", kept=False)
DRAIN_LIMIT = MEMORY.number("drain_limit", kept=False)
FLOOD = MEMORY.number("flood", kept=False)

# `turning`
SPOILS = MEMORY.count("spoils", start=1)
"""whether V(F) means anything here"""
CLOCK = MEMORY.count("clock")
"""events so far"""
NEXT_LOOK = MEMORY.count("next_look")
"""at how many turns are looked at again"""
TURN = MEMORY.numbers("turn", per="server", columns=4)
RAN = MEMORY.counts("turn_ran", per="server")
"""how many jobs ran when a server began to turn"""
SETTLED = MEMORY.count("settled", kept=False)
"""whether it is known that no head of line fits anywhere but where room has just appeared"""
PLACE = MEMORY.count("place", kept=False)
FILL = MEMORY.count("fill", kept=False)
MAKE_USE = MEMORY.count("make_use", kept=False)
GO_ON = MEMORY.count("go_on", kept=False)
"""where `place`, `find_filling`, `make_use` and `go_on` are, which are linked late"""

# `expected`
PLAN = MEMORY.count("plan", kept=False)
"""where `make_plan` is"""
GUESSED = MEMORY.count("guessed", kept=False)
"""whether durations are users' estimates, not the truth"""
RESERVATION = reservation.declare(MEMORY)

# `gains`
ENDED = MEMORY.count("completions")
NEXT_ESTIMATE = MEMORY.count("next_estimate", start=256)
ARRIVED = MEMORY.count("arrivals")
PACES = MEMORY.numbers("paces", per="type", start=1.0)
ENDED_BY_TYPE = MEMORY.numbers("ended", per="type")
COUNTED = MEMORY.numbers("counted", per="type")
COMMON = MEMORY.numbers("common", per="type", start=1.0)
FLOODED = MEMORY.count("flooded")
"""whether far more jobs wait than usual"""
LASTING = MEMORY.counts("lasting", per="type", kept=False)
LONG_MEAN = MEMORY.number("long_mean_queue")
SLOTS = MEMORY.counts("slots", per="type", kept=False)
CHEAP = MEMORY.count("cheap", kept=False)
"""types of which a standing slot costs next to nothing"""

# `drains`
DRAINS = MEMORY.servers("drains", per="type")
BEGAN = MEMORY.numbers("drain_began", per="server")
EXPECTED = MEMORY.numbers("drain_expected", per="server", start=1.0)
"""of a server that drains: at which arrival it began, and in how many it should be over"""
NEXT_DRAIN = MEMORY.count("next_drain")
"""at which event is asked again whether a server should drain"""
NEXT_OVERDUE = MEMORY.count("next_overdue")
"""at which arrival somebody may be overdue"""
MEAN_QUEUE = MEMORY.number("mean_queue")
CREDIT = MEMORY.number("drain_credit")
"""arrivals times servers that drains for overdue jobs may still take"""
STRETCH = MEMORY.number("drain_stretch", start=1.0)
"""how many times as long as thought drains were"""
LENGTHS = MEMORY.number("drain_lengths", kept=False)
"""the mean service time of those who must leave, over that of all"""

# `floors`
HOLDERS = MEMORY.servers("standing_slots", per="type")

# `usable`
SEEN = MEMORY.count("seen")
"""completions since prices were set"""
STALE = MEMORY.count("stale", kept=False, start=1)
"""whether prices of jobs are out of date"""
USE = MEMORY.numbers("use", per="resource")
RESOURCE_PRICES = MEMORY.numbers("prices", per="resource", start=1.0)
PRICES = MEMORY.numbers("job_prices", per="type", kept=False)
HOPED = MEMORY.numbers("hoped", per="type", kept=False)
HOSTS = MEMORY.numbers("hosts", per=lambda store: store.state.n_types + 1, kept=False)
UNIT_PRICES = MEMORY.numbers("unit_prices", per="resource", kept=False)
SCARCITY = MEMORY.numbers("type_scarcity", per="type", kept=False)
SOUGHT = MEMORY.numbers("sought", per=lambda store: store.state.n_classes, kept=False)
BOUNDS = MEMORY.numbers("bounds", per="type", columns=lambda store: store.state.n_resources + 1, kept=False)
REST = MEMORY.counts("rest", per="resource", kept=False)
SEARCH_ROOM = MEMORY.counts(
    "search_room", per=lambda store: store.state.n_types + 1, columns="resource", kept=False
)
SEARCH_COUNTS = MEMORY.counts("search_counts", per="type", kept=False)
SEARCH_TYPES = MEMORY.counts("search_types", per="type", kept=False)
SEARCH_VALUES = MEMORY.numbers("search_values", per=lambda store: store.state.n_types + 1, kept=False)
MEMO = 4096
"""free vectors of which V is remembered"""
KEYS = MEMORY.counts("keys", per=MEMO, columns=lambda store: store.state.n_resources + 1, kept=False)
VALUES = MEMORY.numbers("values", per=MEMO, kept=False, start=-1.0)

# `fillings`
CANDIDATES = MEMORY.counts("candidates", per="type", columns=2, kept=False)
"""types of which somebody waits and fits, from large to small, and in the order of a filling"""
HELD = MEMORY.number("held", kept=False)
"""the weight that a server would hold with the best filling"""
