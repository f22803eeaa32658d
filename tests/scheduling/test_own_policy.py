"""A user's own policy: the example of the guide, and what happens to one that does what it must not do."""

from __future__ import annotations

import doctest
import random
import re
from pathlib import Path
from typing import Any

import numba
import pytest
from instances import Events, pairs, perform, random_instance
from ledger import Ledger

from slotwise.compiler.kernel import JIT
from slotwise.errors import InputError, SlotwiseError
from slotwise.model import Cluster, JobType, ServerClass
from slotwise.scheduling import Scheduler, make_policy
from slotwise.scheduling.api import (
    COUNT,
    FitOptions,
    Policy,
    State,
    best_fit,
    capacity,
    count_fits,
    demand,
    first_fit,
    free,
    head,
    job_demand,
    jobs,
    most,
    need,
    oldest_head,
    queue_length,
    running,
    servers,
    set_need,
    start,
    takes,
    uniform,
    weight,
)

pytestmark = pytest.mark.core

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "own_policy.py"
GUIDE = ROOT / "docs" / "guides" / "own-policy.md"


def example(name: str, **options: Any) -> Policy:
    return make_policy(f"{EXAMPLE}:{name}", **options)


# -- the example ------------------------------------------------------------------------------------------------------


def test_plain_and_compiled_place_alike() -> None:
    plain, compiled = example("LongestQueue"), example("LongestQueueCompiled")
    spread = 0
    for seed in range(4 if JIT else 2):
        rng = random.Random(seed)
        instance = random_instance(rng)
        one = Scheduler(instance.cluster, instance.types, plain, seed=seed)
        two = Scheduler(instance.cluster, instance.types, compiled, seed=seed)
        ledger, events = Ledger(instance, digits=one.sizes.digits, actual=True), Events(rng, instance)
        for _ in range(80):
            event = events.next(one, ledger.waiting())
            outcome = perform(one, event)
            assert perform(two, event) == outcome
            ledger.hear(event, outcome[1])
            for placement in outcome[0]:
                ledger.place(placement)
                spread += one._servers[placement[1]] > 0
            ledger.agree(one)
            rooms = ledger.all_free().values()
            assert not any(ledger.fits(job, room) for job in ledger.heads() for room in rooms)
    assert spread, "everything went to the first server"


def test_its_options_are_checked_like_any_others() -> None:
    assert example("LongestQueue", tries=5).options.tries == 5
    with pytest.raises(InputError, match="policy longest-queue.tries: is -1; should be greater than or equal to 0"):
        example("LongestQueue", tries=-1)
    with pytest.raises(
        InputError, match="longest-queue.trials: unknown option; longest-queue has: ties, pack_by, tries"
    ):
        example("LongestQueue", trials=1)


def test_the_guide_shows_the_very_code_of_the_example() -> None:
    code = EXAMPLE.read_text()
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    shown = [block for block in blocks if not block.startswith(">>>")]
    assert len(shown) >= 3
    for block in shown:
        assert block.strip() in code, f"not in {EXAMPLE.name}:\n{block}"
    for definition in ("def serve", "class LongestQueue(", "class LongestQueueCompiled("):
        assert any(definition in block for block in shown)


def test_the_session_in_the_guide_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (session,) = re.findall(r"```python\n(>>>.*?)```", GUIDE.read_text(), re.DOTALL)
    test = doctest.DocTestParser().get_doctest(session, {}, GUIDE.name, str(GUIDE), 0)
    assert len(test.examples) == 6
    assert doctest.DocTestRunner().run(test).failed == 0


def test_the_guide_names_only_what_the_api_has() -> None:
    import slotwise.scheduling.api as api

    names = set(re.findall(r"`(\w+)\(s", GUIDE.read_text()))
    assert len(names) > 5
    assert names <= set(api.__all__)
    missing = [name for name in api.__all__ if name.islower() and f"{name}(s" not in (api.__doc__ or "")]
    assert not missing, "the author's reference does not say what these are"


def test_a_policy_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file; give the path of a Python file"):
        make_policy("nowhere/none.py:Thing")
    with pytest.raises(InputError, match="'Nothing' is not a policy in it; name a class that derives from"):
        make_policy(f"{EXAMPLE}:Nothing")
    with pytest.raises(InputError, match="'serve' is not a policy in it"):
        make_policy(f"{EXAMPLE}:serve")
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n")
    with pytest.raises(InputError, match=r"cannot be loaded: SyntaxError: .*; make it run with"):
        make_policy(f"{broken}:Thing")


# -- accessors, called from plain Python ------------------------------------------------------------------------------


def small(policy: Policy | str, count: int = 2) -> Scheduler:
    cluster = Cluster(
        resources=("cpu", "memory"),
        servers=(
            ServerClass(name="a", count=count, capacity=(4, 8)),
            ServerClass(name="b", count=1, capacity=("2.5", 2)),
        ),
    )
    types = [JobType(name="x", demand=(2, 3), mean_service=2.0), JobType(name="y", demand=("0.5", 1))]
    return Scheduler(cluster, types, policy)


def test_accessors_work_from_plain_python() -> None:
    seen: dict[str, Any] = {}

    def look(s: State, j: int, i: int) -> None:
        set_need(s, j)
        seen.update(
            lengths=queue_length(s).tolist(),
            weights=weight(s).tolist(),
            head=head(s, j),
            oldest=oldest_head(s, 0),
            type=int(jobs(s)[i, 0]),
            demand=demand(s).tolist(),
            asked=job_demand(s)[i].tolist(),
            need=need(s).tolist(),
            capacity=capacity(s).tolist(),
            most=most(s).tolist(),
            free=free(s)[:3].tolist(),
            running=running(s)[:3].tolist(),
            counts=servers(s)[:3, COUNT].tolist(),
            takes=[takes(s, n, need(s)) for n in range(s.n_places)],
            first=first_fit(s, need(s), 0),
            next=first_fit(s, need(s), 1),
            none=first_fit(s, need(s), 3),
            best=best_fit(s, need(s)),
            fitting=count_fits(s, need(s), -1),
            sizes=(s.n_types, s.n_resources, s.n_classes, s.n_waiting, s.n_running, s.n_servers),
            chance=0.0 <= uniform(s) < 1.0,
        )
        start(s, j, 2 if j == 1 else 0)

    class Looks(Policy):
        name = "looks"
        Options = FitOptions
        keeps = frozenset({"fit", "tree"})
        arrive = staticmethod(look)

    scheduler = small(Looks())
    assert pairs(scheduler.submit("first", "x")) == [("first", "a-0")]
    assert pairs(scheduler.submit("second", "y", demand={"memory": 0})) == [("second", "b-0")]
    assert seen == {
        "lengths": [0, 1],
        "weights": [0.0, 1.0],
        "head": 1,
        "oldest": 1,
        "type": 1,
        "demand": [[20, 3], [5, 1]],
        "asked": [5, 0],
        "need": [5, 0],
        "capacity": [[40, 8], [25, 2]],
        "most": [[2, 8 // 1], [0, 2]],
        "free": [[20, 5], [40, 8], [25, 2]],
        "running": [[1, 0], [0, 0], [0, 0]],
        "counts": [1, 0, 0],
        "takes": [True] * 3,
        "first": 0,
        "next": 1,
        "none": -1,
        "best": seen["best"],
        "fitting": 3,
        "sizes": (2, 2, 2, 1, 1, 3),
        "chance": True,
    }
    assert seen["best"] in (0, 1, 2)  # all scores are 0 here


def test_without_an_index_kept_free_room_is_still_kept() -> None:
    class Simple(Policy):
        name = "simple"

        @staticmethod
        def arrive(s: State, j: int, i: int) -> None:
            for server in range(s.n_places):
                if takes(s, server, demand(s)[j]):
                    start(s, j, server)
                    return

    scheduler = small(Simple())
    assert [pairs(scheduler.submit(i, "x")) for i in range(5)] == [
        [(0, "a-0")],
        [(1, "a-0")],
        [(2, "a-1")],
        [(3, "a-1")],
        [],
    ]


def test_a_stop_of_its_own_finds_the_freed_server_in_the_index() -> None:
    found = []

    class AsksTheIndex(type(make_policy("best-fit"))):  # type: ignore[misc]
        compiled = False

        @staticmethod
        def stop(s: State, j: int, server: int) -> None:
            found.append((server, int(best_fit(s, demand(s)[j]))))

    scheduler = small(AsksTheIndex())
    for i in range(5):  # four fill the cluster
        scheduler.submit(i, "x")
    scheduler.cancel(4)
    scheduler.stop(3)
    ((server, best),) = found
    assert best == server, "the index of servers does not know yet that job 3 has left"


# -- policies that do what they must not ------------------------------------------------------------------------------


def no_room(s: State, j: int, i: int) -> None:
    start(s, j, 0)


def nobody(s: State, j: int, i: int) -> None:
    start(s, j, 0)
    start(s, j, 0)


def not_there(s: State, j: int, i: int) -> None:
    start(s, j, 5)


def below_all(s: State, j: int, i: int) -> None:
    start(s, j, -1)


def beyond_all(s: State, j: int, i: int) -> None:
    start(s, j, s.n_places)


def no_such_type(s: State, j: int, i: int) -> None:
    start(s, s.n_types, 0)


def gives_up(s: State, j: int, i: int) -> None:
    start(s, j, 0)
    raise ValueError("I give up")


FAULTS = [
    (no_room, 3, "wanted to start a job on a server that has no room for it"),
    (nobody, 1, "wanted to start a job of a type that has no waiting job"),
    (not_there, 1, "wanted to start a job on a server that takes no jobs"),
    (below_all, 1, "wanted to start a job on a server that takes no jobs"),
    (beyond_all, 1, "wanted to start a job on a server that takes no jobs"),
    (no_such_type, 1, "wanted to start a job of a type that has no waiting job"),
    (gives_up, 1, "I give up"),
]


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "njit"])
@pytest.mark.parametrize(("hook", "at", "message"), FAULTS, ids=[hook.__name__ for hook, *_ in FAULTS])
def test_a_fault_is_named_and_corrupts_nothing(hook: Any, at: int, message: str, compiled: bool) -> None:
    policy = type(
        "Faulty", (Policy,), {"name": "faulty", "arrive": staticmethod(numba.njit(hook) if compiled else hook)}
    )
    # every server number is in use, so that -1 would be a server if it were taken for the last one
    scheduler = small(policy(), count=63)
    scheduler.drain_server("a-5")
    raised = SlotwiseError
    if hook is gives_up:
        raised = SlotwiseError if compiled and JIT else ValueError
        if compiled and JIT:
            message = "policy faulty raised an exception in a compiled hook; take @njit away to see it"
    for n in range(1, at + 1):
        if n < at:
            assert pairs(scheduler.submit(n, "x")) == [(n, "a-0")]
        else:
            with pytest.raises(raised, match=re.escape(message)):
                scheduler.submit(n, "x")
    # the job is known, waits or runs exactly once, and the books are right
    on = scheduler.running
    assert set(on.values()) <= {"a-0"}
    assert scheduler.waiting == {"x": at - len(on), "y": 0}
    assert scheduler._state.n_running == len(on) == scheduler._store.arrays["servers"][:, COUNT].sum()
    assert scheduler._store.arrays["free"][0].tolist() == [40 - 20 * len(on), 8 - 3 * len(on)]
    # the fault is not reported twice, and the scheduler goes on
    for job in list(on):
        assert scheduler.complete(job) == []
    assert scheduler.drain_server("a-1") == []


def test_an_error_in_one_event_does_not_show_in_the_next() -> None:
    """A failed `start` and an exception in one event are one error, with and without the compiler."""

    class Both(Policy):
        name = "both"

        @staticmethod
        def arrive(s: State, j: int, i: int) -> None:
            start(s, j, -1)
            raise RuntimeError("after a failed start")

    scheduler = small(Both())
    with pytest.raises(RuntimeError, match="after a failed start"):
        scheduler.submit("a", "x")
    assert scheduler.cancel("a") == []
    assert scheduler.waiting == {"x": 0, "y": 0}
