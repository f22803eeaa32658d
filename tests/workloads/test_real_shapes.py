"""What files from real clusters look like: shapes that were once read wrongly, each as a small file."""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from textfiles import write

from slotwise.errors import InputError, SlotwiseWarning
from slotwise.model import parse_scenario
from slotwise.workloads.fitting import fits, treat_too_large
from slotwise.workloads.tracejobs import jobs_of_trace
from slotwise.workloads.traces import Trace, TraceMeta, import_to_file, import_trace
from slotwise.workloads.traces.filtering import keep_where
from slotwise.workloads.traces.schema import write_trace


def add_up(report: Any) -> bool:
    return report.rows == report.jobs + sum(report.skipped.values()) + sum(report.left_out.values())


# ---------------------------------------------------------------- CSV

ENDS = [
    "id,submitted,start,end,demand.cpu",
    "1,0,10,50,1",
    "2,5,10,,4",
    "3,6,,,1",
    "4,7,100,,1",
    "5,8,9,NaN,2",
    "6,9,90,80,2",
    "7,9,x,80,2",
]
ENDED = {"map": {"arrival": "submitted"}}


def test_a_job_with_no_end_still_runs(tmp_path: Path) -> None:
    path = write(tmp_path / "jobs.csv", ENDS)
    trace, report = import_trace("csv", [path], options=ENDED, skip_bad=True)
    assert trace.frame.select("id", "duration", "censored").rows() == [
        ("1", 40.0, False),
        ("2", 90.0, True),  # until 100, the last moment that the table knows of
        ("5", 91.0, True),
    ]
    assert report.left_out == {"jobs that never started": 1, "jobs that began at the last moment of the table": 1}
    assert report.skipped == {"finish before start": 1, "text in a number": 1}
    assert add_up(report)
    assert report.lines()[0] == "7 rows read: 3 jobs kept, 2 left out, 2 skipped as bad"
    assert "2 jobs have no end" in report.notes[0]
    dropped, report = import_trace("csv", [path], options=ENDED, skip_bad=True, interrupted="drop")
    assert dropped.frame["id"].to_list() == ["1"]
    assert add_up(report)


def test_jobs_run_on_to_the_last_moment_of_all_files(tmp_path: Path) -> None:
    first = write(tmp_path / "a.csv", ["arrival,end,demand.cpu", "0,,1"])
    second = write(tmp_path / "b.csv", ["arrival,end,demand.cpu", "10,70,1"])
    trace, _ = import_trace("csv", [first, second])
    assert trace.duration.tolist() == [70.0, 60.0]


@pytest.mark.parametrize(
    ("unit", "texts", "gap"),
    [
        ("iso", ("2024-01-01T00:00:00+02:00", "2024-01-01T00:00:00Z"), 7200.0),
        ("iso", ("2024-01-01 00:00:00+0530", "2023-12-31T18:30:01.25Z"), 1.25),
        ("iso", ("2024-01-01T00:00:00-08", "2024-01-01 08:00Z"), 0.0),
        ("iso", ("2024-02-29", "2024-03-01"), 86_400.0),
        ("%d/%m/%Y", ("01/02/2024", "02/02/2024"), 86_400.0),
        ("%m/%d/%Y", ("01/02/2024", "02/02/2024"), 31 * 86_400.0),
        ("%d.%m.%Y %H:%M", ("01.02.2024 10:00", "01.02.2024 10:30"), 1800.0),
    ],
)
def test_dates_are_read_as_they_are_written(unit: str, texts: tuple[str, str], gap: float, tmp_path: Path) -> None:
    lines = ["arrival,duration,demand.cpu", *(f"{text},1,1" for text in texts)]
    trace, _ = import_trace("csv", [write(tmp_path / "a.csv", lines)], options={"time_unit": unit})
    assert np.diff(trace.arrival) == pytest.approx([gap], abs=1e-6)


@pytest.mark.parametrize(
    ("unit", "text", "message"),
    [
        (
            "iso",
            "01/02/2024",
            r"a\.csv:2: column 'arrival' holds '01/02/2024', which is not the ISO form.*day first",
        ),
        ("s", "2024-01-01T00:00:00", r"a\.csv:2: column 'arrival' holds dates .*give --time-unit iso"),
        ("s", "31/01/2024", r"a\.csv:2: column 'arrival' holds dates .*--time-unit with its format"),
        ("iso", "2024-13-01", r"a\.csv:2: not a time of the form 'iso'"),
        ("iso", "2024-01-01T25:00:00", r"a\.csv:2: not a time of the form 'iso'"),
        ("fortnight", "1", r"'fortnight' is no unit of time"),
    ],
)
def test_dates_are_never_guessed(unit: str, text: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", ["arrival,duration,demand.cpu", f"{text},1,1"])
    with pytest.raises(InputError, match=message) as caught:
        import_trace("csv", [path], options={"time_unit": unit})
    assert "--skip-bad" not in str(caught.value)


def test_times_without_an_offset_are_told_to_be_utc(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", ["arrival,duration,demand.cpu", "2024-01-01,1,1"])
    _, report = import_trace("csv", [path], options={"time_unit": "iso"})
    assert report.notes == ("times without an offset are read as UTC",)


def test_parquet_columns_with_a_type_of_their_own_are_not_scaled(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"arrival": ["2024-01-01", "2024-01-02"], "end": ["2024-01-03", None], "demand.cpu": [1, 1]}
    )
    dates = frame.with_columns(pl.col("arrival", "end").str.to_datetime("%Y-%m-%d"))
    dates.write_parquet(tmp_path / "dates.parquet")
    frame.write_parquet(tmp_path / "text.parquet")
    for name, unit in (("dates", "ms"), ("dates", "iso"), ("text", "iso")):
        trace, _ = import_trace("parquet", [tmp_path / f"{name}.parquet"], options={"time_unit": unit})
        assert trace.duration.tolist() == [2 * 86_400.0, 86_400.0]


def test_other_separators_are_hinted_at_and_read(tmp_path: Path) -> None:
    for separator, spelt in ((";", "';'"), ("\t", "tab"), ("|", "'|'")):
        lines = ["arrival,duration,demand.cpu", "0,1,2", "1,2,3"]
        path = write(tmp_path / "a.csv", [line.replace(",", separator) for line in lines])
        with pytest.raises(InputError) as caught:
            import_trace("csv", [path])
        assert f"give --option separator={spelt}" in str(caught.value)
        trace, _ = import_trace("csv", [path], options={"separator": spelt.strip("'")})
        assert trace.demands().ravel().tolist() == [2.0, 3.0]


@pytest.mark.parametrize("name", ["csv", "google2011", "swf", "slurm"])
def test_a_byte_order_mark_is_no_part_of_the_first_field(name: str, tmp_path: Path) -> None:
    lines = {
        "csv": ["arrival,duration,demand.cpu", "0,1,2"],
        "google2011": ["5,,1,0,1,0,u,2,1,.5,.5,0,0", "6,,1,0,1,1,u,2,1,.5,.5,0,0", "9,,1,0,1,4,u,2,1,.5,.5,0,0"],
        "swf": ["1 0 5 100 4 -1 -1 8 -1 -1 1 11 1 -1 1 1 -1 -1"],
        "slurm": [
            "JobID|Submit|Start|End|State|ReqCPUS",
            "1|2024-01-01T00:00:00|2024-01-01T00:00:01|2024-01-01T00:00:05|COMPLETED|2",
        ],
    }[name]
    path = tmp_path / "file.csv"
    path.write_bytes(b"\xef\xbb\xbf" + "\n".join([*lines, ""]).encode())
    assert len(import_trace(name, [path])[0]) == 1


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("swf", ["a b c", "d e f"]),
        ("azure2017", ["x,y", "z"]),
        ("csv", ["arrival,duration,demand.cpu", "later,soon,much"]),
        ("google2011", ["1,2"]),
    ],
)
def test_skip_bad_is_not_advised_where_nothing_would_be_left(name: str, lines: list[str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"check that this is the format {name}") as caught:
        import_trace(name, [write(tmp_path / "file.csv", lines)])
    assert "--skip-bad" not in str(caught.value)


def test_a_directory_is_named_as_such(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory"):
        import_trace("csv", [tmp_path])


def test_the_output_is_never_the_input(tmp_path: Path) -> None:
    frame = pl.DataFrame({"arrival": [0.0], "duration": [1.0], "demand.cpu": [1.0]})
    path = tmp_path / "jobs.parquet"
    frame.write_parquet(path)
    before = path.read_bytes()
    with pytest.raises(InputError, match="is also what is read"):
        import_to_file("parquet", [path], path)
    assert path.read_bytes() == before


# ---------------------------------------------------------------- SWF

ONE = "{id} {submit} 5 {run} {got} -1 -1 {asked} -1 -1 {status} 11 1 -1 1 1 -1 -1"


def swf(**fields: int) -> str:
    return ONE.format(**{"id": 1, "submit": 0, "run": 100, "got": 4, "asked": 4, "status": 1, **fields})


def test_swf_runs_that_failed_or_were_cancelled_have_ended(tmp_path: Path) -> None:
    lines = [swf(id=i, submit=i, status=status) for i, status in enumerate([0, 1, 5, -1, 2])]
    trace, report = import_trace("swf", [write(tmp_path / "log.swf", lines)])
    assert trace.frame["censored"].to_list() == [False, False, False, False, True]
    assert add_up(report)
    done, _ = import_trace("swf", [tmp_path / "log.swf"], interrupted="drop")
    assert done.frame["id"].to_list() == [1, 3]


def test_swf_parts_of_a_job_are_not_counted_beside_it(tmp_path: Path) -> None:
    lines = [swf(id=1, run=100), swf(id=1, run=40, status=2), swf(id=1, run=60, status=3), swf(id=2)]
    trace, report = import_trace("swf", [write(tmp_path / "log.swf", lines)])
    assert trace.duration.tolist() == [100.0, 100.0]
    assert report.left_out == {"parts of jobs (status 2 to 4)": 2}


def test_swf_says_where_requested_and_allocated_differ(tmp_path: Path) -> None:
    lines = [swf(id=1, asked=4, got=4), swf(id=2, asked=2, got=256), swf(id=3, asked=8, got=-1)]
    path = write(tmp_path / "log.swf", lines)
    asked, report = import_trace("swf", [path])
    assert asked.demands().ravel().tolist() == [4.0, 2.0, 8.0]
    assert "1 of 3 jobs got another number of processors" in report.notes[0]
    assert "(up to 128 times)" in report.notes[0]
    got, _ = import_trace("swf", [path], options={"processors": "allocated"})
    assert got.demands().ravel().tolist() == [4.0, 256.0, 8.0]


def test_swf_jobs_of_several_nodes(tmp_path: Path) -> None:
    lines = ["; MaxProcs: 64", "; MaxNodes: 4", swf(id=1, asked=16), swf(id=2, asked=40, submit=9)]
    path = write(tmp_path / "log.swf", lines)
    whole, report = import_trace("swf", [path])
    assert whole.demands().ravel().tolist() == [16.0, 40.0]
    assert "1 of 2 jobs span several nodes (up to 3): each is read as one job" in " ".join(report.notes)
    parts, report = import_trace("swf", [path], options={"nodes": "parts"})
    assert parts.demands().ravel().tolist() == [16.0, 16.0, 16.0, 8.0]
    assert parts.frame["id"].to_list() == ["1", "2-0", "2-1", "2-2"]
    assert parts.frame["batch"].to_list() == [0, 1, 1, 1]
    assert [(s.count, s.capacity) for s in parts.meta.servers] == [(4, (16.0,))]
    assert "need not start together" in " ".join(report.notes)
    fewer, report = import_trace("swf", [path], options={"nodes": "drop"})
    assert (len(fewer), report.left_out) == (1, {"jobs of several nodes": 1})
    with pytest.raises(InputError, match="1 of 2 jobs span several nodes"):
        import_trace("swf", [path], options={"nodes": "refuse"})
    with pytest.raises(InputError, match="node_cpus=NUMBER"):
        import_trace("swf", [write(tmp_path / "bare.swf", lines[2:])], options={"nodes": "parts"})


# ---------------------------------------------------------------- Slurm

SACCT = "JobID|Submit|Start|End|State|ReqTRES"


def sacct(name: str, state: str, tres: str = "cpu=4,mem=8G,node=1") -> str:
    return f"{name}|2024-01-01T00:00:00|2024-01-01T00:00:10|2024-01-01T00:01:00|{state}|{tres}"


def test_slurm_tells_ends_from_interruptions(tmp_path: Path) -> None:
    states = ["COMPLETED", "FAILED", "CANCELLED by 100", "OUT_OF_MEMORY", "TIMEOUT", "NODE_FAIL", "PREEMPTED"]
    lines = [SACCT, *(sacct(str(i), state) for i, state in enumerate(states))]
    trace, report = import_trace("slurm", [write(tmp_path / "log.txt", lines)])
    assert trace.frame["censored"].to_list() == [False] * 4 + [True] * 3
    assert add_up(report)
    done, _ = import_trace("slurm", [tmp_path / "log.txt"], interrupted="drop")
    assert len(done) == 1


def test_slurm_jobs_of_several_nodes(tmp_path: Path) -> None:
    lines = [SACCT, sacct("1", "COMPLETED"), sacct("2", "COMPLETED", "cpu=16,mem=8G,node=4,gres/gpu=8")]
    path = write(tmp_path / "log.txt", lines)
    whole, report = import_trace("slurm", [path])
    assert whole.demands().tolist() == [[4.0, 8.0, 0.0], [16.0, 8.0, 8.0]]
    assert "1 of 2 jobs span several nodes (up to 4)" in report.notes[0]
    parts, _ = import_trace("slurm", [path], options={"nodes": "parts"})
    assert parts.demands().tolist() == [[4.0, 8.0, 0.0]] + [[4.0, 2.0, 2.0]] * 4
    assert parts.frame["batch"].to_list() == [0, 1, 1, 1, 1]


# ---------------------------------------------------------------- Google 2011


def event(time: int, job: int, kind: int) -> str:
    return f"{time},,{job},0,17,{kind},user,2,0,0.25,0.125,0.001,0"


def test_google_parts_come_in_any_order_and_gaps_are_told(tmp_path: Path) -> None:
    first = write(tmp_path / "part-00003-of-00500.csv.gz", [event(10, 1, 0), event(20, 1, 1)])
    last = write(tmp_path / "part-00004-of-00500.csv.gz", [event(30, 1, 4)])
    far = write(tmp_path / "part-00009-of-00500.csv.gz", [event(90, 2, 0)])
    trace, report = import_trace("google2011", [last, first])
    assert (len(trace), report.notes) == (1, ())
    _, report = import_trace("google2011", [far, last, first])
    assert "parts 5 to 8 are not there" in report.notes[0]
    one, two = (
        write(tmp_path / "b.csv", [event(30, 1, 4)]),
        write(tmp_path / "c.csv", [event(10, 1, 0), event(20, 1, 1)]),
    )
    assert len(import_trace("google2011", [one, two])[0]) == 1  # by their first times


@pytest.mark.parametrize("name", ["machine_events.csv", "machines.csv.gz", "part-00000-of-00001.csv.gz"])
def test_google_machines_given_by_path(name: str, tmp_path: Path) -> None:
    tasks = write(tmp_path / "tasks.csv", [event(10, 1, 0), event(20, 1, 1), event(30, 1, 4)])
    machines = write(tmp_path / name, ["0,5,0,HofLGzk1Or/8,0.5,0.2493", "0,6,0,HofLGzk1Or/8,0.5,0.2493"])
    trace, _ = import_trace("google2011", [tasks, machines])
    assert [(s.count, s.capacity) for s in trace.meta.servers] == [(2, (0.5, 0.2493))]


def test_google_tables_of_another_kind_are_named(tmp_path: Path) -> None:
    jobs = write(tmp_path / "jobs.csv", ["0,,3418309,0,user,3,name,logical"])
    with pytest.raises(InputError, match=r"has 8 columns in its first line; task_events has 13, machine_events 6"):
        import_trace("google2011", [jobs])


# ---------------------------------------------------------------- jobs that fit no server, conditions


def trace_of(demands: list[list[float]], resources: tuple[str, ...] = ("cpu", "memory")) -> Trace:
    n = len(demands)
    columns = {f"demand.{name}": [float(row[r]) for row in demands] for r, name in enumerate(resources)}
    frame = pl.DataFrame({"arrival": np.arange(n, dtype=float), "duration": np.full(n, 2.0), **columns})
    return Trace(frame.with_columns(tenant=pl.Series(["ann", "bob"] * n)[:n]), TraceMeta("test", resources), "test")


def cluster(text: str, **typing: str) -> Any:
    keys = "".join(f'{key} = "{value}"\n' for key, value in {"method": "waste-bounded", **typing}.items())
    return parse_scenario(tomllib.loads(f'{text}\n[workload]\ntrace = "x.parquet"\n[workload.typing]\n{keys}'))


BOTH = '[cluster]\nresources = ["cpu", "memory"]\nservers = [{ name = "a", count = 2, capacity = [8, 64] }, { name = "b", count = 1, capacity = [32, 16] }]'


def test_too_large_jobs_are_refused_dropped_or_capped() -> None:
    trace = trace_of([[4, 4], [32, 16], [32, 64], [100, 8]])
    for way, count in (("drop", 2), ("cap", 4)):
        scenario = cluster(BOTH, too_large=way)
        with pytest.warns(SlotwiseWarning, match=r"2 of 4 jobs fit no server .*asks for 32 cpu, 64 memory"):
            jobs = jobs_of_trace(trace, scenario.cluster, scenario.workload.typing)
        assert jobs.count == count
    with pytest.raises(InputError, match=r'2 of 4 jobs fit no server.*workload\.typing\.too_large = "drop"'):
        jobs_of_trace(trace, (scenario := cluster(BOTH)).cluster, scenario.workload.typing)
    with pytest.warns(SlotwiseWarning):
        capped = treat_too_large(trace, [[8, 64], [32, 16]], "cap")
    assert capped.demands().tolist() == [[4, 4], [32, 16], [8, 64], [32, 8]]


def test_types_fit_some_server_wherever_jobs_do() -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        room = rng.integers(1, 40, (3, 2)).astype(float)
        demands = np.concatenate([np.ceil(rng.random((40, 2)) * size) for size in room])
        text = ", ".join(f'{{ name = "c{k}", count = 1, capacity = [{a}, {b}] }}' for k, (a, b) in enumerate(room))
        scenario = cluster(f'[cluster]\nresources = ["cpu", "memory"]\nservers = [{text}]')
        jobs = jobs_of_trace(trace_of(demands.tolist()), scenario.cluster, scenario.workload.typing)
        covers = np.array([[float(d) for d in job_type.demand] for job_type in jobs.types])
        assert fits(covers, room).any(axis=1).all()


def test_types_are_made_over_the_cluster_s_resources_only() -> None:
    rng = np.random.default_rng(1)
    cpu = rng.choice([1.0, 2.0, 4.0, 8.0], 200)
    with_memory = trace_of(np.stack([cpu, rng.random(200) * 100], axis=1).tolist())
    without = trace_of(cpu[:, None].tolist(), ("cpu",))
    scenario = cluster('[cluster]\nresources = ["cpu"]\nservers = [{ name = "a", count = 2, capacity = [16] }]')
    one, other = (
        jobs_of_trace(trace, scenario.cluster, scenario.workload.typing) for trace in (with_memory, without)
    )
    assert one.types == other.types
    assert len(one.types) == 4
    assert one.typed == other.typed


def test_a_condition_keeps_the_jobs_that_meet_it() -> None:
    trace = trace_of([[4, 4], [32, 16], [64, 8], [100, 8]])
    for condition, rows in {
        "cpu <= 64": [0, 1, 2],
        "cpu <= 64 and memory > 4": [1, 2],
        "not (cpu > 10 or memory == 4)": [],
        "4 < cpu < 100": [1, 2],
        "tenant == 'bob'": [1, 3],
        "tenant in ('ann',) and arrival >= 2": [2],
        "cpu * 2 > memory + 100": [2, 3],
        "True": [0, 1, 2, 3],
    }.items():
        if rows:
            assert keep_where(trace, condition).arrival.tolist() == [float(r) for r in rows], condition
        else:
            with pytest.raises(InputError, match="no job of 4 meets"):
                keep_where(trace, condition)


@pytest.mark.parametrize(
    "condition",
    [
        "",
        "cpu <=",
        "gpu > 1",
        "__import__('os')",
        "cpu",
        "cpu > 'x'",
        "tenant > 3",
        "[1][0] == 1",
        "cpu.x > 1",
        "lambda: 1",
    ],
)
def test_a_wrong_condition_is_told_in_a_line(condition: str) -> None:
    with pytest.raises(InputError) as caught:
        keep_where(trace_of([[1, 1]]), condition)
    assert "\n" not in str(caught.value)


def test_filter_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from slotwise.cli.main import main

    write_trace(trace_of([[4, 4], [100, 8]]), tmp_path / "jobs.parquet")
    with pytest.raises(SystemExit) as ended:
        main(["trace", "filter", str(tmp_path / "jobs.parquet"), "cpu <= 64", "-o", str(tmp_path / "fit.parquet")])
    assert ended.value.code == 0
    assert "left out: 1 jobs" in capsys.readouterr().err
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        treat_too_large(trace_of([[4, 4]]), [[8, 8]])
