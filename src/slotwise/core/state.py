"""The scheduling state: one record of counters, parameters and array addresses, and accessors that give the views.

Symbols are the paper's: J types, R resources, C server classes, S server numbers (present or not), N job numbers.
A job waits in the queue of its type, then runs on one server until it is finished; its number is then used again.
Nothing here decides anything: policies do (`slotwise.policies`), through `start` and `start_job` of `steps`.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.compiler.views import float_rows, floats, int_rows, ints, record_viewer, short_rows
from slotwise.core.records import dtype_of

# Columns of `jobs`; NEXT, PREVIOUS and QUEUE say where a job stands in its queue, in its server's list or in the chain of
# unused job numbers. The last two columns are one number of 64 bits, `sequence`: all that is kept of a job is half a cache line.
TYPE, SERVER, NEXT, PREVIOUS, QUEUE = 0, 1, 2, 3, 4
JOB_COLUMNS = 8  # of 32 bits, the last two of which hold the sequence number
NOWHERE, WAITING = -2, -1  # values of SERVER beside a server's number; NOWHERE marks an unused job number

# Columns of `servers`; behind them stand the jobs and then the slots of each type, so that with few types all that a
# decision touches is one cache line.
CLASS, STATUS, MODE, COUNT = 0, 1, 2, 3
SERVER_COLUMNS = 4  # of 32 bits, before the counts by type
ABSENT, PRESENT, DRAINING = 0, 1, 2  # STATUS
EMPTY, ACTIVE, STALLED = 0, 1, 2  # MODE; EMPTY holds no configuration

# Columns of `chains`: where a server stands in the index of free room, and the first job of its list.
GROUP, GROUP_NEXT, GROUP_PREVIOUS, FIRST_JOB = 0, 1, 2, 3
CHAIN_COLUMNS = 4  # of 32 bits

# Columns of `queues`.
LENGTH, HEAD, TAIL = 0, 1, 2
QUEUE_COLUMNS = 4  # of 64 bits

# Columns of `classes`: where a class's candidates and solver parameters stand.
TABLE_START, TABLE_END, SOLVER, FLOATS_START, FLOATS_END, INTS_START, INTS_END, SUMS_START = 0, 1, 2, 3, 4, 5, 6, 7
CLASS_COLUMNS = 8  # a cache line of 64 bytes

# Columns of `policy_fields`: where a field of the policy's memory lies, and its shape.
FIELD_AT, FIELD_ROWS, FIELD_COLUMNS = 0, 1, 2


class State:
    """What the record holds, a line for each number. `at_...` are addresses: read them through the accessors."""

    # sizes
    n_types: int
    n_resources: int
    n_classes: int
    max_servers: int  # rows of the table; no decision may depend on it
    max_jobs: int
    n_queues: int
    n_table: int
    n_table_entries: int
    n_sums: int  # blocks of them
    n_block: int
    n_columns: int
    n_column_rows: int
    n_tops: int
    # counters
    n_servers: int  # present and not draining: the paper's L
    n_places: int  # server numbers that were ever given out: all are below
    n_stalled: int
    n_waiting: int
    n_running: int
    n_placed: int  # placements of the present event
    n_moved: int  # jobs that the present event moved back into a queue
    free_job: int  # head of the chain of unused job numbers
    n_free_jobs: int
    last_sequence: int
    stalls: int
    resets: int
    departed: int  # the job that left a server last; only where `keeps_times`
    off_schedule: int  # a job has ended at another time than expected; only where `keeps_times`
    failed: int  # what a policy did that it must not do: one of the codes of `steps`
    # the time of the event; kept for policies with `keeps_clock`, for durations and for fair shares
    now: float
    tick_rate: float  # the policy's own clock: `tick` is called after Exp(tick_rate)
    # random numbers of the policy
    random_x: int
    random_y: int
    random_z: int
    random_w: int
    # what the policy asked to be kept
    keeps_free: int
    keeps_fit: int
    keeps_tree: int
    files_late: int  # at a completion the indexes are told when the policy is done: until then it does not ask them
    unfiled: int  # the server of which they are still to be told, plus 1; 0: none
    keeps_lists: int
    keeps_times: int
    keeps_use: int
    keeps_line: int
    own_queues: int  # one queue per server and type instead of one per type
    actual: int  # pack by the actual demand of a job, not by its type's
    restricted: int  # some class may not hold some type that would fit it
    need_type: int  # the type that is being placed, whose demand is in `need`
    log_weights: int
    gained: int  # weights are gain_j Q_j + offset_j, not Q_j
    keeps_ranks: int  # which types have a waiting job, from large to small
    random_ties: int
    # fair shares (`sharing`): 0 tenants where there are none
    n_tenants: int
    n_tenant_groups: int
    forgetting: float  # ln 2 / half-life
    share_strength: float
    share_bound: float
    shares_at: float  # the time up to which uses are known
    # sizes of the indexes
    n_server_columns: int
    n_words: int
    n_words_0: int
    n_words_1: int
    n_words_2: int
    n_tree: int
    # the waiting jobs by what they ask for (`linetree`)
    line_alone: int  # each job is a leaf: they have expected durations
    line_last: int  # a job that waits and is not filed yet, -1: none
    line_unused: int
    n_line_used: int
    n_line_nodes: int
    n_line_groups: int
    n_line_stack: int
    max_cells: int
    n_cell_axis: int
    n_slots_hash: int
    n_policy_ints: int
    n_policy_floats: int
    n_policy_fields: int
    n_scratch_floats: int
    n_scratch_ints: int
    n_params_floats: int
    n_params_ints: int
    # hooks that are linked late: what keeps the indexes, what finds configurations without a table
    hook_reindex: int
    hook_line: int
    hook_solve: int
    hook_follow: int
    # searches for configurations
    most_nodes: int  # 0: until the search ends
    floor: float  # a configuration that weighs no more is not sought
    gave_up: int  # whether the last one did not end
    # the listed candidates
    listed_best: float  # the most that one weighs, by the last question
    follow_limit: int  # with so many waiting sums may be too large to follow
    half_limit: int  # and to follow in 16 bits
    # addresses
    at_jobs: int
    at_job_demand: int
    at_job_times: int
    at_servers: int
    at_chains: int
    at_queues: int
    at_queue_length: int
    at_weight: int
    at_gain: int
    at_offset: int
    at_rank: int
    at_waiting_ranks: int
    at_watch: int
    at_most_jobs: int
    at_least: int
    at_near: int
    at_demand: int
    at_capacity: int
    at_most: int
    at_allowed: int
    at_classes: int
    at_real_table: int
    at_table_ends: int
    at_table_types: int
    at_table_counts: int
    at_table_values: int
    at_tied: int
    at_sums: int
    at_peaks: int
    at_followed: int
    at_half_sums: int
    at_half_peaks: int
    at_half_followed: int
    at_first_columns: int
    at_columns: int
    at_column_rows: int
    at_first_tops: int
    at_tops: int
    at_free: int
    at_used: int
    at_running_by_type: int
    at_bits: int
    at_placed: int
    at_moved: int
    at_choice: int
    at_order: int
    at_largest_capacity: int
    at_line_nodes: int
    at_line_low: int
    at_line_high: int
    at_line_time: int
    at_line_links: int
    at_line_roots: int
    at_line_group_type: int
    at_line_type_group: int
    at_line_shift: int
    at_line_stack: int
    at_line_promise: int
    at_tree: int
    at_tree_types: int
    at_groups: int
    at_group_free: int
    at_cells: int
    at_filled: int
    at_cell_steps: int
    at_cell_edges: int
    at_hash: int
    at_score: int
    at_need: int
    at_shortest: int
    at_mean_service: int
    at_policy_ints: int
    at_policy_floats: int
    at_policy_fields: int
    at_present_by_class: int
    at_scratch_floats: int
    at_scratch_ints: int
    at_params_floats: int
    at_params_ints: int
    at_tenants: int
    at_tenant_groups: int
    at_group_of: int
    at_tenant_of: int
    at_tenant_running: int
    at_cluster_capacity: int
    at_priority: int


DTYPE = dtype_of(State)
RECORD = numba.from_dtype(DTYPE)
record = record_viewer(RECORD, DTYPE)  # the state, given itself or its address


@kernel
def jobs(s: State) -> NDArray[np.int32]:
    """(N, 8): TYPE, SERVER, NEXT, PREVIOUS, QUEUE."""
    return short_rows(s.at_jobs, s.max_jobs, JOB_COLUMNS)


@kernel
def sequence(s: State) -> NDArray[np.int64]:
    """(N,): a number for each job that grows with every arrival."""
    return int_rows(s.at_jobs, s.max_jobs, JOB_COLUMNS // 2)[:, JOB_COLUMNS // 2 - 1]


@kernel
def job_demand(s: State) -> NDArray[np.int64]:
    """(N, R): what each job really asks for; only where `actual`."""
    return int_rows(s.at_job_demand, s.max_jobs, s.n_resources)


@kernel
def job_times(s: State) -> NDArray[np.float64]:
    """(N, 2): expected duration, expected end; only for clairvoyant policies (`keeps_times`)."""
    return float_rows(s.at_job_times, s.max_jobs, 2)


@kernel
def servers(s: State) -> NDArray[np.int32]:
    """(S, 4 + 2 J and more): CLASS, STATUS, MODE, COUNT; then `running`, `configuration`."""
    return short_rows(s.at_servers, s.max_servers, s.n_server_columns)


@kernel
def chains(s: State) -> NDArray[np.int32]:
    """(S, 4): GROUP, GROUP_NEXT, GROUP_PREVIOUS, FIRST_JOB; only where `keeps_fit` or `keeps_lists`."""
    return short_rows(s.at_chains, s.max_servers, CHAIN_COLUMNS)


@kernel
def queues(s: State) -> NDArray[np.int64]:
    """(J, 4): LENGTH, HEAD, TAIL of the queue of each type.

    With `own_queues` there are (S + 1) J rows: server l's queue of type j is row l J + j, and the last J rows hold
    jobs that no present server could take."""
    return int_rows(s.at_queues, s.n_queues, QUEUE_COLUMNS)


@kernel
def queue_length(s: State) -> NDArray[np.int64]:
    """(J,): Q_j, the waiting jobs of each type."""
    return ints(s.at_queue_length, s.n_types)


@kernel
def weight(s: State) -> NDArray[np.float64]:
    """(J,): Q_j, or log(1 + Q_j), or gain_j Q_j + offset_j, as the policy weighs."""
    return floats(s.at_weight, s.n_types)


@kernel
def gain(s: State) -> NDArray[np.float64]:
    """(J,): what one waiting job adds to the weight of its type; only where `gained`."""
    return floats(s.at_gain, s.n_types)


@kernel
def offset(s: State) -> NDArray[np.float64]:
    """(J,): the weight of a type with an empty queue; only where `gained`."""
    return floats(s.at_offset, s.n_types)


@kernel
def rank(s: State) -> NDArray[np.int64]:
    """(J,): the place of each type among all, from large to small."""
    return ints(s.at_rank, s.n_types)


@kernel
def waiting_ranks(s: State) -> NDArray[np.int64]:
    """Return a bit for each type by its rank, in words of 32: whether a job of the type waits; only where `keeps_ranks`."""
    return ints(s.at_waiting_ranks, (s.n_types + 31) >> 5)


@kernel
def watch(s: State) -> NDArray[np.float64]:
    """(C, J + 1): the most that a configuration of class c weighed when this was last worked out (below 0: never), and the
    weights of the types at that moment."""
    return float_rows(s.at_watch, s.n_classes, s.n_types + 1)


@kernel
def near(s: State) -> NDArray[np.float64]:
    """(C,): r: the solver of class c finds at least this share of the best weight."""
    return floats(s.at_near, s.n_classes)


@kernel
def least(s: State) -> NDArray[np.int64]:
    """(C, R): no job that a server of class c holds asks for less."""
    return int_rows(s.at_least, s.n_classes, s.n_resources)


@kernel
def most_jobs(s: State) -> NDArray[np.float64]:
    """(C,): no configuration of class c holds more jobs; 0 where no bound on its best weight is kept."""
    return floats(s.at_most_jobs, s.n_classes)


@kernel
def demand(s: State) -> NDArray[np.int64]:
    """(J, R): w_j in integers."""
    return int_rows(s.at_demand, s.n_types, s.n_resources)


@kernel
def capacity(s: State) -> NDArray[np.int64]:
    """(C, R)."""
    return int_rows(s.at_capacity, s.n_classes, s.n_resources)


@kernel
def largest_capacity(s: State) -> NDArray[np.int64]:
    """(R,): the most that any class has of each resource, at least 1."""
    return ints(s.at_largest_capacity, s.n_resources)


@kernel
def most(s: State) -> NDArray[np.int64]:
    """(C, J): how many jobs of type j alone fit a server of class c."""
    return int_rows(s.at_most, s.n_classes, s.n_types)


@kernel
def allowed(s: State) -> NDArray[np.int64]:
    """(C, J): 1 where the labels of class c meet the requirements of type j, else 0."""
    return int_rows(s.at_allowed, s.n_classes, s.n_types)


@kernel
def classes(s: State) -> NDArray[np.int64]:
    """(C, 8): TABLE_START, TABLE_END, SOLVER, where the solver's parameters stand, and the sums of `followed`."""
    return int_rows(s.at_classes, s.n_classes, CLASS_COLUMNS)


@kernel
def real_table(s: State) -> NDArray[np.float64]:
    """(T, J): candidate configurations of all classes, one after the other, to be multiplied with weights; only with few types."""
    return float_rows(s.at_real_table, s.n_table, s.n_types)


@kernel
def table_ends(s: State) -> NDArray[np.int64]:
    """(T + 1,): where the entries of each candidate end, after a 0: its types and how many jobs of each, in the order of the types."""
    return ints(s.at_table_ends, s.n_table + 1)


@kernel
def table_types(s: State) -> NDArray[np.int64]:
    """Return the type of each entry."""
    return ints(s.at_table_types, s.n_table_entries)


@kernel
def table_counts(s: State) -> NDArray[np.float64]:
    """Return the jobs of each entry, to be multiplied with weights."""
    return floats(s.at_table_counts, s.n_table_entries)


@kernel
def table_values(s: State) -> NDArray[np.float64]:
    """(T,): room for the weights of the candidates."""
    return floats(s.at_table_values, s.n_table)


@kernel
def tied(s: State) -> NDArray[np.int64]:
    """(T,): room for the candidates that weigh as much as the best."""
    return ints(s.at_tied, s.n_table)


@kernel
def running(s: State) -> NDArray[np.int32]:
    """(S, J): the paper's k-bar, jobs of each type on each server."""
    return servers(s)[:, SERVER_COLUMNS : SERVER_COLUMNS + s.n_types]


@kernel
def configuration(s: State) -> NDArray[np.int32]:
    """(S, J): the paper's k-tilde, slots of each type on each server."""
    return servers(s)[:, SERVER_COLUMNS + s.n_types : SERVER_COLUMNS + 2 * s.n_types]


@kernel
def free(s: State) -> NDArray[np.int64]:
    """(S, R): capacity not taken by jobs or tokens; only where `keeps_free`."""
    return int_rows(s.at_free, s.max_servers, s.n_resources)


@kernel
def used(s: State) -> NDArray[np.int64]:
    """(R,): what the running jobs really take, over the whole cluster; only where `keeps_use`."""
    return ints(s.at_used, s.n_resources)


@kernel
def running_by_type(s: State) -> NDArray[np.int64]:
    """(J,): running jobs of each type, over the whole cluster."""
    return ints(s.at_running_by_type, s.n_types)


@kernel
def placed(s: State) -> NDArray[np.int64]:
    """(N, 2): the placements (job, server) of the present event, in order."""
    return int_rows(s.at_placed, s.max_jobs, 2)


@kernel
def moved(s: State) -> NDArray[np.int64]:
    """(N,): jobs that the present event put back into their queues (a server failed)."""
    return ints(s.at_moved, s.max_jobs)


@kernel
def choice(s: State) -> NDArray[np.int64]:
    """(3, J): room for the configuration that a solver returns, for a second one, and for one of which only the weight matters."""
    return int_rows(s.at_choice, 3, s.n_types)


@kernel
def order(s: State) -> NDArray[np.int64]:
    """(4, J): types from large to small; a permutation to break ties by; scratch; 1 if the type at this place of the
    first row is as large as its predecessor."""
    return int_rows(s.at_order, 4, s.n_types)


@kernel
def present_by_class(s: State) -> NDArray[np.int64]:
    """(C,): servers of each class that take jobs."""
    return ints(s.at_present_by_class, s.n_classes)


@kernel
def policy_ints(s: State) -> NDArray[np.int64]:
    """Return the policy's whole numbers, at the places that its `Memory` gave them."""
    return ints(s.at_policy_ints, s.n_policy_ints)


@kernel
def policy_floats(s: State) -> NDArray[np.float64]:
    """Return the policy's numbers, at the places that its `Memory` gave them."""
    return floats(s.at_policy_floats, s.n_policy_floats)


@kernel
def policy_fields(s: State) -> NDArray[np.int64]:
    """(fields, 3): FIELD_AT, FIELD_ROWS, FIELD_COLUMNS of each field of the policy's memory."""
    return int_rows(s.at_policy_fields, s.n_policy_fields, 3)


@kernel
def int_field(s: State, field: int) -> NDArray[np.int64]:
    """Return a field of whole numbers: one for each type, resource, server, ..."""
    about = policy_fields(s)[field]
    return ints(about[FIELD_AT], about[FIELD_ROWS])


@kernel
def float_field(s: State, field: int) -> NDArray[np.float64]:
    """Return a field of numbers: one for each type, resource, server, ..."""
    about = policy_fields(s)[field]
    return floats(about[FIELD_AT], about[FIELD_ROWS])


@kernel
def int_table(s: State, field: int) -> NDArray[np.int64]:
    """Return a field with several whole numbers for each type, resource, server, ..."""
    about = policy_fields(s)[field]
    return int_rows(about[FIELD_AT], about[FIELD_ROWS], about[FIELD_COLUMNS])


@kernel
def float_table(s: State, field: int) -> NDArray[np.float64]:
    """Return a field with several numbers for each type, resource, server, ..."""
    about = policy_fields(s)[field]
    return float_rows(about[FIELD_AT], about[FIELD_ROWS], about[FIELD_COLUMNS])


@kernel
def mean_service(s: State) -> NDArray[np.float64]:
    """(J,): 1 / mu_j, where the policy may know it."""
    return floats(s.at_mean_service, s.n_types)


@kernel
def need(s: State) -> NDArray[np.int64]:
    """(R,): the demand that is being placed."""
    return ints(s.at_need, s.n_resources)


@kernel
def head(s: State, j: int) -> int:
    """Return the job at the head of queue j, or -1."""
    return int(queues(s)[j, HEAD])


@kernel
def may_hold(s: State, c: int) -> bool:
    """Return whether servers of class c meet the requirements of the type that is being placed."""
    return not s.restricted or allowed(s)[c, s.need_type] > 0


@kernel
def set_need(s: State, j: int) -> None:
    """Write the demand of the head of queue j into need(s)."""
    s.need_type = j
    i = head(s, j)
    for r in range(s.n_resources):
        need(s)[r] = job_demand(s)[i, r] if s.actual else demand(s)[j, r]


@kernel
def set_job_need(s: State, i: int) -> None:
    """Write the demand of waiting job i into need(s)."""
    j = jobs(s)[i, TYPE]
    s.need_type = j
    for r in range(s.n_resources):
        need(s)[r] = job_demand(s)[i, r] if s.actual else demand(s)[j, r]


@kernel
def set_type_need(s: State, j: int) -> None:
    """Write the demand of type j into need(s)."""
    s.need_type = j
    for r in range(s.n_resources):
        need(s)[r] = demand(s)[j, r]


@kernel
def fits(s: State, server: int, size: NDArray[np.int64]) -> bool:
    """Return whether the server has that much free capacity, and may hold the type that is being placed."""
    if s.restricted and not may_hold(s, servers(s)[server, CLASS]):
        return False
    for r in range(s.n_resources):
        if free(s)[server, r] < size[r]:
            return False
    return True
