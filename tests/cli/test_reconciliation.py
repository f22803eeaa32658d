"""One trace of 18 minutes with jobs of 29, 400 servers: `trace summary`, `capacity`, `simulate` and `plan` each give
another number, and each says how it goes together with the rest."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from slotwise.cli.main import main
from slotwise.workloads.traces import Trace, TraceMeta, write_trace

SERVERS = 400
SENTENCE = re.compile(
    r"jobs bring ([\d.]+) times .*? of work while they arrive \(`trace summary`\), ([\d.]+) times when rounded up to their types"
    r" \(what `capacity` judges\); started at once they would use ([\d.]+) times it on average within the trace \(what `simulate`"
    r" sees\), ([\d.]+) times at most \(what `plan` provides for\): the trace begins empty, (\d+)% of the jobs outlast it"
)


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("window")
    rng = np.random.default_rng(7)
    n = 9_970
    frame = pl.DataFrame(
        {
            "arrival": np.sort(rng.uniform(0, 1080, n)),
            "duration": rng.exponential(1740.0, n),
            "demand.cpu": rng.choice([0.013, 0.019, 0.034], n),
        }
    )
    write_trace(Trace(frame, TraceMeta("made", ("cpu",), capacity={"cpu": 1.0})), folder / "t.parquet")
    path = folder / "ours.toml"
    path.write_text(
        f'[cluster]\nresources = ["cpu"]\nservers = [{{ name = "n", count = {SERVERS}, capacity = [1] }}]\n'
        '[workload]\ntrace = "t.parquet"\ntyping = { types = 1 }\n[run]\nwarmup = 0\n'
    )
    return path


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert ended.value.code == 0
    return capsys.readouterr().out


def figures(text: str) -> list[float]:
    found = SENTENCE.search(" ".join(text.split()))
    assert found is not None, text
    return [float(figure) for figure in found.groups()]


def test_the_four_numbers_explain_each_other(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = json.loads(said(capsys, "trace", "summary", scenario.parent / "t.parquet", "--json"))
    theory = json.loads(said(capsys, "capacity", scenario, "--json"))
    run = json.loads(said(capsys, "simulate", scenario, "-p", "best-fit", "--json"))["results"][0]
    plan = json.loads(said(capsys, "plan", scenario, "-p", "best-fit", "-t", "max_wait=0", "--json"))
    offered, rounded, mean, peak, outlast = figures(said(capsys, "simulate", scenario, "-p", "best-fit"))
    # they are far apart
    assert offered > 0.85
    assert rounded > 1.1
    assert mean < 0.4
    assert outlast > 50
    # and each is the figure of one of the commands
    assert summary["load_in_servers"]["cpu"] / SERVERS == pytest.approx(offered, rel=1e-3)
    assert theory["intensity"] == pytest.approx(rounded, rel=0.02)  # 29 of them leave a little of a server
    assert theory["actual_load"]["cpu"] == pytest.approx(offered, rel=1e-3)
    assert run["utilisation"]["cpu"] == pytest.approx(mean, rel=0.01)
    assert plan["servers"]["n"] / SERVERS == pytest.approx(peak, rel=0.05)
    assert summary["window"]["cpu"]["mean"] / SERVERS == pytest.approx(mean, rel=1e-3)
    assert summary["window"]["cpu"]["peak"] / SERVERS == pytest.approx(peak, rel=1e-3)


def test_the_sentence_is_the_same_wherever_the_trace_is_used(
    scenario: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = figures(said(capsys, "capacity", scenario))
    assert figures(said(capsys, "simulate", scenario, "-p", "best-fit")) == wanted
    assert figures(said(capsys, "plan", scenario, "-p", "best-fit", "-t", "max_wait=0")) == wanted
    summary = " ".join(said(capsys, "trace", "summary", scenario.parent / "t.parquet").split())
    assert "started at once they would use" in summary
    assert "the trace begins empty" in summary
