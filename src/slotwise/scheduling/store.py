"""The arrays behind a state: made, grown, copied. The record holds their addresses and nothing else owns them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from slotwise.errors import InputError
from slotwise.model import Integers
from slotwise.packing import Solver, Space, make_solver
from slotwise.packing.kernels import TABLE
from slotwise.scheduling import bitmap, chance, firsttree, fitindex
from slotwise.scheduling.hooks import late
from slotwise.scheduling.moves import reindex
from slotwise.scheduling.policy import Policy
from slotwise.scheduling.queues import LONGEST, refresh_shortest
from slotwise.scheduling.state import (
    CHAIN_COLUMNS,
    CLASS_COLUMNS,
    DTYPE,
    FLOATS_START,
    FREE_TOKEN,
    HEAD,
    INTS_START,
    JOB_COLUMNS,
    NEXT,
    NEXT_TOKEN,
    NOWHERE,
    QUEUE,
    QUEUE_COLUMNS,
    SERVER,
    SERVER_COLUMNS,
    SOLVER,
    TABLE_START,
    TOKEN_COLUMNS,
    WAITING,
    State,
)
from slotwise.scheduling.weights import run_solver

Arrays = dict[str, NDArray[Any]]


def aligned(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Zeros that begin on a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    first = -raw.ctypes.data % 64
    return raw[first : first + size].view(dtype).reshape(shape)


def refile(s: State, server: int, _: int) -> None:
    """What `reindex` does where the policy keeps an index."""
    if s.keeps_fit:
        fitindex.update(s, server)
    if s.keeps_tree:
        firsttree.update(s, server)


class Store:
    """One scheduling state for a cluster, its types and a policy. No server has joined yet."""

    def __init__(
        self,
        sizes: Integers,
        policy: Policy,
        *,
        max_servers: int,
        spaces: Sequence[Space],
        seed: np.random.SeedSequence,
        mean_service: NDArray[np.float64] | None = None,
        max_jobs: int = 1024,
        policy_numbers: int = 16,
    ) -> None:
        self.sizes, self.policy, self.spaces = sizes, policy, list(spaces)
        self.arrays: Arrays = {}
        self.record = np.zeros(1, DTYPE)
        self.state = cast(State, self.record[0])
        self.solvers: list[Solver] = []
        s = self.state
        s.n_types, s.n_resources = sizes.demand.shape
        s.n_classes = len(sizes.capacity)
        s.random_ties = policy.options.ties == "random"
        s.actual = s.keeps_use = policy.actual
        for keep in policy.keeps:
            setattr(s, f"keeps_{keep}", 1)
        if {"fit", "tree"} & policy.keeps:
            s.keeps_free = 1
            s.hook_reindex = late(refile)
        s.own_queues = getattr(policy.options, "queues", "central") == "own"
        s.log_weights = getattr(policy.options, "weights", "queue") == "log"
        self._check_predicates()
        J, R, C = s.n_types, s.n_resources, s.n_classes
        self.put("demand", sizes.demand)
        self.put("capacity", sizes.capacity)
        self.put("most", np.array([[space.most(j) for j in range(J)] for space in spaces], np.int64).reshape(C, J))
        self.put("mean_service", np.ones(J) if mean_service is None else np.asarray(mean_service, np.float64))
        self.put("queue_length", np.zeros(J, np.int64))
        self.put("weight", np.zeros(J))
        self.put("used", np.zeros(R, np.int64))
        self.put("running_by_type", np.zeros(J, np.int64))
        self.put("choice", np.zeros((2, J), np.int64))
        self.put("order", self._orders())
        self.put("need", np.zeros(R, np.int64))
        self.reserve_policy_numbers(policy_numbers, policy_numbers)
        self._make_solvers()
        s.max_jobs = 0
        s.free_job = -1
        self.grow_jobs(max_jobs)
        chance.seed(s, seed)
        policy.prepare(self)
        self.grow_servers(max(1, max_servers))

    def put(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """Own the array and write its address into the record."""
        self.arrays[name] = aligned(values.shape, values.dtype)
        self.arrays[name][...] = values
        setattr(self.state, f"at_{name}", self.arrays[name].ctypes.data)
        return self.arrays[name]

    @property
    def sequence(self) -> NDArray[np.int64]:
        """(N,): a number for each job that grows with every arrival."""
        return self.arrays["jobs"].view(np.int64)[:, -1]

    @property
    def running(self) -> NDArray[np.int32]:
        """(S, J): jobs of each type on each server."""
        return self.arrays["servers"][:, SERVER_COLUMNS : SERVER_COLUMNS + self.state.n_types]

    @property
    def configuration(self) -> NDArray[np.int32]:
        """(S, J): slots of each type on each server."""
        J = self.state.n_types
        return self.arrays["servers"][:, SERVER_COLUMNS + J : SERVER_COLUMNS + 2 * J]

    def refresh_addresses(self) -> None:
        """Write every array's address anew (after a copy)."""
        for name, values in self.arrays.items():
            setattr(self.state, f"at_{name}", values.ctypes.data)

    def reserve_policy_numbers(self, whole: int, real: int) -> None:
        """Room for the policy's own numbers."""
        self.state.n_policy_ints, self.state.n_policy_floats = whole, real
        self.put("policy_ints", np.zeros(whole, np.int64))
        self.put("policy_floats", np.zeros(real))

    def grow_jobs(self, max_jobs: int) -> None:
        """Make room for job numbers up to max_jobs; the new ones join the chain of unused ones."""
        s, old = self.state, self.state.max_jobs
        if max_jobs <= old:
            return
        rows = aligned((max_jobs, JOB_COLUMNS), np.int32)
        rows[:, SERVER] = NOWHERE
        if old:
            rows[:old] = self.arrays["jobs"]
        rows[old:, NEXT] = np.arange(old + 1, max_jobs + 1)
        rows[-1, NEXT] = s.free_job
        s.free_job = old
        s.n_free_jobs += max_jobs - old
        s.max_jobs = max_jobs
        self.put("jobs", rows)
        self._grow("placed", (max_jobs, 2), np.int64)
        self._grow("moved", (max_jobs,), np.int64)
        self._grow("job_demand", (max_jobs if s.actual else 1, s.n_resources), np.int64)
        self._grow("job_times", (max_jobs if s.keeps_lists else 1, 2), np.float64)

    def grow_servers(self, max_servers: int) -> None:
        """Make room for server numbers up to max_servers. The indexes are laid out anew and filled again."""
        s, old = self.state, self.state.max_servers
        if max_servers <= old:
            return
        J, R, C, S = s.n_types, s.n_resources, s.n_classes, max_servers
        members = [[n for n in range(old) if bitmap.contains(s, row, n)] for row in range(J + C if old else 0)]
        grow = self._grow
        s.n_server_columns = SERVER_COLUMNS + 2 * J
        grow("servers", (S, s.n_server_columns), np.int32)
        chains = grow("chains", (S if s.keeps_fit or s.keeps_lists else 1, CHAIN_COLUMNS), np.int32)
        chains[old:] = -1
        grow("stall_reason", (S, 7), np.float64)
        grow("policy_servers", (S, 4), np.int64)
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
        for server in range(old):
            reindex(s, server)
            for j in range(J if s.own_queues else 0):
                refresh_shortest(s, j, server)
        if self.policy.holds_tokens:
            self._grow_tokens(old)

    def _grow(self, name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """A larger array with the old one in its first rows."""
        new, old = aligned(shape, dtype), self.arrays.get(name)
        if old is not None:
            new[: len(old)] = old
        return self.put(name, new)

    def _grow_queues(self, old: int, S: int) -> None:
        s, J = self.state, self.state.n_types
        s.n_queues = (S + 1) * J if s.own_queues else J
        rows = np.zeros((s.n_queues, QUEUE_COLUMNS), np.int64)
        rows[:, HEAD:] = -1
        if "queues" in self.arrays:
            before = self.arrays["queues"]
            rows[: len(before)] = before
            if s.own_queues:  # the last J rows, of jobs that no server could take, stay last
                rows[old * J : (old + 1) * J] = [0, -1, -1, 0]
                rows[S * J :] = before[old * J :]
                lost = (self.arrays["jobs"][:, SERVER] == WAITING) & (self.arrays["jobs"][:, QUEUE] >= old * J)
                self.arrays["jobs"][lost, QUEUE] += (S - old) * J
        self.put("queues", rows)

    def _make_fit_index(self) -> None:
        s = self.state
        S = int(s.max_servers) if s.keeps_fit else 1
        s.n_cell_axis = fitindex.axis_cells(s.n_resources)
        s.max_cells = fitindex.cells_per_class(s.n_resources)
        n_cells = s.max_cells if s.keeps_fit else 1
        s.n_slots_hash = 1 << (2 * S).bit_length()
        self.put("groups", np.zeros((S + 1, fitindex.GROUP_COLUMNS), np.int64))
        self.put("group_free", np.zeros((S, s.n_resources), np.int64))
        self.put("cells", np.full((s.n_classes * n_cells, 2), -1, np.int64))
        self.put("cell_list", np.zeros((s.n_classes, n_cells + 1), np.int64))
        self.put("hash", np.full(s.n_slots_hash, -1, np.int64))
        if "score" not in self.arrays:
            self.put("score", np.zeros((s.n_classes, s.n_resources + 1)))
        if s.keeps_fit:
            fitindex.clear(s)

    def _grow_tokens(self, old_servers: int) -> None:
        """Room for the tokens of G16: never more on a server than jobs fit it."""
        s = self.state
        old, heads = s.max_tokens, np.full((s.max_servers, s.n_types), -1, np.int64)
        s.max_tokens = int(self.arrays["most"].sum(axis=1).max()) * s.max_servers + 1
        rows = self._grow("tokens", (s.max_tokens, TOKEN_COLUMNS), np.int64)
        rows[old:, NEXT_TOKEN] = np.arange(old + 1, s.max_tokens + 1)
        if old:
            heads[:old_servers] = self.arrays["token_head"]
            rows[-1, NEXT_TOKEN] = self.arrays["policy_ints"][FREE_TOKEN]
        self.arrays["policy_ints"][FREE_TOKEN] = old
        self.put("token_head", heads)

    def _orders(self) -> NDArray[np.int64]:
        """Types from large to small (by their largest share of any class's capacity, then by number)."""
        whole = np.maximum(self.sizes.capacity.max(axis=0), 1)
        share = (self.sizes.demand / whole).max(axis=1)
        J = len(share)
        largest = np.lexsort((np.arange(J), -(self.sizes.demand / whole).sum(axis=1), -share))
        return np.array([largest, np.arange(J), np.arange(J)], np.int64)

    def _check_predicates(self) -> None:
        if self.state.keeps_free and any(space.demand is None for space in self.spaces):
            raise InputError(
                "packs by free resources, but a server class has a predicate of its own",
                where=f"policy {self.policy.name}",
                remedy="use algorithm1 or m14, which pack by configurations",
            )

    def _make_solvers(self) -> None:
        """The candidates or the kernel parameters of each class, one after the other."""
        s = self.state
        about = np.zeros((s.n_classes, CLASS_COLUMNS), np.int64)
        tables: list[NDArray[Any]] = []
        real: list[NDArray[Any]] = []
        whole: list[NDArray[Any]] = []
        for c, space in enumerate(self.spaces if self.policy.solver else []):
            solver = make_solver(
                self.policy.solver or "auto", space, epsilon=getattr(self.policy.options, "epsilon", 0.05)
            )
            self.solvers.append(solver)
            rows = solver.table if solver.table is not None else np.zeros((0, s.n_types), np.int64)
            parts: list[tuple[int, list[NDArray[Any]], NDArray[Any]]] = [
                (TABLE_START, tables, rows),
                (FLOATS_START, real, solver.params_f),
                (INTS_START, whole, solver.params_i),
            ]
            for at, pieces, piece in parts:
                about[c, at] = sum(map(len, pieces))
                pieces.append(piece)
                about[c, at + 1] = about[c, at] + len(piece)
            about[c, SOLVER] = solver.kind
            if solver.kind != TABLE:
                s.hook_solve = late(run_solver)
            s.n_scratch_floats = max(s.n_scratch_floats, solver.scratch_f_size)
            s.n_scratch_ints = max(s.n_scratch_ints, solver.scratch_i_size)
        self.put("classes", about)
        s.n_table = sum(map(len, tables))
        candidates = np.concatenate(tables) if tables else np.zeros((0, s.n_types), np.int64)
        self.put("table", candidates)
        self.put("real_table", candidates.astype(np.float64))
        s.n_params_floats, s.n_params_ints = sum(map(len, real)), sum(map(len, whole))
        self.put("params_floats", np.concatenate(real) if real else np.zeros(0))
        self.put("params_ints", np.concatenate(whole) if whole else np.zeros(0, np.int64))
        self.put("scratch_floats", np.zeros(s.n_scratch_floats + s.n_types))
        self.put("scratch_ints", np.zeros(max(1, s.n_scratch_ints), np.int64))
        s.n_scratch_ints = max(1, s.n_scratch_ints)

    def _identity(self) -> dict[str, Any]:
        """What two states must share to mean the same by their numbers."""
        policy, sizes = self.policy, self.sizes
        options = policy.options.model_dump()
        return {
            "policy": (policy.name or type(policy).__name__, options),
            "sizes": (sizes.digits, sizes.demand.tolist(), sizes.capacity.tolist()),
            "layout": DTYPE.names,
        }

    def copy_out(self) -> dict[str, Any]:
        """Everything that changes, as plain arrays."""
        arrays = {name: a.copy() for name, a in self.arrays.items()}
        return {"of": self._identity(), "record": self.record.copy(), "arrays": arrays}

    def copy_in(self, saved: Mapping[str, Any]) -> None:
        """Take back what `copy_out` gave, in this process or in another one."""
        if saved["of"] != self._identity():
            raise InputError(
                "is of another cluster, other types or another policy",
                where="snapshot",
                remedy="restore it into a scheduler that was made as its own was",
            )
        hooks = {name: getattr(self.state, name) for name in State.__annotations__ if name.startswith("hook_")}
        for name, values in saved["arrays"].items():
            self.arrays[name] = aligned(values.shape, values.dtype)
            self.arrays[name][...] = values
        self.record[:] = saved["record"]
        for name, address in hooks.items():
            setattr(self.state, name, address)
        self.refresh_addresses()
