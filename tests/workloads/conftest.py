"""What the tests of traces share: where real traces would be, and small made-up ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from slotwise.workloads.traces import Trace, TraceMeta, import_to_file, read_trace

sys.path.insert(0, str(Path(__file__).parent))  # textfiles

SHARED = Path(__file__).parents[3] / "shared" / "traces"


@pytest.fixture(scope="session")
def shared() -> Callable[[str], Path]:
    """The path of a real trace, or a skip that says what is missing."""

    def find(name: str) -> Path:
        path = SHARED / name
        if not path.exists():
            pytest.skip(f"the real trace ../shared/traces/{name} is not here")
        return path

    return find


@pytest.fixture(scope="session")
def google(shared: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """The Google window, imported once."""
    out = tmp_path_factory.mktemp("google") / "google.parquet"
    import_to_file("google2011", [shared("google2011")], out)
    return read_trace(out)


@pytest.fixture(scope="session")
def azure(shared: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Trace:
    out = tmp_path_factory.mktemp("azure") / "azure.parquet"
    import_to_file("azure2017", [shared("azure2017/dev.parquet")], out)
    return read_trace(out)


@pytest.fixture
def small() -> Trace:
    """400 jobs in 40 batches of three tenants over about 20,000 seconds."""
    rng = np.random.default_rng(5)
    arrival = np.sort(np.repeat(rng.random(40) * 20_000, 10))
    frame = pl.DataFrame(
        {
            "arrival": arrival - arrival[0],
            "duration": rng.exponential(300, 400) + 1,
            "demand.cpu": rng.choice([0.1, 0.25, 0.3], 400),
            "demand.memory": rng.choice([0.05, 0.2], 400),
            "batch": np.repeat(np.arange(40), 10).astype(np.int64),
            "tenant": rng.choice(["ann", "bob", "cy"], 400),
            "id": [f"job{i}" for i in range(400)],
        }
    )
    meta = TraceMeta("test", ("cpu", "memory"), {"cpu": "core", "memory": "GB"}, {"cpu": 1.0, "memory": 1.0})
    return Trace(frame, meta, "small")
