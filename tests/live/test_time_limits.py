"""Time limits: enforced by the supervisor, with or without a service; what tenants may ask for; the state of such a job."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from house import House
from processes import PATIENCE, kill_supervisor
from test_local_engine import Driver, supervisor_of

from slotwise.errors import InputError
from slotwise.live.durations import in_words, over_time, seconds_of
from slotwise.live.engines.protocol import Ended
from slotwise.live.engines.supervisor.claims import Claims
from slotwise.live.engines.supervisor.deadlines import Deadlines, number_of
from slotwise.live.engines.supervisor.limits import Limit
from slotwise.live.engines.supervisor.processes import RunningProcess, start_time
from slotwise.live.time_limits import TimeLimits, by_tenant


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "engine"
    kill_supervisor(tmp_path / "engine")


def test_a_job_is_ended_at_its_limit(folder: Path) -> None:
    driver = Driver(folder)
    driver.start(1, "sleep", "1000", time=0.1)
    driver.start(2, "sh", "-c", "trap '' TERM; while :; do sleep 0.01; done", time=0.1, grace=0)
    driver.start(3, "true", time=PATIENCE)
    ends = driver.until_ended(1, 2, 3)
    driver.engine.close()
    assert all(isinstance(end, Ended) for end in ends.values())
    assert [(ends[n].exit_code, ends[n].reason, ends[n].over_time) for n in (1, 3)] == [  # type: ignore[union-attr]
        (-signal.SIGTERM, over_time(0.1), True),
        (0, "", False),
    ]
    assert ends[2].reason == over_time(0.1)


def test_a_limit_holds_while_the_service_is_away(folder: Path) -> None:
    driver = Driver(folder)
    driver.start(1, "sleep", "1000", time=0.5)
    driver.until_started(1)
    driver.engine.close()
    driver = Driver(folder, epoch=2)
    driver.start(
        1, "sleep", "1000", time=0.5
    )  # told again, as after a restart: the same attempt, the same deadline
    end = driver.until_ended(1)[1]
    driver.engine.close()
    assert (end.reason, end.over_time) == (over_time(0.5), True)  # type: ignore[union-attr]


def test_a_supervisor_that_takes_over_goes_on_with_the_deadlines(folder: Path) -> None:
    driver = Driver(folder)
    driver.start(1, "sleep", "1000", time=2)
    driver.until_started(1)
    os.kill(supervisor_of(folder), signal.SIGKILL)
    end = driver.until_ended(1)[1]
    driver.engine.close()
    assert (end.reason, end.over_time) == (over_time(2), True)  # type: ignore[union-attr]


def test_the_log_keeps_limits_until_the_end(tmp_path: Path) -> None:
    limit = Limit.of({"time": 5, "warn": [10, 2]}, began=100.0)
    assert limit == Limit(105.0, 5, 10.0, 103.0, 10)
    log = Claims(str(tmp_path))
    for key in ((1, 1), (2, 1)):
        log.claim(key)
        log.limit(key, limit)
    log.end((2, 1), 0, "")
    assert log.write()
    again = Claims(str(tmp_path))
    assert again.limits == {(1, 1): limit}
    assert Claims(str(tmp_path)).limits == again.limits  # compacted, and read once more


def test_warned_then_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "killpg", lambda pid, number: sent.append((pid, number)))
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        try:
            _check_warned_then_ended(RunningProcess(process.pid, start_time(process.pid)), sent)
            deadlines = Deadlines()
            deadlines.add((1, 1), Limit.of({"time": 5, "warn": [number_of("USR1"), 5]}, 100.0), 100.0)
            deadlines.enforce({(1, 1): RunningProcess(process.pid, "at another time")}, {}, 1000.0)
            assert len(sent) == 2, "the number is another program's"
        finally:
            process.kill()


def _check_warned_then_ended(job: RunningProcess, sent: list[tuple[int, int]]) -> None:
    deadlines = Deadlines()
    deadlines.add((1, 1), Limit.of({"time": 5, "warn": [number_of("USR1"), 5], "grace": 3}, 100.0), 100.0)
    deadlines.add((2, 1), None, 100.0)
    assert deadlines.wait(99.0, 5.0) == 1.0
    deadlines.enforce({(1, 1): job}, {}, 104.9)
    assert sent == [(job.pid, signal.SIGUSR1)]
    assert deadlines.wait(104.0, 0.5) == 0.5
    deadlines.enforce({(1, 1): job}, {}, 105.0)
    assert sent[1:] == [(job.pid, signal.SIGTERM)]
    assert job.kill_at > 0
    deadlines.enforce({(1, 1): job}, {}, 1000.0)
    assert (len(sent), deadlines.wait(1000.0, 5.0)) == (2, 5.0)
    deadlines.add((3, 1), Limit(1.0, 1.0), 0.0)
    deadlines.enforce({}, {}, 2.0)  # it has ended
    assert len(sent) == 2


def test_default_and_maximum_of_tenants() -> None:
    limits = TimeLimits(by_tenant(["1h", "physics=2h"], "--default-time"), by_tenant(["physics=1d"], "--max-time"))
    assert limits.of("biology", None) == 3600
    assert limits.of("biology", 1e6) == 1e6
    assert limits.of("physics", None) == 7200
    with pytest.raises(
        InputError, match="time: 1 d 1 s is more than jobs of tenant 'physics' may have; ask for at most 1 d"
    ):
        limits.of("physics", 86_401)
    assert TimeLimits(longest={"": 60.0}).of("x", None) == 60
    assert TimeLimits().of("x", None) is None
    for wrong in ("physics=", "physics=0", "soon"):
        with pytest.raises(InputError, match="--max-time: "):
            by_tenant([wrong], "--max-time")


def test_durations_are_read_and_shown() -> None:
    assert [in_words(seconds_of(text)) for text in ("1d12h", "90", "1.5m", "0.5s")] == [
        "1 d 12 h", "1 min 30 s", "1 min 30 s", "0.5 s",
    ]  # fmt: skip
    for wrong in ("", "h", "2 hours", "-1", "1h2d"):
        with pytest.raises(ValueError, match="is no duration"):
            seconds_of(wrong)
    with pytest.raises(ValueError, match="write 1h30m or 1h30s"):
        seconds_of("1h30")


def test_over_the_api(tmp_path: Path) -> None:
    house = House(tmp_path, times=TimeLimits(longest={"": 100.0}))
    try:
        number = house.submit(duration=50, time=0.001)
        while (job := house.call("GET", f"/v1/jobs/{number}").json())["ended"] is None:
            pass
        assert (job["state"], job["time"]) == ("failed", 0.001)
        assert job["reason"].startswith("time limit")
        assert house.call("GET", f"/v1/jobs/{house.submit()}").json()["time"] == 100
        wrong = house.call("POST", "/v1/jobs", json={"argv": ["x"], "time": 101})
        assert (wrong.status_code, "at most 1 min 40 s" in wrong.json()["detail"]) == (400, True)
        for body in ({"time": 0}, {"warn": {"signal": "NONE", "before": 1}}, {"grace": -1}):
            assert house.call("POST", "/v1/jobs", json={"argv": ["x"], **body}).status_code == 422
        late = {"warn": {"signal": "USR1", "before": 10}}
        for body, why in (
            ({**late, "time": 5}, "10 s before a time limit of 5 s"),
            ({"warn": {"signal": "USR1", "before": 101}}, "before a time limit of 1 min 40 s"),
        ):
            wrong = house.call("POST", "/v1/jobs", json={"argv": ["x"], **body})
            assert (wrong.status_code, why in wrong.json()["detail"]) == (400, True), wrong.text
        assert house.call("GET", f"/v1/jobs/{house.submit(**late)}").json()["time"] == 100
        submits = [entry.event for entry in house.service.store.entries(0) if '"submit"' in entry.event]
        assert '"duration":0.001' in submits[0]
        assert '"duration":100' in submits[1]
    finally:
        house.service.close()


def test_a_warning_needs_a_limit(tmp_path: Path) -> None:
    house = House(tmp_path)
    try:
        wrong = house.call("POST", "/v1/jobs", json={"argv": ["x"], "warn": {"signal": "USR1", "before": 10}})
        assert (wrong.status_code, wrong.json()["detail"].startswith("warn: needs a time limit")) == (400, True)
    finally:
        house.service.close()
