"""Numbers too large, too small, too many: refused or answered in one clear line, by every command, at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotwise.cli.main import main

COMMANDS = (
    ("capacity",),
    ("simulate", "-p", "first-fit"),
    ("compare", "-p", "first-fit,best-fit"),
    ("plan", "-p", "first-fit", "-t", "p95_wait=1"),
    ("tradeoff", "--beta", "0.9", "--solver", "auto"),
)
GOOD = {
    "count": "3",
    "capacity": "4",
    "demand": "1",
    "rate": "2",
    "mean": "1",
    "server": "",
    "cluster": "",
    "more": "",
    "run": "events = 500",
}


def scenario(**changes: str) -> str:
    v = GOOD | changes
    return f"""
[cluster]
resources = ["cpu"]
servers = [{{ name = "n", count = {v["count"]}, capacity = [{v["capacity"]}]{v["server"]} }}]
{v["cluster"]}
[[types]]
name = "a"
demand = [{v["demand"]}]
rate = {v["rate"]}
mean_service = {v["mean"]}
{v["more"]}
[run]
replications = 1
{v["run"]}
"""


def workload(line: str) -> dict[str, str]:
    return {"more": f"[workload]\n{line}"}


REFUSED: list[tuple[dict[str, str], str]] = [
    ({"rate": "1e308"}, "types[0].rate: is 1E+308; must be at most 1e+30"),
    ({"rate": "1e-308"}, "types[0] (a).rate: is 1e-308; use another unit of time: 1e-30 or more"),
    ({"mean": "1e308"}, "types[0].mean_service: is 1E+308; must be at most 1e+30"),
    ({"mean": "1e-308"}, "types[0] (a).mean_service: is 1e-308; use another unit of time"),
    ({"capacity": "1e308"}, "has too many digits to be kept exactly"),
    ({"capacity": "1e-308"}, "has too many digits to be kept exactly"),
    ({"demand": "1e-308"}, "has too many digits to be kept exactly"),
    ({"count": str(10**9)}, "cluster.servers[0].count: is 1000000000; must be at most 1e+07"),
    ({"count": str(10**30)}, "cluster.servers[0].count: is 1000000000000000000000000000000; must be at most 1e+07"),
    (
        {"server": " }, { name = 'm', count = 9_999_999, capacity = [1]"},
        "cluster.servers: there are 10,000,002 servers",
    ),
    ({"server": ", price = 1e308"}, "price: is 1E+308; must be at most 1e+30"),
    ({"server": ", failures = { mean_time_between = 1e308, mean_repair = 1 }"}, "must be at most 1e+30"),
    (
        {"cluster": f"events = [{{ at = 1, action = 'join', servers = 'n', count = {10**9} }}]"},
        "cluster.events[0].count: is 1000000000; must be at most 1e+07",
    ),
    ({"run": f"events = {10**30}"}, "run.events: is 1000000000000000000000000000000; must be at most 1e+12"),
    ({"run": f"jobs = {10**30}"}, "run.jobs: is 1000000000000000000000000000000; must be at most 1e+12"),
    ({"run": "until = 1e308"}, "run.until: is 1E+308; must be at most 1e+30"),
    (workload("intensity = 1e308"), "workload.intensity: is 1E+308; must be at most 1e+30"),
    (workload("intensity = 1e-308"), "workload.intensity: is 1e-308; use 1e-30 or more"),
    (
        workload("service = { law = 'lognormal', sigma = 1e30 }"),
        "workload.service.sigma: is 1E+30; must be at most 10",
    ),
    (
        workload("service = { law = 'pareto', shape = 1e308 }"),
        "workload.service.shape: is 1E+308; must be at most 1e+30",
    ),
    (
        workload("service = { law = 'hyperexponential', scv = 1e308 }"),
        "workload.service.scv: is 1E+308; must be at most 1e+09",
    ),
    (
        workload("service = { law = 'empirical', values = [1, 1e308] }"),
        "workload.service.values[1]: is 1E+308; must be at most 1e+30",
    ),
    (
        workload("arrivals = { law = 'mmpp', rates = [1, 1e308], sojourns = [1, 1] }"),
        "workload.arrivals.rates[1]: is 1E+308; must be at most 1e+30",
    ),
    (workload("profile = { period = 1e308, rates = [1, 2] }"), "workload.profile.period: is 1E+308"),
    (
        workload("profile = { period = 9, rates = [1, 1e308] }"),
        "workload.profile.rates[1]: is 1E+308; must be at most 1e+30",
    ),
]


def called(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    shown = capsys.readouterr()
    code = ended.value.code
    return code if isinstance(code, int) else 0, shown.err if code else shown.out


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[message[:60] for _, message in REFUSED])
def test_refused_by_every_command_in_one_line(
    changes: dict[str, str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(scenario(**changes))
    for name, *options in COMMANDS:
        code, told = called(capsys, name, str(path), *options)
        assert (code, told.count("\n")) == (2, 1), told
        assert message in told
        assert "Traceback" not in told


SIMULATED: list[tuple[dict[str, str], str]] = [
    ({"run": "until = 1e30"}, "run.until: a run until 1e+30 has about 4e+30 events; use an earlier time"),
    (
        {"server": ", failures = { mean_time_between = 1e-30, mean_repair = 1e-30 }"},
        "cluster.servers[0] (n).failures: servers fail 7.5e+29 times between two jobs; use longer times",
    ),
    (
        workload("arrivals = { law = 'mmpp', rates = [1, 2], sojourns = [1e-30, 1e-30] }"),
        "arrivals.sojourns: the chain changes 5e+29 times between two arrivals of a type; make them longer",
    ),
    (workload("profile = { period = 1e25, rates = [1, 2] }") | {"run": ""}, "run: 8 periods are 320,"),
]


@pytest.mark.parametrize(("changes", "message"), SIMULATED, ids=[message[:40] for _, message in SIMULATED])
def test_refused_before_a_run_that_would_not_end(
    changes: dict[str, str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(scenario(**changes))
    code, told = called(capsys, "simulate", str(path), "-p", "first-fit")
    assert code == 2
    assert message in told
    assert called(capsys, "capacity", str(path))[0] == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rate": "1e30"}, "No policy can carry this load (intensity 8.333e+28)"),
        ({"rate": "1e30", "mean": "1e-30"}, "The cluster carries this load"),
        ({"rate": "1e-30", "mean": "1e30"}, "The cluster carries this load"),
        ({"rate": "1e-30"}, "The cluster carries this load"),
    ],
)
def test_answered_where_there_is_an_answer(
    changes: dict[str, str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(scenario(**changes))
    code, told = called(capsys, "capacity", str(path))
    assert code == 0
    assert said in " ".join(told.split())
    code, told = called(capsys, "simulate", str(path), "-p", "first-fit")
    assert code == 0
    assert "first-fit" in told
    assert "nan" not in told.split()


def test_a_plan_of_too_many_servers_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(scenario(rate="1e30"))
    code, told = called(capsys, "plan", str(path), "-p", "first-fit", "-t", "p95_wait=1")
    assert code == 2
    assert "to carry the load at all takes 2.5e+29 servers, more than 10,000,000; lower the rates" in told
    path.write_text(scenario(rate="1e-30"))
    code, told = called(capsys, "plan", str(path), "-p", "first-fit", "-t", "p95_wait=1")
    assert code == 0
    assert "1 n servers meet p95 wait at most 1" in " ".join(told.split())
    code, told = called(capsys, "plan", str(path), "-t", "p95_wait=1", "--min", f"n={10**9}")
    assert code == 2
    assert "--min: is 1,000,000,000 for n; give 10,000,000 at most" in told
