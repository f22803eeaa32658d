"""What if: mistakes are told, and a change is made by the scheduler's own events."""

from __future__ import annotations

import numpy as np
import pytest

from slotwise.errors import InputError
from slotwise.foresee.change import ClusterChange, changed, shares_after
from slotwise.foresee.ensemble import Outlook
from slotwise.foresee.history import History
from slotwise.foresee.whatif import what_if
from slotwise.model import Cluster, Group, JobType, ServerClass, Shares, Tenant
from slotwise.scheduling import Scheduler
from slotwise.scheduling.events import Submit
from slotwise.scheduling.situation import Situation


def situation() -> Situation:
    """Two servers, both full, and three jobs that wait."""
    core = Scheduler(
        Cluster(resources=("cpu",), servers=(ServerClass(name="a", count=2, capacity=(4,)),)),
        [JobType(name="whole", demand=(4,))],
        "best-fit",
    )
    for job in range(5):
        core.apply(Submit(job, "whole", 1.0))
    return core.situation()


def test_servers_that_join_start_jobs_at_once() -> None:
    before = situation()
    after = changed(before, ClusterChange(add={"a": 2}))
    assert len(before.waiting.job) == 3
    assert after.waiting.job == [4]
    assert sorted(after.running.job) == [0, 1, 2, 3]
    assert len(before.waiting.job) == 3, "the situation itself stays as it is"


def test_removed_servers_take_no_more_jobs() -> None:
    after = changed(situation(), ClusterChange(remove={"a": 1}))
    assert sorted(after.servers.status) == ["draining", "present"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (ClusterChange(add={"b": 1}), "no server class is called 'b'"),
        (ClusterChange(remove={"a": 3}), "2 of them take jobs now"),
        (ClusterChange(drain=("host3",)), "no server that takes jobs is called 'host3'"),
        (ClusterChange(rate={"web": 2.0}), "no type is called 'web'"),
        (ClusterChange(rate={"whole": -1.0}), "give a factor such as 1.5"),
        (ClusterChange(policy="nobody"), "nobody"),
    ],
)
def test_mistakes_are_told(change: ClusterChange, said: str) -> None:
    with pytest.raises(InputError, match=said):
        changed(situation(), change)


def full(now: float = 10.0) -> Situation:
    """A full cluster under `guarded`, without shares."""
    types = [JobType(name="one", demand=(1,))]
    core = Scheduler(
        Cluster(resources=("cpu",), servers=(ServerClass(name="a", count=4, capacity=(4,)),)), types, "guarded"
    )
    for job in range(30):
        core.apply(Submit(job, "one", now))
    return core.situation()


def test_a_tenant_gets_the_part_that_was_asked_for() -> None:
    before = Shares(
        half_life=60.0,
        others=2.0,
        groups=(Group(name="science", share=3.0), Group(name="lone", share=1.0)),
        tenants=(Tenant(name="physics", share=5.0, group="science"), Tenant(name="biology", group="science"),
                 Tenant(name="hermit", group="lone")),
    )  # fmt: skip
    after = shares_after(before, {"physics": 0.5, "hermit": 0.25}, 1.0)
    whole = sum(one.share for one in after.groups) + after.others
    whole += sum(one.share for one in after.tenants if one.group is None)
    part = {one.name: one.share / whole for one in after.tenants}
    assert (part["physics"], part["hermit"]) == pytest.approx((0.5, 0.25))
    assert [one.name for one in after.groups] == ["science"], "a group without tenants is left out"
    assert after.groups[0].share / after.others == pytest.approx(3.0 / 2.0), "the others keep their relations"
    assert (after.half_life, shares_after(None, {"physics": 0.5}, 7.0).half_life) == (60.0, 7.0)
    swapped = shares_after(before, {"others": 0.9}, 1.0)
    assert swapped.others / (swapped.others + 4.0) == pytest.approx(0.9)
    with pytest.raises(InputError, match="leave a part for all other tenants"):
        shares_after(before, {"physics": 0.5, "biology": 0.5}, 1.0)


def test_a_share_gives_the_tenant_types_of_its_own() -> None:
    after = changed(full(), ClusterChange(share={"physics": 0.5}))
    assert [(one.name, one.tenant) for one in after.types] == [("one", None), ("physics/one", "physics")]
    assert after.shares is not None
    assert after.shares.names == ["physics", "others"]
    again = changed(after, ClusterChange(share={"physics": 0.25}))
    assert len(again.types) == 2, "it has them already"
    with pytest.raises(InputError, match="cannot honour shares"):
        changed(situation(), ClusterChange(share={"physics": 0.5}))


def test_the_tenant_with_the_larger_share_waits_less() -> None:
    """Two tenants send more work than there are servers; what arrives for each is the same."""
    now, n, rng = 40_000.0, 4_000, np.random.default_rng(6)
    submitted = np.sort(rng.uniform(0.0, now, n))
    owner = rng.integers(0, 2, n)
    ended = np.minimum(submitted + rng.exponential(180.0, n), now - 1.0)
    history = History(
        ("one",),
        submitted,
        submitted,
        ended,
        np.ones(n, np.bool_),
        np.zeros(n, np.int64),
        owner,
        np.full(n, np.nan),
    )
    outlook = Outlook(full(now), history)
    names = {0: "physics", 1: "web"}
    found = what_if(outlook, ClusterChange(share={"physics": 0.8}), hours=4.0, tenants=names, runs=6)
    waits = {
        side: {name: row["wait"]["p50"] for name, row in found[side]["tenants"].items()} for side in ("now", "then")
    }
    assert waits["now"]["physics"] == pytest.approx(waits["now"]["web"], rel=0.3)
    assert waits["then"]["physics"] < 0.5 * waits["then"]["web"]
    assert set(found["then"]["types"]) == {"one"}, "types of a tenant count with those that they stand for"
    assert found["hours"] == 4.0
    longer = what_if(outlook, ClusterChange(add={"a": 1}), hours=500.0, tenants=names, runs=1)
    assert 60.0 < longer["hours"] < 100.0, "30,000 jobs come in 83 hours"
    with pytest.raises(InputError, match="no tenant is called 'nobody'"):
        what_if(outlook, ClusterChange(share={"nobody": 0.5}), tenants=names, runs=1)
