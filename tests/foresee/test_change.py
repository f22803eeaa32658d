"""What if: mistakes are told, and a change is made by the scheduler's own events."""

from __future__ import annotations

import pytest

from slotwise.errors import InputError
from slotwise.foresee.change import Change, changed
from slotwise.model import Cluster, JobType, ServerClass
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
    after = changed(before, Change(add={"a": 2}))
    assert len(before.waiting.job) == 3
    assert after.waiting.job == [4]
    assert sorted(after.running.job) == [0, 1, 2, 3]
    assert len(before.waiting.job) == 3, "the situation itself stays as it is"


def test_removed_servers_take_no_more_jobs() -> None:
    after = changed(situation(), Change(remove={"a": 1}))
    assert sorted(after.servers.status) == ["draining", "present"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Change(add={"b": 1}), "no server class is called 'b'"),
        (Change(remove={"a": 3}), "2 of them take jobs now"),
        (Change(drain=("host3",)), "no server that takes jobs is called 'host3'"),
        (Change(rate={"web": 2.0}), "no type is called 'web'"),
        (Change(rate={"whole": -1.0}), "give a factor such as 1.5"),
        (Change(policy="nobody"), "nobody"),
    ],
)
def test_mistakes_are_told(change: Change, said: str) -> None:
    with pytest.raises(InputError, match=said):
        changed(situation(), change)
