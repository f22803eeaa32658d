"""A trace file is what it says, or it is refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from slotwise.errors import InputError
from slotwise.workloads.traces import Servers, Trace, TraceMeta, read_trace, write_trace


def frame(**changes: object) -> pl.DataFrame:
    columns: dict[str, object] = {
        "arrival": [0.0, 1.0, 1.0],
        "duration": [2.0, 3.0, 4.0],
        "demand.cpu": [0.5, 1.0, 0.0],
    }
    columns.update(changes)
    return pl.DataFrame({name: values for name, values in columns.items() if values is not None})


META = TraceMeta("test", ("cpu",), {"cpu": "core"}, {"cpu": 4.0}, (Servers("big", 3, (4.0,)),), 12.5, "a clock")


def test_round_trip_keeps_every_value_and_its_meaning(tmp_path: Path) -> None:
    trace = Trace(
        frame(batch=[1, 1, 2], tenant=["a", None, "c"], censored=[True, False, False], id=[7, 8, 9]), META
    )
    write_trace(trace, tmp_path / "t.parquet")
    again = read_trace(tmp_path / "t.parquet")
    assert again.frame.equals(trace.frame)
    assert again.meta == META
    assert again.name == "t"


def test_columns_as_arrays() -> None:
    trace = Trace(frame(**{"demand.memory": [1.0, 2.0, 3.0]}), TraceMeta("test", ("memory", "cpu")))
    assert trace.demands().tolist() == [[1.0, 0.5], [2.0, 1.0], [3.0, 0.0]]  # in the order of the metadata
    assert trace.arrival.dtype == trace.duration.dtype == np.float64
    assert trace.span == 1.0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"arrival": [0.0, 2.0, 1.0]}, "not sorted by arrival"),
        ({"arrival": [-1.0, 0.0, 1.0]}, "before its origin"),
        ({"arrival": [0, 1, 2]}, "Int64 in the column 'arrival'"),
        ({"duration": [1.0, 0.0, 1.0]}, "duration of 0.0 in row 1"),
        ({"duration": [1.0, None, 1.0]}, "missing or infinite value in the column 'duration'"),
        ({"duration": [1.0, float("nan"), 1.0]}, "missing or infinite"),
        ({"demand.cpu": [1.0, -0.5, 1.0]}, "negative demand for cpu in row 1"),
        ({"demand.cpu": None}, "lacks the column 'demand.cpu'"),
        ({"color": ["red"] * 3}, "unknown column 'color'"),
        ({"tenant": [1, 2, 3]}, "Int64 in the column 'tenant'"),
    ],
)
def test_refuses_what_is_no_trace(changes: dict[str, object], reason: str, tmp_path: Path) -> None:
    bad = frame(**changes)
    with pytest.raises(InputError, match=reason):
        Trace(bad, META)
    bad.write_parquet(tmp_path / "bad.parquet", metadata={"slotwise": META.to_json()})
    with pytest.raises(InputError, match=rf"bad\.parquet: .*{reason}"):
        read_trace(tmp_path / "bad.parquet")


def test_refuses_files_that_are_something_else(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not there"):
        read_trace(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("arrival,duration\n")
    with pytest.raises(InputError, match="is not a Parquet file"):
        read_trace(tmp_path / "text.parquet")
    frame().write_parquet(tmp_path / "other.parquet")
    with pytest.raises(InputError, match="not a Slotwise trace; bring it in with"):
        read_trace(tmp_path / "other.parquet")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 99}, "format version 99"),
        ({"time_unit": "ms"}, "times in 'ms'"),
        ({"resources": None}, "broken trace metadata"),
        ({"resources": []}, "names no resource"),
    ],
)
def test_refuses_metadata_it_cannot_read(change: dict[str, object], reason: str, tmp_path: Path) -> None:
    meta = {**json.loads(META.to_json()), **change}
    frame().write_parquet(tmp_path / "t.parquet", metadata={"slotwise": json.dumps(meta)})
    with pytest.raises(InputError, match=reason):
        read_trace(tmp_path / "t.parquet")


def test_optional_columns_can_be_left_on_disk(tmp_path: Path) -> None:
    write_trace(Trace(frame(tenant=["a", "b", "c"], id=[1, 2, 3]), META), tmp_path / "t.parquet")
    assert read_trace(tmp_path / "t.parquet", columns=["id"]).frame.columns == [
        "arrival",
        "duration",
        "demand.cpu",
        "id",
    ]
