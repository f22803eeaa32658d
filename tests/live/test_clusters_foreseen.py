"""`explain`, forecasts and what-if on the engines of real clusters: a service runs jobs, and a foreseer reads its store."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_kubernetes import FakeKubernetes
from fake_libvirt import RUNNING, FakeHost
from processes import PATIENCE

from slotwise.foresee.change import ClusterChange
from slotwise.live.engines.kubernetes.access import fixed
from slotwise.live.engines.kubernetes.engine import KubernetesEngine
from slotwise.live.engines.kubernetes.http import Access
from slotwise.live.engines.libvirt.connection import SHUTOFF
from slotwise.live.engines.libvirt.engine import LibvirtEngine
from slotwise.live.engines.libvirt.hosts import checked_hosts
from slotwise.live.forecast.foreseer import FEWEST, Foreseer
from slotwise.live.ledger import NewJob
from slotwise.live.service import Service
from slotwise.live.settings import setup_of
from slotwise.live.store import open_store
from slotwise.live.store.records import Query

WAITING = 3


def until(condition: Callable[[], Any]) -> Any:
    """Wait until something is so, and return it."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError("it did not happen in time")
        time.sleep(0.01)
    return found


class OnKubernetes:
    """A node with room for one pod."""

    def __init__(self, folder: Path) -> None:
        self.api = FakeKubernetes()
        self.api.node("n1", 1)
        self.engine = KubernetesEngine(folder, access=(Access(self.api.url, None, fixed({})), "default"))
        self.pods: list[str] = []

    def submit(self, service: Service, count: int) -> None:
        self.pods += [self.api.pod(f"p{n}", "1") for n in range(count)]

    def end_one(self) -> None:
        """Let the pod that is bound succeed."""
        pod = until(lambda: [one for one in self.pods if self.api.node_of(one)])[0]
        self.pods.remove(pod)
        self.api.phase(pod, "Succeeded")

    def close(self) -> None:
        self.api.close()


class OnLibvirt:
    """A host with room for one virtual machine."""

    def __init__(self, folder: Path) -> None:
        self.host = FakeHost(cpu=1)
        table = {"hosts": [{"name": "h", "uri": "qemu:///system"}]}
        self.engine = LibvirtEngine(
            folder, checked_hosts(table, "file"), "0123456789abcdef", connect=self.host.open
        )

    def submit(self, service: Service, count: int) -> None:
        body = json.dumps({"vm": {"image": "image"}})
        needs = {"cpu": 1.0, "memory": 1024.0}
        service.loop.submit([NewJob("t", None, needs, {}, body=body) for _ in range(count)]).result(PATIENCE)

    def end_one(self) -> None:
        """Let the guest that runs power off."""
        one = until(lambda: [one for one in list(self.host.all.values()) if one.state == RUNNING])[0]
        self.host.volumes[f"{one.name}.log"] += b"slotwise-exit: 0\n"
        one.end(1)
        assert one.state == SHUTOFF
        self.host.wake()

    def close(self) -> None:
        pass


@contextmanager
def served(kind: Callable[[Path], Any], folder: Path) -> Iterator[tuple[Any, Service]]:
    """Run a service on an engine."""
    on = kind(folder / "engine")
    setup = setup_of(on.engine.cluster(), None)._replace(policy="best-fit")
    service = Service(open_store(f"sqlite:///{folder}/x.db"), on.engine, setup)
    try:
        yield on, service
    finally:
        service.close()
        on.close()


@pytest.mark.parametrize("kind", [OnKubernetes, OnLibvirt])
def test_explanations_forecasts_and_what_if(kind: Callable[[Path], Any], tmp_path: Path) -> None:
    with served(kind, tmp_path) as (on, service):
        on.submit(service, FEWEST + 1 + WAITING)
        for done in range(FEWEST):
            on.end_one()
            until(lambda done=done: len(service.store.jobs(Query(states=("done",), limit=100))) > done)  # type: ignore[misc]
        until(lambda: len(service.store.jobs(Query(states=("running", "placed"), limit=100))) == 1)
        waiting = [one.id for one in service.store.jobs(Query(states=("waiting",), limit=100))]
        assert len(waiting) == WAITING
        text = service.loop.ask(lambda ledger, _: str(ledger.core.explain(waiting[0]))).result(PATIENCE)
        assert "wait" in text
        foreseer = Foreseer(open_store(f"sqlite:///{tmp_path}/x.db"), runs=8)
        told = [foreseer.forecast(number) for number in sorted(waiting)]
        assert all(one["p50"] is not None for one in told), told
        assert [one["p50"] for one in told] == sorted(one["p50"] for one in told)
        (name,) = [one.name for one in foreseer.follower.core.situation().classes]
        answer = foreseer.what_if(ClusterChange(add={name: 3}), hours=0.001)  # jobs take milliseconds here
        assert answer["then"]["queue"]["mean"]["p50"] < answer["now"]["queue"]["mean"]["p50"]
