"""Google 2011: life cycles against a naive reading, the published figures, and every kind of bad input."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from textfiles import write

from slotwise.errors import InputError
from slotwise.workloads.traces import Trace, import_to_file, import_trace, read_trace
from slotwise.workloads.traces.formats import FORMATS
from slotwise.workloads.traces.importing import run_import
from slotwise.workloads.typemaking import make_types

SUBMIT, SCHEDULE, EVICT, FAIL, FINISH, KILL, LOST, UPDATE = 0, 1, 2, 3, 4, 5, 6, 7


def line(time: int, job: int, task: int, event: int, cpu: str = "0.25", memory: str = "0.125") -> str:
    return f"{time},,{job},{task},17,{event},user{job % 3},2,{job % 5},{cpu},{memory},0.001,0"


def part(folder: Path, lines: list[str], name: str = "part-00000-of-00500.csv.gz") -> Path:
    return write(folder / name, lines)


GOOD = [
    line(600_000_000, 5, 0, SUBMIT),
    line(601_000_000, 5, 0, SCHEDULE),
    line(602_000_000, 6, 1, SUBMIT, "0.5", "0.0625"),
    line(603_000_000, 6, 1, SCHEDULE, "0.5", "0.0625"),
    line(605_500_000, 5, 0, FINISH),
    line(613_000_000, 6, 1, FINISH, "0.5", "0.0625"),
]


def test_a_life_cycle_is_a_job(tmp_path: Path) -> None:
    trace, report = import_trace("google2011", [part(tmp_path, GOOD)])
    assert trace.arrival.tolist() == [0.0, 2.0]
    assert trace.duration.tolist() == [4.5, 10.0]
    assert trace.demands().tolist() == [[0.25, 0.125], [0.5, 0.0625]]
    assert trace.frame["tenant"].to_list() == ["user2", "user0"]
    assert trace.frame["batch"].to_list() == [5, 6]
    assert trace.frame["priority"].to_list() == [0, 1]
    assert trace.frame["id"].to_list() == ["5-0", "6-1"]
    assert trace.meta.origin == 600.0
    assert (report.rows, report.jobs, report.skipped, report.left_out) == (6, 2, {}, {})


def naive(events: list[tuple[int, int, int, int]], keep: bool) -> list[tuple[int, int, bool]]:
    """(arrival, duration, censored) in microseconds, by a state machine for each task."""
    open_: dict[tuple[int, int], list[int]] = {}
    jobs = []
    for time, job, task, event in events:
        life = open_.setdefault((job, task), [])
        if event == SUBMIT:
            life[:] = [time]
        elif event == SCHEDULE:
            if len(life) == 1:
                life.append(time)
            else:
                life.clear()
        elif event in (EVICT, FAIL, FINISH, KILL, LOST):
            if len(life) == 2 and life[0] > 0 and (event == FINISH or keep):
                jobs.append((life[0], time - life[1], event != FINISH))
            life.clear()
    if keep:
        last = events[-1][0]
        running = [life for life in open_.values() if len(life) == 2 and life[0] > 0]
        jobs += [(life[0], last - life[1], True) for life in running]
    return sorted(jobs)


@pytest.mark.parametrize("interrupted", ["keep", "drop"])
@pytest.mark.parametrize("seed", range(6))
def test_agrees_with_a_state_machine_on_random_events(seed: int, interrupted: str, tmp_path: Path) -> None:
    rng = random.Random(seed)
    time, events = 0, []
    last: dict[tuple[int, int], int] = {}
    for _ in range(3000):
        time += rng.choice([0, 0, 1000, 250_000])
        job, task = rng.randrange(6), rng.randrange(12)
        # Mostly orderly lives, so that many of them complete; sometimes anything.
        orderly = {SUBMIT: SCHEDULE, SCHEDULE: rng.choice([FINISH, FINISH, EVICT, UPDATE])}
        event = orderly.get(last.get((job, task), KILL), SUBMIT) if rng.random() < 0.8 else rng.randrange(9)
        last[job, task] = event
        events.append((time, job, task, event))
    lines = [line(*event) for event in events]
    cuts = sorted(rng.sample(range(1, 2999), 4))
    for i, (low, high) in enumerate(zip([0, *cuts], [*cuts, 3000], strict=True)):
        part(tmp_path, lines[low:high], f"part-{i:05}-of-00500.csv{'.gz' if i % 2 else ''}")
    trace, _ = import_trace("google2011", [tmp_path], interrupted=interrupted)
    want = naive(events, interrupted == "keep")
    moments = (trace.arrival + trace.meta.origin, trace.duration)
    micros = [np.round(column * 1e6).astype(int).tolist() for column in moments]
    assert len(want) > 100
    assert sorted(zip(*micros, trace.frame["censored"].to_list(), strict=True)) == want


def test_a_long_trace_goes_over_the_disk_and_comes_out_the_same(tmp_path: Path) -> None:
    rng = random.Random(1)
    lines, time = [], 10
    for job in range(400):
        time += rng.randrange(1000)
        lines += [line(time, job, 0, SUBMIT), line(time + 5, job, 0, SCHEDULE)]
        lines += [line(time + 7, job, 0, FINISH)] if job % 3 else []
    lines += [line(time + 10_000 + job, job, 0, FINISH) for job in range(0, 400, 3)]
    lines.sort(key=lambda text: int(text.split(",")[0]))
    for i in range(0, len(lines), 100):
        part(tmp_path, lines[i : i + 100], f"part-{i:05}.csv")
    whole, _ = import_trace("google2011", [tmp_path])
    run_import(FORMATS["google2011"], [tmp_path], out=tmp_path / "out.parquet", spill=30)
    import_to_file("google2011", [tmp_path], tmp_path / "out2.parquet")
    assert len(whole) == 400
    assert read_trace(tmp_path / "out.parquet").frame.equals(whole.frame)
    assert read_trace(tmp_path / "out2.parquet").frame.equals(whole.frame)
    assert not list(tmp_path.glob("*.partial"))


def test_what_is_left_out_is_counted_by_reason(tmp_path: Path) -> None:
    lines = [
        line(0, 1, 0, SUBMIT),
        line(0, 1, 0, SCHEDULE),
        line(10, 2, 0, FINISH),  # began before the trace
        line(11, 1, 0, FINISH),  # submitted before it
        line(12, 3, 0, SUBMIT),
        line(13, 3, 0, KILL),  # never scheduled
        line(14, 4, 0, SUBMIT),
        line(15, 4, 0, SCHEDULE),
        line(16, 4, 0, EVICT),  # interrupted
        line(17, 4, 0, SUBMIT),
        line(18, 4, 0, SUBMIT),  # again, with no end
        line(19, 5, 0, SUBMIT, "", ""),
        line(20, 5, 0, SCHEDULE, "", ""),
        line(21, 5, 0, FINISH, "", ""),  # no demand
        line(22, 6, 0, SUBMIT),
        line(23, 6, 0, SCHEDULE),  # still running
        *GOOD,
        line(2**63 - 1, 6, 0, FINISH),
    ]
    _, report = import_trace("google2011", [part(tmp_path, lines)])
    assert report.left_out == {
        "events after the trace ended": 1,
        "events of tasks ended before they were scheduled": 1,
        "events of tasks that began before the trace": 1,
        "tasks interrupted (evicted, failed, killed, lost)": 1,
        "tasks still running at the end": 1,
        "tasks still waiting at the end": 1,
        "tasks submitted again with no end between": 1,
        "tasks submitted before the trace began": 1,
        "tasks with no demand recorded": 1,
    }
    assert report.jobs == 2


def test_machines_as_the_trace_begins(tmp_path: Path) -> None:
    (tmp_path / "task_events").mkdir()
    (tmp_path / "machine_events").mkdir()
    part(tmp_path / "task_events", GOOD)
    rows = [
        "0,1,0,aaaaaaaa,0.5,0.25",
        "0,2,0,aaaaaaaa,0.5,0.25",
        "0,3,0,bbbbbbbb,1,1",
        "0,4,0,cccc,,",
        "9,5,0,aaaaaaaa,0.5,0.25",
    ]
    part(tmp_path / "machine_events", rows)
    trace, report = import_trace("google2011", [tmp_path])
    assert [(s.count, s.capacity) for s in trace.meta.servers] == [(2, (0.5, 0.25)), (1, (1.0, 1.0))]
    assert report.left_out == {"machines of unknown size": 1}


BAD = {
    "wrong column count": ("1,2,3", r"part.*:3: wrong column count \(3 columns, not 13\)"),
    "text in a number": (
        GOOD[2].replace("602000000", "6o2"),
        r":3: text in a number \(column 'time' holds '6o2'\)",
    ),
    "missing value": (
        GOOD[2].replace("602000000,,6", "602000000,,"),
        r":3: missing value \(column 'job' is empty\)",
    ),
    "number is too small": (line(602_000_000, 6, 1, SUBMIT, "-0.5"), r":3: number is too small"),
    "number is not finite": (line(602_000_000, 6, 1, SUBMIT, "nan"), r":3: number is not finite"),
    "unknown event type": (line(602_000_000, 6, 1, 12), r":3: unknown event type"),
    "time runs backwards": (line(599_000_000, 6, 1, SUBMIT), r":3: time runs backwards"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("name", ["part-0.csv.gz", "part-0.csv"])
def test_bad_rows_are_named_by_file_and_line_or_counted(kind: str, name: str, tmp_path: Path) -> None:
    row, message = BAD[kind]
    path = part(tmp_path, [*GOOD[:2], row, *GOOD[2:]], name)
    with pytest.raises(InputError, match=message):
        import_trace("google2011", [path])
    trace, report = import_trace("google2011", [path], skip_bad=True)
    assert report.skipped == {kind: 1}
    assert report.first_skipped[kind].startswith(f"{path}:3: {kind}")
    assert len(trace) == 2


def test_a_truncated_gzip_is_told_and_its_whole_lines_are_kept(tmp_path: Path) -> None:
    path = part(tmp_path, GOOD + [line(700_000_000 + i * 977, i, i % 7, i % 3) for i in range(2000)])
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(InputError, match=r"csv\.gz: truncated gzip \(the compressed file ends in the middle\)"):
        import_trace("google2011", [path])
    trace, report = import_trace("google2011", [path], skip_bad=True)
    assert report.skipped == {"truncated gzip": 1}
    assert report.rows > 1000
    assert len(trace) >= 2


def test_a_last_line_without_its_end_is_kept_even_after_a_truncated_part(tmp_path: Path) -> None:
    first = part(tmp_path, [line(600_000_000 + i * 977, i, i % 7, SUBMIT) for i in range(2000)], "part-0.csv.gz")
    first.write_bytes(first.read_bytes()[:-300])
    shifted = [text.replace("6", "7", 1) for text in GOOD]
    (tmp_path / "part-1.csv.gz").write_bytes(gzip.compress("\n".join(shifted).encode()))
    trace, report = import_trace("google2011", [tmp_path], skip_bad=True)
    assert (len(trace), report.skipped) == (2, {"truncated gzip": 1})


def test_refuses_to_write_where_it_cannot(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        import_to_file("google2011", [part(tmp_path, GOOD)], tmp_path / "no" / "such" / "folder.parquet")


def test_a_damaged_gzip_is_told(tmp_path: Path) -> None:
    path = part(tmp_path, GOOD)
    data = bytearray(path.read_bytes())
    data[20:40] = bytes(20)
    path.write_bytes(bytes(data))
    with pytest.raises(InputError, match="damaged gzip"):
        import_trace("google2011", [path])


@pytest.mark.parametrize("name", ["part-0.csv", "part-0.csv.gz"])
def test_an_empty_file_is_told(name: str, tmp_path: Path) -> None:
    part(tmp_path, GOOD, "part-1.csv")
    path = part(tmp_path, [], name)
    with pytest.raises(InputError, match="empty file"):
        import_trace("google2011", [tmp_path])
    _, report = import_trace("google2011", [tmp_path], skip_bad=True)
    assert report.skipped == {"empty file": 1}
    with pytest.raises(InputError, match="no job found in 0 rows"):
        import_trace("google2011", [path], skip_bad=True)


def test_many_bad_rows_keep_their_own_line_numbers(tmp_path: Path) -> None:
    lines = [line(i * 10 + 1, i, 0, SUBMIT) for i in range(50)]
    for i in (3, 17, 44):
        lines[i] = "oops"
    _, report = import_trace("google2011", [part(tmp_path, [*lines, *GOOD])], skip_bad=True)
    assert report.skipped == {"wrong column count": 3}
    assert ":4: " in report.first_skipped["wrong column count"]
    assert any("skipped as bad: 3 wrong column count" in text for text in report.lines())


def test_garbage_is_refused_or_counted_but_never_a_crash(tmp_path: Path) -> None:
    good = "".join(f"{text}\n" for text in GOOD).encode()
    odd = [b"", b",", b"\n", b'"', b"-", b"nan", b"1e999", b"\x00", b"\xff", b"99999999999999999999", b"\r\n", b" "]
    rng = np.random.default_rng(0)
    path = tmp_path / "part-0.csv"
    refused: list[str] = []
    for _ in range(80):
        at, length = int(rng.integers(0, len(good) + 1)), int(rng.integers(0, 6))
        path.write_bytes(good[:at] + odd[int(rng.integers(len(odd)))] + good[at + length :])
        for skip in (False, True):
            try:
                import_trace("google2011", [path], skip_bad=skip)
            except InputError as problem:
                refused.append(str(problem))
    assert 15 < len(refused) < 150
    assert all(str(path) in message and "\n" not in message for message in refused), refused


def test_refuses_files_twice_or_none_at_all(tmp_path: Path) -> None:
    path = part(tmp_path, GOOD)
    with pytest.raises(InputError, match="given twice"):
        import_trace("google2011", [path, path])
    with pytest.raises(InputError, match="is not there"):
        import_trace("google2011", [tmp_path / "none.csv"])
    with pytest.raises(InputError, match="unknown trace format 'google'; use one of google2011"):
        import_trace("google", [path])
    with pytest.raises(InputError, match="use keep or drop"):
        import_trace("google2011", [path], interrupted="maybe")
    with pytest.raises(InputError, match="has no option 'color'"):
        import_trace("google2011", [path], options={"color": 1})


@pytest.mark.slow
def test_the_published_figures_of_the_real_window(google: Trace, shared: Callable[[str], Path]) -> None:
    assert len(google) == 320_840
    assert round(google.duration.mean() / 60, 1) == 27.8
    assert round(google.span / 3600, 2) == 19.47
    types = make_types(google, "power-of-two")
    shares = 100 * types.counts / len(google)
    assert np.round(shares, 1).tolist() == [0.0, 0.0, 0.9, 11.4, 36.9, 25.6, 16.6, 8.6]
    assert round(types.reserved["cpu"], 1) == 450.0
    assert round(types.asked["cpu"]) == 338
    assert sum(s.count for s in google.meta.servers) == 12_477
