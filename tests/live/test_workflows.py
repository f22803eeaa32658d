"""Dependencies, files of jobs, retries, graphs and resubmission as users meet them: on a real service, and each command of the guide."""

from __future__ import annotations

import csv
import itertools
import json
import re
import shlex
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest
from house import House
from processes import PATIENCE, Process

from slotwise.cli.jobfile import read_jobs
from slotwise.display.layers import Edge, LayerNode, as_dot, layers_of
from slotwise.errors import InputError
from slotwise.live import Client, Executor
from slotwise.live.transport import ServiceError

GUIDE = Path(__file__).parents[2] / "docs/guides/workflows.md"
USAGE = GUIDE.parent / "usage.md"


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    made = Process(tmp_path_factory.mktemp("workflows"), "--local")
    made.start()
    yield made
    made.clean_up()


def test_the_guide(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", process.environment["XDG_STATE_HOME"])
    text = GUIDE.read_text()
    (process.folder / "jobs.toml").write_text(re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[0])
    said = []
    with Client(process.address) as client:
        for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            for line in block.splitlines():
                if " resubmit " in line:  # a reader has seen that the jobs have ended
                    client.wait([22, 23], PATIENCE)
                done = process.command(*shlex.split(line)[1:])
                assert done.returncode == 0, (line, done.stderr)
                said.append(done.stdout)
        numbers = [job.id for job in client.jobs()]
        jobs = {job.id: job for job in client.wait(numbers, PATIENCE)}
        assert sorted(jobs) == list(range(1, 26))
        named = {job.name: job for job in jobs.values() if job.id < 24}
        assert {name: job.state for name, job in named.items() if job.state != "done"} == {
            "report-failure": "cancelled", "mail": "cancelled", "picky": "failed", "broken": "failed", "behind": "cancelled",
        }  # fmt: skip
        assert (process.folder / "model").read_text() == "3\n"
        assert (process.folder / "all").read_text() == "1\n2\n3\n"
        assert not (process.folder / "input").exists()
        assert named["report-failure"].reason == "never starts: it was to start after failed:2, and 2 is done"
        assert (named["flaky"].attempt, named["flaky"].retries, named["picky"].attempt) == (3, 2, 1)
        for attempt in (1, 2, 3):
            assert b"".join(client.output(named["flaky"].id, attempt=attempt)) == f"attempt {attempt}\n".encode()
        with pytest.raises(ServiceError, match="has no attempt 4: attempts so far are 3"):
            list(client.output(named["flaky"].id, attempt=4))
        assert [(jobs[number].name, jobs[number].state) for number in (24, 25)] == [
            ("broken", "failed"), ("behind", "cancelled")
        ]  # fmt: skip
        assert client.detail(25)["after"] == {"ok": [24]}
        picture = ElementTree.fromstring((process.folder / "jobs.svg").read_text())
        assert len(picture.findall(".//{*}rect")) == 4
        graph = client.call("GET", f"/v1/jobs/{named['fit'].id}/graph").json()
        assert [one["name"] for one in graph["nodes"]] == ["fetch", "clean", "fit", "mail"]
        assert [one["states"] for one in graph["nodes"]][2] == {"done": 4}
        assert len(graph["edges"]) == 4


def test_the_guide_to_usage(process: Process) -> None:
    text = USAGE.read_text()
    said = {}
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            done = process.command(*shlex.split(line)[1:])
            assert (done.returncode, done.stderr) == (0, ""), line
            said[line] = done.stdout
    table, *_ = said.values()
    head = table.splitlines()[1].split("  ")
    assert head[0] == "tenant"
    assert "cpu h" in head
    assert "the store keeps ended jobs for 30 d" in table
    rows = list(csv.DictReader(said["slotwise usage --by state,name --csv"].splitlines()))
    flaky = next(row for row in rows if row["name"] == "flaky")
    assert (flaky["state"], flaky["retried"], flaky["exit_codes"]) == ("done", "2", "0:1")
    assert float(flaky["cpu_hours"]) > 0


def test_waiting_shows_every_attempt(process: Process) -> None:
    script = "echo attempt $SLOTWISE_ATTEMPT; exit $((2 - SLOTWISE_ATTEMPT))"
    done = process.command("submit", "--retry", "2", "--backoff", "0.05s", "--wait", "-q", "--", "sh", "-c", script)
    assert (done.stdout, done.returncode) == ("attempt 1\nattempt 2\n", 0)


def test_python(process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", process.environment["XDG_STATE_HOME"])
    with Client(process.address) as client:
        first = client.submit(["false"], retry=1, backoff=0.05)
        behind = client.submit(["true"], after={"failed": [first]})
        never = client.submit(["true"], after=[first, f"any:{behind.id}"])
        assert [one.result(PATIENCE).state for one in (first, behind, never)] == ["failed", "done", "cancelled"]
        assert first.status().attempt == 2
    folder = tmp_path / "order"

    def write(text: str) -> str:
        with open(folder, "a") as file:
            file.write(text)
        return text

    def fails(count: Path) -> int:
        tries = len(count.read_text()) if count.exists() else 0
        count.write_text("x" * (tries + 1))
        if tries < 2:
            raise ValueError(tries)
        return tries

    with Executor(process.address, folder=tmp_path / "calls") as executor:
        one = executor.submit(write, "a")
        two = executor.using(after=one).submit(write, "b")
        three = executor.using(after=[one, two]).submit(write, "c")
        retried = executor.using(retry=2, backoff=0.05).submit(fails, tmp_path / "count")
        bad = executor.submit(int, "x")
        skipped = executor.using(after=bad).submit(write, "never")
        assert (three.result(PATIENCE), folder.read_text()) == ("c", "abc")
        assert retried.result(PATIENCE) == 2
        with pytest.raises(CancelledError):
            skipped.result(PATIENCE)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.toml", '[[jobs]]\nargv = ["x"]\n\n[[jobs]]\nname = "b"\nargs = 1\n', r"a.toml, line 4, job 'b': unknown key 'args'; did you mean argv"),
        ("a.toml", '[[jobs]]\nname = "b"\nargv = "x"\n', "line 1, job 'b': argv: is missing, or no list of texts"),
        ("a.toml", '[[jobs]]\nargv = ["x"]\ntime = "soon"\n', "line 1: time: 'soon' is no duration"),
        ("a.toml", '[jobs]\n', "write \\[\\[jobs\\]\\]"),
        ("a.toml", '[[job]]\nargv = ["x"]\n', "unknown table 'job'"),
        ("a.toml", '', "has no jobs"),
        ("a.toml", '[[jobs]]\nargv = ["x"]\nafter = { good = [1] }\n', "after: is {'good'"),
        ("a.toml", '[[jobs]]\nargv = ["x"]\nafter = ["ok:y"]\n', "names 'y', which is no number"),
        ("a.toml", '[[jobs]]\nname = "b"\nargv = ["x"]\nafter = { ok = ["c"] }\n', "a.toml: job 'b': after: no job is called 'c'"),
        ("a.toml", '[[jobs]]\nargv = ["x"]\nafter = ["okay:1"]\n', "names the unknown kind 'okay'; write it like"),
        ("a.toml", '[[jobs]]\nargv = ["x"]\nafter = ["1"]\n', "says '1' without a kind; write it like"),
        ("a.jsonl", '{"argv": ["x"]}\n\n{"argv": []}\n', "a.jsonl, line 3: argv: is missing"),
        ("a.jsonl", '{"argv": ["x"]}\n{"argv"\n', "a.jsonl, line 2: is no JSON"),
    ],
)  # fmt: skip
def test_mistakes_in_files(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=said):
        read_jobs(str(tmp_path / name))


def test_a_file_is_submitted_as_a_whole_or_not_at_all(process: Process) -> None:
    before = json.loads(process.command("jobs", "--count", "--json").stdout)
    path = process.folder / "bad.toml"
    head = '[[jobs]]\nname = "a"\nargv = ["true"]\n\n'
    for text, said in (
        ('[[jobs]]\nname = "b"\nargv = ["true"]\nafter = { ok = [999999] }\n', "has no job 999999"),
        ('[[jobs]]\nname = "b"\nargv = ["true"]\ntime = -1\n', "bad.toml, line 5, job 'b': time: is -1"),
        (
            '[[jobs]]\nname = "b"\nargv = ["true"]\narray = "3-1"\n',
            "bad.toml, line 5, job 'b': array: '3-1' is no range",
        ),
        ('[[jobs]]\nname = "b"\nargv = ["true"]\nafter = { ok = ["b"] }\n', "jobs wait for each other: b after b"),
    ):
        path.write_text(head + text)
        done = process.command("submit", "--file", str(path))
        assert done.returncode == 2, done.stderr
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
    assert json.loads(process.command("jobs", "--count", "--json").stdout) == before
    done = process.command("submit", "--file", str(path), "--time", "2h")
    assert "--time: is given beside --file" in done.stderr


def test_what_the_api_refuses(tmp_path: Path) -> None:
    house = House(tmp_path)
    try:
        first = house.submit(duration=1e6)
        for spec, said in (
            ({"after": {"ok": []}}, "names no job"),
            ({"after": {"soon": [1]}}, "after.soon"),
            ({"after": {"ok": ["a"]}}, "no job is called 'a'"),
            ({"retry": -1}, "retry"),
            ({"retry": 1, "retry_on": []}, "retry_on"),
        ):
            answer = house.call("POST", "/v1/jobs", "submit", json={"argv": ["x"], **spec})
            assert answer.status_code in (400, 422), spec
            assert said in answer.json()["detail"]
        held = house.submit(after={"any": [first]})
        text = house.call("GET", f"/v1/jobs/{held}/explain").json()["text"]
        assert text == f"job {held} is held: it starts after any:{first}, and job {first} has not ended"
        assert house.call("GET", "/v1/status").json()["jobs"]["held"] == 1
        assert house.call("POST", "/v1/jobs/resubmit", json={"ids": [held]}).status_code == 409
        assert house.call("POST", f"/v1/jobs/{held}/cancel").json()["state"] == "cancelled"
        again = house.call("POST", "/v1/jobs/resubmit", json={"ids": [held]}).json()
        assert again["by_old"] == {str(held): again["ids"][0]}
    finally:
        house.service.close()


def test_pictures(tmp_path: Path) -> None:
    nodes = [LayerNode(n, f'j"{n}', {"done": 1}) for n in range(1, 7)]
    edges = [Edge(1, 3, "ok"), Edge(2, 4, "any"), Edge(3, 5, "ok"), Edge(4, 6, "ok"), Edge(1, 6, "failed")]
    layers = layers_of(nodes, edges)
    assert [sorted(layer) for layer in layers] == [[1, 2], [3, 4], [5, 6]]
    depth = {number: at for at, layer in enumerate(layers) for number in layer}
    assert all(depth[one.before] < depth[one.after] for one in edges)
    assert crossings(layers, edges) == 0
    dot = as_dot(nodes, edges)
    assert dot.count("->") == 5
    assert r'label="1 j\"1\ndone"' in dot


def crossings(layers: list[list[int]], edges: list[Any]) -> int:
    """How many edges between neighbouring layers cross each other."""
    total = 0
    for upper, lower in itertools.pairwise(layers):
        there = [
            (upper.index(e.before), lower.index(e.after)) for e in edges if e.before in upper and e.after in lower
        ]
        total += sum((a - c) * (b - d) < 0 for a, b in there for c, d in there) // 2
    return total
