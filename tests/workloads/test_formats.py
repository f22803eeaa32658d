"""Every other format: a small file of our own making, what it must become, and what bad rows in it say."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from textfiles import write

from slotwise.errors import InputError
from slotwise.workloads.traces import FORMATS, import_trace

GIB = 2.0**30


# ---------------------------------------------------------------- text tables: one good file, bad rows into it

VMS = [
    "vm1,sub1,dep1,600,1200,99,5,50,Interactive,2,3.5",
    "vm2,sub1,dep1,600,600,99,5,50,Unknown,4,7",
    "vm3,sub2,dep2,900,2591700,99,5,50,Delay-insensitive,8,14",
    "vm4,sub2,dep2,0,1200,99,5,50,Delay-insensitive,1,1.75",
]
VMS_2019 = [line.replace("4,7", ">24,>64") for line in VMS]
TASKS_2017 = [
    "create, end, job, task, instances, status, cpu, mem",
    "100,160,1,1,3,Terminated,50,0.25",
    "110,110,1,2,1,Terminated,100,0.5",
    "120,0,2,1,1,Running,100,0.5",
    "130,140,3,1,1,Waiting,,",
    "150,170,4,1,1,Failed,100,0.5",
]
TASKS_2018 = [
    "M1,3,j_1,1,Terminated,100,160,50,25",
    "M2,1,j_1,1,Terminated,110,110,100,50",
    "M1,1,j_2,1,Running,120,0,100,50",
    "M1,1,j_3,1,Waiting,130,140,,",
    "M1,1,j_4,1,Failed,150,170,100,50",
]
PODS = [
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time",
    "p0,4000,2048,1,460,,LS,Running,10,110,20",
    "p1,8000,1024,8,1000,,BE,Failed,30,80,30",
    "p2,8000,1024,0,0,,BE,Pending,40,80,",
]
SWF = [
    "; UnixStartTime: 1000000",
    "; MaxProcs: 128",
    "1 0 5 100 4 -1 -1 8 -1 1048576 1 11 1 -1 1 1 -1 -1",
    "2 10 5 50 4 -1 -1 -1 -1 -1 0 12 1 -1 1 1 -1 -1",
    "3 20 5 0 4 -1 -1 -1 -1 -1 1 12 1 -1 1 1 -1 -1",
    "4 30 5 0 4 -1 -1 -1 -1 -1 5 12 1 -1 1 1 -1 -1",
    "5 40 -1 -1 4 -1 -1 -1 -1 -1 1 12 1 -1 1 1 -1 -1",
]
SACCT = [
    "JobID|User|Submit|Start|End|State|ReqCPUS|ReqMem|ReqNodes|ReqTRES|Priority",
    "1|ann|2024-01-01T00:00:00|2024-01-01T00:00:10|2024-01-01T00:01:00|COMPLETED|4|2Gc|1||100",
    "1.batch||2024-01-01T00:00:10|2024-01-01T00:00:10|2024-01-01T00:01:00|COMPLETED|4||1||",
    "2|bob|2024-01-01T00:00:05|2024-01-01T00:00:10|2024-01-01T00:00:20|CANCELLED by 7|1|512M|1||50",
    "3|bob|2024-01-01T00:00:06|Unknown|Unknown|PENDING|1|512M|1||50",
    "4_1|cy|2024-01-01T00:00:07|2024-01-01T00:00:10|Unknown|RUNNING|1||1|cpu=16,mem=8G,node=2,gres/gpu=2|50",
]
CSV = [
    "submitted,took,cores,ram,who",
    "5.5,10,1,2,ann",
    "2.5,20,2,4,bob",
]
NAMED = {
    "map": {
        "arrival": "submitted",
        "duration": "took",
        "demand.cpu": "cores",
        "demand.memory": "ram",
        "tenant": "who",
    }
}

# format: file name, lines, options, jobs, and bad rows by kind, each with the place where it goes.
TABLES: dict[str, tuple[str, list[str], dict[str, Any], int, dict[str, tuple[int, str]]]] = {
    "azure2017": (
        "vmtable.csv.gz", VMS, {}, 4,
        {
            "wrong column count": (1, "vm9,sub1"),
            "text in a number": (2, "vm9,sub1,dep1,six,1200,99,5,50,Unknown,2,3.5"),
            "text in a number (column 'cores')": (2, "vm9,sub1,dep1,600,1200,99,5,50,Unknown,two,3.5"),
            "number is too small": (2, "vm9,sub1,dep1,-600,1200,99,5,50,Unknown,2,3.5"),
            "finish before start": (1, "vm9,sub1,dep1,600,300,99,5,50,Unknown,2,3.5"),
            "duplicate id in vm": (3, VMS[0]),
        },
    ),
    "azure2019": ("vmtable.csv", VMS_2019, {}, 4, {"finish before start": (1, "vm9,s,d,600,300,9,5,5,Any,2,4")}),
    "alibaba2017": (
        "batch_task.csv.gz", TASKS_2017, {}, 4,
        {
            "wrong column count": (2, "1,2,3"),
            "text in a number": (3, "100,160,9,1,3,Terminated,much,0.25"),
            "finish before start": (3, "100,60,9,1,3,Terminated,50,0.25"),
            "duplicate id in job and task": (4, TASKS_2017[1]),
        },
    ),
    "alibaba2018": (
        "batch_task.csv", TASKS_2018, {}, 4,
        {
            "finish before start": (1, "M9,3,j_1,1,Terminated,100,60,50,25"),
            "duplicate id in job and task": (4, TASKS_2018[0]),
            "text in a number": (2, "M9,x,j_1,1,Terminated,100,160,50,25"),
        },
    ),
    "alibaba-gpu2023": (
        "openb_pod_list_default.csv", PODS, {}, 2,
        {
            "wrong column count": (2, "p9,1"),
            "finish before start": (2, "p9,4000,2048,1,460,,LS,Running,10,15,20"),
            "duplicate id in name": (3, PODS[1]),
            "text in a number": (2, "p9,many,2048,1,460,,LS,Running,10,110,20"),
            "missing value": (2, "p9,,2048,1,460,,LS,Running,10,110,20"),
        },
    ),
    "swf": (
        "log.swf.gz", SWF, {}, 3,
        {
            "wrong column count": (3, "9 0 5"),
            "text in a number": (3, "9 zero 5 100 4 -1 -1 8 -1 1 1 11 1 -1 1 1 -1 -1"),
            "negative duration": (3, "9 0 5 -100 4 -1 -1 8 -1 1 1 11 1 -1 1 1 -1 -1"),
            "duplicate id in id": (4, SWF[2]),
        },
    ),
    "slurm": (
        "sacct.txt", SACCT, {}, 3,
        {
            "wrong column count": (2, "9|ann"),
            "text in a time (column 'Start')": (2, SACCT[1].replace("1|ann", "9|ann").replace("T00:00:10", "noon")),
            "finish before start": (2, SACCT[1].replace("1|ann", "9|ann").replace("T00:01:00", "T00:00:00")),
            "duplicate id in JobID": (2, SACCT[1]),
            "text in a number": (2, SACCT[1].replace("1|ann", "9|ann").replace("2Gc", "lots")),
        },
    ),
    "csv": (
        "jobs.csv", CSV, NAMED, 2,
        {
            "wrong column count": (2, "1,2,3,4,5,6"),
            "text in a number": (2, "1,2,one,4,x"),
            "negative duration": (2, "1,-2,1,4,x"),
            "duration of zero": (2, "1,0,1,4,x"),
            "number is too small": (2, "1,1,-1,4,x"),
            "missing value": (2, ",1,1,4,x"),
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_the_good_file_has_its_jobs(name: str, tmp_path: Path) -> None:
    file, lines, options, jobs, _ = TABLES[name]
    trace, report = import_trace(name, [write(tmp_path / file, lines)], options=options)
    assert len(trace) == jobs
    assert report.skipped == {}
    assert trace.arrival[0] == 0.0
    assert (trace.duration > 0).all()


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, table in TABLES.items() for kind in table[4]])
def test_bad_rows_are_named_by_file_and_line_or_counted(name: str, kind: str, tmp_path: Path) -> None:
    file, lines, options, jobs, bad = TABLES[name]
    place, row = bad[kind]
    path = write(tmp_path / file, [*lines[:place], row, *lines[place:]])
    at = place + 1
    with pytest.raises(InputError) as caught:
        import_trace(name, [path], options=options)
    assert str(caught.value).startswith(f"{path}:{at}: {kind}")
    assert "--skip-bad" in str(caught.value)
    trace, report = import_trace(name, [path], options=options, skip_bad=True)
    assert report.skipped == {kind: 1}
    assert report.first_skipped[kind].startswith(f"{path}:{at}: ")
    assert len(trace) == jobs


@pytest.mark.parametrize("name", TABLES)
def test_empty_and_truncated_files_are_told(name: str, tmp_path: Path) -> None:
    file, lines, options, _, _ = TABLES[name]
    (tmp_path / file).write_bytes(b"")
    with pytest.raises(InputError, match=r"empty file|no column"):
        import_trace(name, [tmp_path / file], options=options)
    torn = tmp_path / f"{file.removesuffix('.gz')}.gz"
    torn.write_bytes(gzip.compress("".join(f"{x}\n" for x in lines * 50).encode())[:-40])
    with pytest.raises(InputError, match="truncated gzip"):
        import_trace(name, [torn], options=options)


def test_ids_are_unique_over_all_files(tmp_path: Path) -> None:
    first, second = (
        write(tmp_path / "a.csv", VMS),
        write(tmp_path / "b.csv", [*VMS[2:3], VMS[0].replace("vm1", "vm9")]),
    )
    with pytest.raises(InputError, match=r"b\.csv:1: duplicate id in vm"):
        import_trace("azure2017", [first, second])
    trace, report = import_trace("azure2017", [first, second], skip_bad=True)
    assert (len(trace), report.skipped) == (5, {"duplicate id in vm": 1})


@pytest.mark.parametrize("name", TABLES)
def test_garbage_is_refused_or_counted_but_never_a_crash(name: str, tmp_path: Path) -> None:
    file, lines, options, _, _ = TABLES[name]
    good = "".join(f"{line}\n" for line in lines).encode()
    rng = np.random.default_rng(len(name))
    odd = [
        b"",
        b",",
        b"|",
        b"\n",
        b'"',
        b"-",
        b"nan",
        b"1e999",
        b"\x00",
        b"\xff",
        b"99999999999999999999",
        b"\r\n",
        b" ",
    ]
    path = tmp_path / file.removesuffix(".gz")
    refused: list[str] = []
    for _ in range(60):
        data = good
        for _ in range(int(rng.integers(1, 4))):
            at, length = int(rng.integers(0, len(data) + 1)), int(rng.integers(0, 6))
            data = data[:at] + odd[int(rng.integers(len(odd)))] + data[at + length :]
        path.write_bytes(data)
        for skip in (False, True):
            try:
                trace, _ = import_trace(name, [path], options=options, skip_bad=skip)
            except InputError as problem:
                refused.append(str(problem))
            else:
                assert len(trace) > 0
    assert len(refused) > 5
    assert all(str(path) in message and "\n" not in message for message in refused), refused


def test_every_format_is_tested_with_bad_rows() -> None:
    elsewhere = {"google2011", "google2019", "azure-packing", "kubernetes", "journal", "parquet"}
    assert set(FORMATS) == set(TABLES) | elsewhere


# ---------------------------------------------------------------- what each becomes


def test_azure_vms(tmp_path: Path) -> None:
    trace, _ = import_trace("azure2017", [write(tmp_path / "vmtable.csv", VMS)])
    assert trace.arrival.tolist() == [0.0, 600.0, 600.0, 900.0]
    assert trace.duration.tolist() == [1200.0, 600.0, 150.0, 2_590_800.0]  # vm2: half an interval
    assert trace.frame["censored"].to_list() == [True, False, False, True]
    assert trace.frame["id"].to_list() == ["vm4", "vm1", "vm2", "vm3"]
    batch = trace.frame["batch"].to_list()
    assert batch[1] == batch[2] != batch[3]
    whole, report = import_trace("azure2017", [tmp_path / "vmtable.csv"], interrupted="drop")
    assert (len(whole), report.left_out) == (2, {"VMs not seen from their first to their last moment": 2})


def test_azure_buckets_of_2019(tmp_path: Path) -> None:
    trace, _ = import_trace("azure2019", [write(tmp_path / "vmtable.csv", VMS_2019)])
    assert trace.demands().tolist()[2] == [30.0, 70.0]


@pytest.mark.parametrize(
    ("name", "file", "lines"),
    [("alibaba2017", "batch_task.csv", TASKS_2017), ("alibaba2018", "batch_task.csv", TASKS_2018)],
)
def test_alibaba_tasks(name: str, file: str, lines: list[str], tmp_path: Path) -> None:
    path = write(tmp_path / file, lines)
    trace, report = import_trace(name, [path])
    assert trace.arrival.tolist() == [0.0, 10.0, 20.0, 50.0]
    assert trace.duration.tolist() == [
        60.0,
        0.5,
        50.0,
        20.0,
    ]  # within one second: half; unended: to the last moment
    assert trace.demands().tolist() == [[0.5, 0.25], [1.0, 0.5], [1.0, 0.5], [1.0, 0.5]]
    assert trace.frame["censored"].to_list() == [False, False, True, True]
    assert report.left_out == {"tasks that were still waiting at the end": 1}
    every, _ = import_trace(name, [path], options={"instances": "all"}, interrupted="drop")
    assert every.arrival.tolist() == [0.0, 0.0, 0.0, 10.0]
    assert every.frame["batch"].n_unique() == 2
    with pytest.raises(InputError, match="use instances=one or instances=all"):
        import_trace(name, [path], options={"instances": "some"})


def test_alibaba_machines(tmp_path: Path) -> None:
    write(tmp_path / "batch_task.csv", TASKS_2018)
    write(
        tmp_path / "machine_meta.csv",
        ["m_1,0,1,2,96,100,USING", "m_2,0,1,2,96,100,USING", "m_1,9,1,2,96,100,USING"],
    )
    trace, _ = import_trace("alibaba2018", [tmp_path])
    assert [(s.count, s.capacity) for s in trace.meta.servers] == [(2, (96.0, 1.0))]


def test_alibaba_pods_and_nodes(tmp_path: Path) -> None:
    write(tmp_path / "openb_pod_list_default.csv", PODS)
    write(tmp_path / "openb_pod_list_cpu050.csv", PODS)  # a sample of the default
    write(
        tmp_path / "openb_node_list_all_node.csv",
        ["sn,cpu_milli,memory_mib,gpu,model", "n0,32000,2048,0,", "n1,96000,4096,8,G3", "n2,96000,4096,8,G3"],
    )
    trace, report = import_trace("alibaba-gpu2023", [tmp_path])
    assert trace.demands().tolist() == [[4.0, 2.0, 0.46], [8.0, 1.0, 8.0]]
    assert trace.duration.tolist() == [90.0, 50.0]
    assert trace.frame["censored"].to_list() == [False, True]
    assert [(s.count, s.capacity) for s in trace.meta.servers] == [(2, (96.0, 4.0, 8.0)), (1, (32.0, 2.0, 0.0))]
    assert report.left_out == {"pods that were never scheduled": 1}


def test_swf(tmp_path: Path) -> None:
    path = write(tmp_path / "log.swf", SWF)
    trace, report = import_trace("swf", [path])
    assert trace.duration.tolist() == [100.0, 50.0, 0.5]
    assert trace.demands()[:, 0].tolist() == [8.0, 4.0, 4.0]
    assert trace.demands()[0, 1] == 8.0  # 1 GiB a processor
    assert trace.frame["censored"].to_list() == [False, False, False]  # a run that failed has ended
    assert (trace.meta.origin, trace.meta.clock) == (1_000_000.0, "Unix time")
    assert report.left_out == {"jobs cancelled or failed before they ran": 1, "jobs with no run time": 1}
    total, _ = import_trace("swf", [path], options={"memory": "kb"})
    assert total.demands()[0, 1] == 1.0


def test_swf_machines(tmp_path: Path) -> None:
    no_memory = [line.replace("1048576", "-1") for line in SWF]
    trace, _ = import_trace("swf", [write(tmp_path / "log.swf", no_memory)])
    assert trace.meta.resources == ("cpu",)
    assert [(s.count, s.capacity) for s in trace.meta.servers] == [(1, (128.0,))]
    write(tmp_path / "mem.swf", SWF)
    write(tmp_path / "mem.swf.machines", ["0\tbig\t20\t80\t1\t16777216", "1\tsmall\t48\t12\t1\t1048576"])
    trace, _ = import_trace("swf", [tmp_path / "mem.swf"])
    assert [(s.count, s.capacity) for s in trace.meta.servers] == [(20, (80.0, 16.0)), (48, (12.0, 1.0))]
    too_much = [line.replace("1048576", str(64 * 2**30)) for line in SWF]
    write(tmp_path / "mem.swf", too_much)
    with pytest.raises(InputError, match=r"more memory than any machine .*memory="):
        import_trace("swf", [tmp_path / "mem.swf"])
    write(tmp_path / "mem.swf.machines", ["0 big"])
    with pytest.raises(InputError, match=r"machines:1: is no machine"):
        import_trace("swf", [tmp_path / "mem.swf"])


def test_slurm(tmp_path: Path) -> None:
    trace, report = import_trace("slurm", [write(tmp_path / "sacct.txt", SACCT)])
    assert trace.meta.resources == ("cpu", "memory", "gpu")
    assert trace.arrival.tolist() == [0.0, 5.0, 7.0]
    assert trace.duration.tolist() == [50.0, 10.0, 50.0]  # the running one: to the last moment
    assert trace.demands().tolist() == [[4.0, 8.0, 0.0], [1.0, 0.5, 0.0], [16.0, 8.0, 2.0]]
    assert trace.frame["censored"].to_list() == [False, False, True]  # cancelled is an end, running is not
    assert trace.frame["priority"].to_list() == [100, 50, 50]
    assert report.left_out == {"job steps": 1, "jobs that never started": 1}
    with pytest.raises(InputError, match="has no column 'Submit'; its columns are JobID"):
        import_trace("slurm", [write(tmp_path / "x.txt", ["JobID|State", "1|COMPLETED"])])


def test_named_columns(tmp_path: Path) -> None:
    trace, _ = import_trace("csv", [write(tmp_path / "jobs.csv", CSV)], options={**NAMED, "time_unit": "min"})
    assert trace.arrival.tolist() == [0.0, 180.0]
    assert trace.duration.tolist() == [1200.0, 600.0]
    assert trace.frame["tenant"].to_list() == ["bob", "ann"]
    with pytest.raises(InputError, match="no column for arrival; say which it is with --map arrival=COLUMN"):
        import_trace("csv", [tmp_path / "jobs.csv"])
    with pytest.raises(InputError, match="has no column of demands"):
        import_trace("csv", [tmp_path / "jobs.csv"], options={"map": {"arrival": "submitted", "duration": "took"}})
    with pytest.raises(InputError, match="a trace has no column 'colour'"):
        import_trace("csv", [tmp_path / "jobs.csv"], options={"map": {"colour": "who"}})
    with pytest.raises(InputError, match="no column 'nope'"):
        import_trace("csv", [tmp_path / "jobs.csv"], options={"map": {**NAMED["map"], "arrival": "nope"}})


def test_named_columns_with_times_and_ends(tmp_path: Path) -> None:
    lines = ["in,begun,out,demand.cpu", "2024-01-01T00:00:00,2024-01-01T00:00:05,2024-01-01T00:00:15Z,1"]
    options = {"map": {"arrival": "in", "start": "begun", "end": "out"}, "time_unit": "iso"}
    trace, _ = import_trace("csv", [write(tmp_path / "a.csv", lines)], options=options)
    assert trace.duration.tolist() == [10.0]
    frame = pl.read_csv(tmp_path / "a.csv").with_columns(
        pl.col("in", "begun", "out").str.strip_suffix("Z").str.to_datetime()
    )
    frame.write_parquet(tmp_path / "a.parquet")
    again, _ = import_trace("parquet", [tmp_path / "a.parquet"], options=options)
    assert again.frame.equals(trace.frame)
    wrong = write(tmp_path / "b.csv", [*lines, "2024-01-01T00:00:00,2024-01-01T00:00:05,2024-01-01T00:00:01,1"])
    with pytest.raises(InputError, match=r"b\.csv:3: finish before start"):
        import_trace("csv", [wrong], options=options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"took": [1.0, -1.0]}, "jobs.parquet:1: negative duration"),
        ({"took": ["1", "x"]}, r"jobs.parquet:1: text in a number \(column 'duration'\)"),
        ({"cores": [1.0, None]}, r"jobs.parquet:1: missing value \(column 'demand.cpu'\)"),
        ({"cores": [1.0, float("inf")]}, "jobs.parquet:1: number is not finite"),
    ],
)
def test_named_columns_in_parquet(change: dict[str, list[Any]], message: str, tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {
        "submitted": [1.0, 2.0],
        "took": [3.0, 4.0],
        "cores": [1.0, 1.0],
        "who": ["a", "b"],
    }
    path = tmp_path / "jobs.parquet"
    pl.DataFrame({**columns, **change}).write_parquet(path)
    options = {"map": {"arrival": "submitted", "duration": "took", "demand.cpu": "cores"}}
    with pytest.raises(InputError, match=message):
        import_trace("parquet", [path], options=options)
    trace, report = import_trace("parquet", [path], options=options, skip_bad=True)
    assert (len(trace), sum(report.skipped.values())) == (1, 1)


# ---------------------------------------------------------------- the real ones


@pytest.mark.parametrize(
    ("name", "path", "options", "rows", "jobs"),
    [
        ("azure2017", "azure2017/dev.parquet", {}, 259_159, 259_159),
        ("alibaba2017", "alibaba2017/batch_task.csv.gz", {}, 80_553, 71_536),
        ("alibaba-gpu2023", "alibaba_gpu2023", {}, 8_152, 7_255),
        ("swf", "nasa_ipsc1993/NASA-iPSC-1993-3.1-cln.swf.gz", {}, 18_239, 18_239),
        ("swf", "ceritsc2013/wagap-2013.swf.gz", {"memory": "bytes"}, 17_900, 17_898),
    ],
)
def test_real_traces(
    name: str, path: str, options: dict[str, Any], rows: int, jobs: int, shared: Callable[[str], Path]
) -> None:
    trace, report = import_trace(name, [shared(path)], options=options, skip_bad=True)
    assert (report.rows, len(trace)) == (rows, jobs)
    assert sum(report.left_out.values()) + sum(report.skipped.values()) == rows - jobs
    if "nasa" in path:  # sizes are exactly the powers of two up to the machine
        assert set(trace.demands()[:, 0]) == {2.0**e for e in range(8)}
        assert trace.meta.servers[0].capacity == (128.0,)
    if "cerit" in path:
        assert report.skipped == {"negative duration": 2}
        assert [s.count for s in trace.meta.servers] == [20, 48]
        assert np.quantile(trace.demands()[:, 1], 0.99) <= max(s.capacity[1] for s in trace.meta.servers)
    if "gpu" in path:
        assert sum(s.count for s in trace.meta.servers) == 1523
