"""The arrays behind a state: made and grown. The record holds their addresses and nothing else owns them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from slotwise.compiler.kernel import kernel
from slotwise.core import chance
from slotwise.core import state as st
from slotwise.core.contract.hooks import Hook, late
from slotwise.core.contract.memory import Columns, Field, Per
from slotwise.core.contract.policy import Policy
from slotwise.core.indexes import bitmap, fitindex, followed, linetree
from slotwise.core.indexes.shortest import LONGEST, refresh_server
from slotwise.core.indexes.weights import FEW_COLUMNS, MOST_NODES, run_solver
from slotwise.core.steps import reindex, weight_of_type
from slotwise.core.tenants import NO_SHARES, Sharing
from slotwise.errors import InputError
from slotwise.model import Integers
from slotwise.packing import Solver, Space, make_solver, stand_in
from slotwise.packing.kernels import TABLE

Arrays = dict[str, NDArray[Any]]
FEW_CANDIDATES = 16  # candidates of a class, all of which are looked at
NEAR = 0.9  # of the best weight must be found for a bound to answer anything

FEW_TYPES = 8  # with so many types and jobs that are alike within a type, no tree is kept of the waiting jobs


def aligned(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return zeros that begin on a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    first = -raw.ctypes.data % 64
    return raw[first : first + size].view(dtype).reshape(shape)


def linked_late(policy: Policy, everything: bool = False) -> list[Hook]:
    """Return the functions that a policy's hooks call by address. Include those for many types only if `everything`
    is asked for."""
    found = [*policy.late]
    if {"fit", "tree"} & policy.keeps:
        found.append(fitindex.refile)
    if everything and {"line", "unlike"} & policy.keeps:
        found.append(linetree.keep)
    if everything and policy.solver:
        found.append(run_solver)
        if has_whole_weights(policy):
            found.append(followed.follow)
    return found


def has_whole_weights(policy: Policy) -> bool:
    """Return whether weights are the lengths of common queues, which change by one at an event."""
    return not (policy.own_queues or policy.log_weights or policy.gained)


@kernel
def file_all(s: st.State, order: NDArray[np.int64]) -> None:
    """File these servers, in this order."""
    for n in range(len(order)):
        reindex(s, order[n])


class Store:
    """One scheduling state for a cluster, its types and a policy. No server has joined yet."""

    def __init__(
        self,
        sizes: Integers,
        policy: Policy,
        *,
        max_servers: int,
        spaces: Sequence[Space],
        random: chance.Words,
        mean_service: NDArray[np.float64] | None = None,
        rates: NDArray[np.float64] | None = None,
        counts: Sequence[int] | None = None,
        max_jobs: int = 1024,
        alike: bool = False,
        servers_change: bool = False,
        sharing: Sharing | None = None,
        solves_late: bool = False,
    ) -> None:
        """Make the arrays for so many servers and jobs.

        - `alike`: every job requests exactly what its type does.
        - `servers_change`: servers will join and leave, so it must be quick to find the jobs of a server.
        - `rates`: arrivals of each type, 0 if unknown. `counts`: expected servers of each class.
        - `solves_late`: the caller calls `solve_for` before a job leaves a server, so no solver has to be made before.
        """
        self.sizes, self.policy, self.spaces = sizes, policy, list(spaces)
        self.arrays: Arrays = {}
        self.record = np.zeros(1, st.DTYPE)
        self.state = cast(st.State, self.record[0])
        self.solvers: list[Solver] = []
        self.unsolved: set[int] = set()
        """classes of which the solver is made when a job leaves one of their servers"""
        s = self.state
        s.n_types, s.n_resources = sizes.demand.shape
        s.n_classes = len(sizes.capacity)
        self.mean_service = np.ones(s.n_types) if mean_service is None else np.asarray(mean_service, np.float64)
        self.rates = np.zeros(s.n_types) if rates is None else np.asarray(rates, np.float64)
        self.counts = np.ones(s.n_classes, np.int64) if counts is None else np.asarray(counts, np.int64)
        self._read_policy(alike=alike, servers_change=servers_change)
        self._check_predicates()
        J, C = s.n_types, s.n_classes
        self.allowed = np.ones((C, J), np.bool_) if sizes.allowed is None else sizes.allowed
        """(C, J): whether the labels of a class meet the requirements of a type"""
        s.restricted = not self.allowed.all()
        policy.check(self)
        self._put_tables()
        self._make_shares(sharing)
        self._make_policy_memory()
        self._make_least()
        self._make_solvers(late=solves_late and bool(policy.solver) and not has_whole_weights(policy))
        self._make_line()
        s.max_jobs = 0
        s.free_job = -1
        self.grow_jobs(max_jobs)
        chance.set_words(s, random)
        policy.prepare(self)
        self.grow_servers(max(1, max_servers))

    def _read_policy(self, *, alike: bool, servers_change: bool) -> None:
        """Write into the record what the policy asks to be kept."""
        s, policy = self.state, self.policy
        s.most_nodes = MOST_NODES
        s.random_ties = policy.options.ties == "random"
        s.actual = s.keeps_use = policy.actual
        for keep in policy.keeps - {"unlike"}:
            setattr(s, f"keeps_{keep}", 1)
        s.keeps_times = s.keeps_lists
        s.keeps_lists |= servers_change
        if {"fit", "tree"} & policy.keeps:
            s.keeps_free = 1
            s.hook_reindex = late(fitindex.refile)
        # with few types and jobs that are alike within a type, the heads of line are soon looked through
        unlike = policy.actual and not alike
        s.keeps_line = ("unlike" in policy.keeps and unlike) or (
            "line" in policy.keeps and (s.keeps_times or s.n_types > FEW_TYPES or unlike)
        )
        s.own_queues, s.log_weights, s.gained = policy.own_queues, policy.log_weights, policy.gained

    def _put_tables(self) -> None:
        """Make the arrays by type, class and resource."""
        s, sizes, spaces = self.state, self.sizes, self.spaces
        J, R, C = s.n_types, s.n_resources, s.n_classes
        self.put("demand", sizes.demand)
        self.put("capacity", sizes.capacity)
        self.put("most", np.array([[space.most(j) for j in range(J)] for space in spaces], np.int64).reshape(C, J))
        self.put("allowed", self.allowed.astype(np.int64))
        self.put("present_by_class", np.zeros(C, np.int64))
        self.put("mean_service", self.mean_service)
        self.put("queue_length", np.zeros(J, np.int64))
        self.put("weight", np.zeros(J))
        self.put("gain", np.ones(J))
        self.put("offset", np.zeros(J))
        self.put("used", np.zeros(R, np.int64))
        self.put("running_by_type", np.zeros(J, np.int64))
        self.put("choice", np.zeros((3, J), np.int64))
        order = self.put("order", self._orders())
        self.put("rank", np.argsort(order[0]))
        self.put("waiting_ranks", np.zeros((J + 31) // 32, np.int64))
        self.put("need", np.zeros(R, np.int64))
        self.put("score", np.zeros((C, R + 1)))
        self.put("largest_capacity", np.maximum(sizes.capacity.max(axis=0), 1))

    def _make_shares(self, sharing: Sharing | None) -> None:
        """Lay out tenants and their shares, if there are any."""
        s: Any = self.state
        if sharing is not None and not self.policy.honours_shares:
            raise InputError(
                f"{self.policy.label} cannot honour shares",
                where="shares",
                remedy="use policy guarded, or remove the shares",
            )
        found = sharing or NO_SHARES
        for name, values in found.arrays.items():
            self.put(name, values)
        s.n_tenants, s.n_tenant_groups = (
            (len(found.names), len(found.arrays["tenant_groups"])) if sharing else (0, 0)
        )
        s.forgetting, s.share_strength, s.share_bound = found.forgetting, found.strength, found.bound
        self.tenants = found.names
        self.put("tenant_running", np.zeros((len(found.arrays["tenants"]), s.n_resources), np.int64))
        self.put("cluster_capacity", np.zeros(s.n_resources))

    def put(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """Own the array and write its address into the record."""
        self.arrays[name] = aligned(values.shape, values.dtype)
        self.arrays[name][...] = values
        setattr(self.state, f"at_{name}", self.arrays[name].ctypes.data)
        return self.arrays[name]

    def more_arrays(self) -> list[Arrays]:
        """Return the tables of arrays beside `arrays`: what the policy keeps."""
        return [self._raw, self._fields]

    @property
    def sequence(self) -> NDArray[np.int64]:
        """(N,): a number for each job that grows with every arrival."""
        return self.arrays["jobs"].view(np.int64)[:, -1]

    @property
    def running(self) -> NDArray[np.int32]:
        """(S, J): jobs of each type on each server."""
        return self.arrays["servers"][:, st.SERVER_COLUMNS : st.SERVER_COLUMNS + self.state.n_types]

    @property
    def configuration(self) -> NDArray[np.int32]:
        """(S, J): slots of each type on each server."""
        J = self.state.n_types
        return self.arrays["servers"][:, st.SERVER_COLUMNS + J : st.SERVER_COLUMNS + 2 * J]

    def first_sequence(self) -> int | None:
        """Return the sequence number of the oldest waiting job, or None."""
        waiting = self.sequence[self.arrays["jobs"][:, st.SERVER] == st.WAITING]
        return int(waiting.min()) if len(waiting) else None

    def count_waiting(self) -> None:
        """Recompute what follows from the queue lengths: weights, and which types have a waiting job."""
        length, words = self.arrays["queue_length"], self.arrays["waiting_ranks"]
        words[:] = 0
        for j in range(self.state.n_types):
            self.arrays["weight"][j] = weight_of_type(self.state, j, length[j])
            if length[j] > 0:
                place = int(self.arrays["rank"][j])
                words[place >> 5] |= 1 << (place & 31)

    def present_classes(self) -> NDArray[np.int64]:
        """Return the classes of which some server takes jobs."""
        rows = self.arrays["servers"]
        return np.unique(rows[rows[:, st.STATUS] == st.PRESENT, st.CLASS]).astype(np.int64)

    def put_score(self, coefficients: NDArray[np.float64]) -> None:
        """Write the score by which the index of fits looks for servers: what each unit of a free resource counts."""
        self.arrays["score"][:, :-1] = coefficients

    # -- the policy's memory --------------------------------------------------------------------------------------

    def values_of(self, field: int) -> NDArray[Any]:
        """Return the numbers of a field of the policy's memory, by what its declaration returned."""
        return self.field(self.policy.memory.fields[field])

    def field(self, field: Field) -> NDArray[Any]:
        """Return the values of a field: a number, or some columns of numbers, for each type, resource, server, ..."""
        return self._fields[field.name]

    def _make_policy_memory(self) -> None:
        s, memory = self.state, self.policy.memory
        whole = np.array([scalar.start for scalar in memory.whole], np.int64)
        real = np.repeat([scalar.start for scalar in memory.real], [scalar.size for scalar in memory.real])
        s.n_policy_ints, s.n_policy_floats = len(whole), len(real)
        self.put("policy_ints", whole)
        self.put("policy_floats", real.astype(np.float64))
        s.n_policy_fields = len(memory.fields)
        self.put("policy_fields", np.zeros((len(memory.fields), 3), np.int64))
        self._fields: Arrays = {}
        self._raw: Arrays = {}
        for number, field in enumerate(memory.fields):
            if field.per != "server":
                self._make_field(number, field, self._number_of(field.per))

    def _make_field(self, number: int, field: Field, rows: int) -> None:
        """Make a field with so many rows. Keep the old rows."""
        columns = 1 if field.columns is None else self._number_of(field.columns)
        values, old = aligned((rows, columns), np.float64 if field.real else np.int64), self._raw.get(field.name)
        values[...] = field.start
        if old is not None:
            values[: len(old)] = old
        self._raw[field.name] = values
        self._fields[field.name] = values if field.columns is not None else values[:, 0]
        self.arrays["policy_fields"][number] = values.ctypes.data, rows, columns

    def _number_of(self, what: Per | Columns) -> int:
        if isinstance(what, str):
            return int({"type": self.state.n_types, "resource": self.state.n_resources}[what])
        return what if isinstance(what, int) else what(self)

    # -- room for more --------------------------------------------------------------------------------------------

    def grow_jobs(self, max_jobs: int) -> None:
        """Make room for job numbers up to max_jobs; the new ones join the chain of unused ones."""
        s, old = self.state, self.state.max_jobs
        if max_jobs <= old:
            return
        rows = aligned((max_jobs, st.JOB_COLUMNS), np.int32)
        rows[:, st.SERVER] = st.NOWHERE
        if old:
            rows[:old] = self.arrays["jobs"]
        rows[old:, st.NEXT] = np.arange(old + 1, max_jobs + 1)
        rows[-1, st.NEXT] = s.free_job
        s.free_job = old
        s.n_free_jobs += max_jobs - old
        s.max_jobs = max_jobs
        self.put("jobs", rows)
        self._grow("placed", (max_jobs, 2), np.int64)
        self._grow("moved", (max_jobs,), np.int64)
        self._grow("job_demand", (max_jobs if s.actual else 1, s.n_resources), np.int64)
        self._grow("job_times", (max_jobs if s.keeps_times else 1, 2), np.float64)
        s.n_line_nodes = 2 * max_jobs if s.keeps_line else 1
        self._grow("line_nodes", (s.n_line_nodes, linetree.NODE_COLUMNS), np.int64)
        for name in ("line_low", "line_high"):
            self._grow(name, (s.n_line_nodes, s.n_resources), np.int64)
        self._grow("line_time", (s.n_line_nodes if s.line_alone else 1,), np.float64)
        self._grow("line_links", (max_jobs if s.keeps_line else 1, linetree.LINK_COLUMNS), np.int32)

    def grow_servers(self, max_servers: int) -> None:
        """Make room for server numbers up to max_servers. The indexes are laid out anew and filled again, as they were."""
        s, old = self.state, self.state.max_servers
        if max_servers <= old:
            return
        J, R, C, S = s.n_types, s.n_resources, s.n_classes, max_servers
        members = [[n for n in range(old) if bitmap.contains(s, row, n)] for row in range(J + C if old else 0)]
        filed = self.filing_order()
        grow = self._grow
        s.n_server_columns = st.SERVER_COLUMNS + 2 * J
        grow("servers", (S, s.n_server_columns), np.int32)
        chains = grow("chains", (S if s.keeps_fit or s.keeps_lists else 1, st.CHAIN_COLUMNS), np.int32)
        chains[old:] = -1
        for number, field in enumerate(self.policy.memory.fields):
            if field.per == "server":
                self._make_field(number, field, S)
        grow("free", (S if s.keeps_free else 1, R), np.int64)
        self._grow_queues(old, S)
        s.max_servers = S
        s.n_words_0, s.n_words_1, s.n_words_2 = bitmap.words(S)
        s.n_words = s.n_words_0 + s.n_words_1 + s.n_words_2
        self.put("bits", np.zeros((J + C, s.n_words), np.int64))
        for row, numbers in enumerate(members):
            for server in numbers:
                bitmap.add(s, row, server)
        s.n_tree = 1 << (int(S) - 1).bit_length()
        self.put("tree", np.full((2 * s.n_tree if s.keeps_tree else 1, R), -1, np.int64))
        self.put("tree_types", np.zeros(2 * s.n_tree if s.keeps_tree else 1, np.int64))
        self.put("shortest", np.full((J, 2 * s.n_tree if s.own_queues else 1), LONGEST, np.int64))
        self._make_fit_index()
        self.file_all(filed)
        for server in range(old):
            refresh_server(s, server)

    def filing_order(self) -> NDArray[np.int64]:
        """Return the servers that take jobs, in an order in which filing them makes the indexes as they are."""
        s: Any = self.state
        if not s.max_servers:
            return np.zeros(0, np.int64)
        present = np.flatnonzero(self.arrays["servers"][:, st.STATUS] == st.PRESENT)
        if not s.keeps_fit:
            return present
        filed = np.zeros(s.max_servers, np.int64)
        filed = filed[: fitindex.filed(s, filed)]
        return np.concatenate([filed, np.setdiff1d(present, filed)])

    def file_all(self, order: NDArray[np.int64]) -> None:
        """File the servers in the indexes, which are empty."""
        file_all(self.state, order)

    def _grow(self, name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return a larger array with the old one in its first rows."""
        new, old = aligned(shape, dtype), self.arrays.get(name)
        if old is not None:
            new[: len(old)] = old
        return self.put(name, new)

    def _grow_queues(self, old: int, S: int) -> None:
        s, J = self.state, self.state.n_types
        s.n_queues = (S + 1) * J if s.own_queues else J
        rows = np.zeros((s.n_queues, st.QUEUE_COLUMNS), np.int64)
        rows[:, st.HEAD :] = -1
        if "queues" in self.arrays:
            before = self.arrays["queues"]
            rows[: len(before)] = before
            if s.own_queues:  # the last J rows, of jobs that no server could take, stay last
                rows[old * J : (old + 1) * J] = [0, -1, -1, 0]
                rows[S * J :] = before[old * J :]
                lost = (self.arrays["jobs"][:, st.SERVER] == st.WAITING) & (
                    self.arrays["jobs"][:, st.QUEUE] >= old * J
                )
                self.arrays["jobs"][lost, st.QUEUE] += (S - old) * J
        self.put("queues", rows)

    def _make_line(self) -> None:
        """Make the empty tree of waiting jobs. Types that may run on the same classes share a tree."""
        s = self.state
        s.line_alone = bool(s.keeps_line and s.keeps_times)
        _, first, group = np.unique(self.allowed.T, axis=0, return_index=True, return_inverse=True)
        s.n_line_groups = len(first)
        self.put("line_roots", np.full(len(first), -1, np.int64))
        self.put("line_group_type", first.astype(np.int64))
        self.put("line_type_group", group.reshape(-1).astype(np.int64))
        bits = [int(whole).bit_length() - 1 for whole in self.arrays["largest_capacity"]]
        self.put("line_shift", np.array([max(0, linetree.TOP_BIT - bit) for bit in bits], np.int64))
        s.n_line_stack = linetree.TIES + 128 * s.n_resources + len(first)
        self.put("line_stack", np.zeros(s.n_line_stack, np.int64))
        self.put("line_promise", np.zeros((s.n_line_stack, 2)))
        if s.keeps_line:
            s.hook_line = late(linetree.keep)
        linetree.clear(s)

    def _make_fit_index(self) -> None:
        s = self.state
        S = int(s.max_servers) if s.keeps_fit else 1
        s.n_cell_axis = fitindex.axis_cells(s.n_resources)
        s.max_cells = fitindex.cells_per_class(s.n_resources)
        n_cells = s.max_cells if s.keeps_fit else 1
        s.n_slots_hash = 1 << (2 * S).bit_length()
        self.put("groups", np.zeros((S + 1, fitindex.GROUP_COLUMNS), np.int64))
        self.put("group_free", np.zeros((S, s.n_resources), np.int64))
        self.put("cells", np.full((s.n_classes, n_cells), -1, np.int64))
        self.put("filled", np.zeros((s.n_classes, 1 + fitindex.WORDS), np.int64))
        self.put("hash", np.full(s.n_slots_hash, -1, np.int64))
        steps, edges = fitindex.grid(self.sizes.capacity)
        self.put("cell_steps", steps)
        self.put("cell_edges", edges)
        if s.keeps_fit:
            fitindex.clear(s)

    def _orders(self) -> NDArray[np.int64]:
        """Return types from large to small: by their largest share of any class's capacity, then by number."""
        whole = np.maximum(self.sizes.capacity.max(axis=0), 1)
        share = (self.sizes.demand / whole).max(axis=1)
        J = len(share)
        total = (self.sizes.demand / whole).sum(axis=1)
        largest = np.lexsort((np.arange(J), -total, -share))
        same = (np.diff(share[largest], prepend=-1) == 0) & (np.diff(total[largest], prepend=-1) == 0)
        return np.array([largest, np.arange(J), np.arange(J), same], np.int64)

    def _check_predicates(self) -> None:
        if self.state.keeps_free and any(space.demand is None for space in self.spaces):
            raise InputError(
                "packs by free resources, but a server class has a predicate of its own",
                where=f"policy {self.policy.name}",
                remedy="use algorithm1 or m14, which pack by configurations",
            )

    def _make_least(self) -> None:
        """Write the least demand of the types that fit, for each class and resource."""
        smallest = np.zeros((self.state.n_classes, self.state.n_resources), np.int64)
        for c, space in enumerate(self.spaces):
            if space.demand is not None and len(space.fitting):
                smallest[c] = space.demand[space.fitting].min(axis=0)
        self.put("least", smallest)

    def solve_for(self, i: int) -> None:
        """Make the solver of the class of the server on which job i runs, unless it is there."""
        server = self.arrays["jobs"][i, st.SERVER]
        c = int(self.arrays["servers"][server, st.CLASS]) if server >= 0 else -1
        if c in self.unsolved:
            self.solve_class(c)

    def solve_class(self, c: int) -> None:
        """Make the solver of a class. What the solvers of other classes have noted stays."""
        about, watch = self.arrays["classes"], self.arrays["watch"]
        for other, solver in enumerate(self.solvers):
            row = about[other]
            solver.params_f[:] = self.arrays["params_floats"][row[st.FLOATS_START] : row[st.FLOATS_END]]
            solver.params_i[:] = self.arrays["params_ints"][row[st.INTS_START] : row[st.INTS_END]]
        self.unsolved.discard(c)
        self.solvers[c] = self._solver(self.spaces[c])
        self._most_jobs[c] = self._most_jobs_of(self.solvers[c])
        self._lay_out_solvers(follows=False)
        self.arrays["watch"][:] = watch

    def _make_solvers(self, *, late: bool) -> None:
        """Make the solver of each class, but for classes that are solved late."""
        follows = False
        if late:
            self.unsolved = set(range(len(self.spaces)))
            self.solvers = [stand_in(str(self.policy.solver), space) for space in self.spaces]
        else:
            self.solvers, follows = self._solvers()
        self._most_jobs = [self._most_jobs_of(solver) for solver in self.solvers] or [0.0] * len(self.spaces)
        self._lay_out_solvers(follows=follows)

    def _lay_out_solvers(self, *, follows: bool) -> None:
        """Write the candidates or the kernel parameters of each class, one after the other."""
        s = self.state
        about = np.zeros((s.n_classes, st.CLASS_COLUMNS), np.int64)
        tables: list[NDArray[Any]] = []
        real: list[NDArray[Any]] = []
        whole: list[NDArray[Any]] = []
        for c, solver in enumerate(self.solvers):
            rows = solver.table if solver.table is not None else np.zeros((0, s.n_types), np.int64)
            parts: list[tuple[int, list[NDArray[Any]], NDArray[Any]]] = [
                (st.TABLE_START, tables, rows),
                (st.FLOATS_START, real, solver.params_f),
                (st.INTS_START, whole, solver.params_i),
            ]
            for at, pieces, piece in parts:
                about[c, at] = sum(map(len, pieces))
                pieces.append(piece)
                about[c, at + 1] = about[c, at] + len(piece)
            about[c, st.SOLVER] = solver.kind
            if solver.kind != TABLE:
                s.hook_solve = late(run_solver)
            s.n_scratch_floats = max(s.n_scratch_floats, solver.scratch_f_size)
            s.n_scratch_ints = max(s.n_scratch_ints, solver.scratch_i_size)
        s.n_table = sum(map(len, tables))
        candidates = np.concatenate(tables) if tables else np.zeros((0, s.n_types), np.int64)
        self._follow(about, tables if follows else [])
        self.put("classes", about)
        self.put(
            "real_table", candidates.astype(np.float64) if s.n_types <= FEW_COLUMNS else np.zeros((0, s.n_types))
        )
        self.put("tied", np.zeros(len(candidates), np.int64))
        self.put("table_values", np.zeros(len(candidates)))
        rows, types = np.nonzero(candidates)
        s.n_table_entries = len(rows)
        self.put("table_ends", np.searchsorted(rows, np.arange(len(candidates) + 1)))
        self.put("table_types", types)
        self.put("table_counts", candidates[rows, types].astype(np.float64))
        s.n_params_floats, s.n_params_ints = sum(map(len, real)), sum(map(len, whole))
        self.put("params_floats", np.concatenate(real) if real else np.zeros(0))
        self.put("params_ints", np.concatenate(whole) if whole else np.zeros(0, np.int64))
        self.put("scratch_floats", np.zeros(s.n_scratch_floats + s.n_types))
        self.put("scratch_ints", np.zeros(max(1, s.n_scratch_ints), np.int64))
        s.n_scratch_ints = max(1, s.n_scratch_ints)
        self.put("watch", np.full((s.n_classes, s.n_types + 1), -1.0))
        self.put("near", np.array([solver.near for solver in self.solvers] or np.ones(s.n_classes)))
        self.put("most_jobs", np.array(self._most_jobs))

    def _solvers(self) -> tuple[list[Solver], bool]:
        """Return the solver of each class, and whether the weights of what they list are followed."""
        name, spaces = self.policy.solver, self.spaces if self.policy.solver else []
        if name and has_whole_weights(self.policy) and self.state.n_types > FEW_COLUMNS:
            epsilon = self.policy.options.epsilon
            solvers = [make_solver(name, space, epsilon=epsilon, followed=True) for space in spaces]
            if followed.few([solver.table for solver in solvers if solver.table is not None]):
                return solvers, True
        return [self._solver(space) for space in spaces], False

    def _solver(self, space: Space) -> Solver:
        return make_solver(self.policy.solver or "auto", space, epsilon=self.policy.options.epsilon)

    def _follow(self, about: NDArray[np.int64], tables: list[NDArray[np.int64]]) -> None:
        """Make the arrays for following the weights of these classes' candidates; if nothing is listed, empty ones."""
        s, most = self.state, max((int(table.sum(axis=1).max(initial=0)) for table in tables), default=0)
        if most:
            s.hook_follow, s.follow_limit = late(followed.follow), followed.LARGEST // most
            s.half_limit = followed.LARGEST_HALF // most
        laid = followed.lay_out(tables)
        about[: len(tables), st.SUMS_START] = laid.starts
        s.n_block = followed.BLOCK
        s.n_sums, s.n_columns = len(laid.sums) // followed.BLOCK, len(laid.columns)
        s.n_column_rows, s.n_tops = len(laid.column_rows), len(laid.tops)
        for name in ("sums", "first_columns", "columns", "column_rows", "first_tops", "tops"):
            self.put(name, getattr(laid, name))
        self.put("half_sums", laid.sums.astype(np.int16))
        for half, kind in (("", np.int32), ("half_", np.int16)):
            self.put(f"{half}peaks", np.zeros(s.n_sums, kind))
            self.put(f"{half}followed", np.zeros((s.n_classes, s.n_types), np.int64))

    def _most_jobs_of(self, solver: Solver) -> float:
        """Return the most jobs on a server, for a bound on its best weight, or 0 if a bound brings nothing. That is so
        if there are few candidates, if the solver promises too little, or if every server has queues of its own."""
        few = solver.table is not None and len(solver.table) <= FEW_CANDIDATES
        return 0.0 if few or solver.near < NEAR or self.state.own_queues else solver.most_jobs()
