"""Input that no user would write: requests from the API's own description, cluster files, journal rows. Nothing may end
in a crash."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from house import SETUP, House
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from slotwise.errors import InputError, SlotwiseError
from slotwise.live.replay import replay
from slotwise.live.restart import load
from slotwise.live.settings import read_cluster
from slotwise.live.store import open_store

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
SHORT = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A house for each test: what one has made of it must not matter to the next."""
    made = House(tmp_path_factory.mktemp("house"))
    yield made
    made.service.close()


def test_requests_from_the_description(house: House) -> None:
    """Every operation: no server error, and every answer is as described."""
    described = schemathesis.openapi.from_asgi("/openapi.json", house.app, headers={"Host": "127.0.0.1:8700"})
    tried = 0
    for found in described.get_all_operations():
        operation = found.ok()

        @SHORT
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            nonlocal tried
            if case.operation.path in ("/v1/events", "/v1/board/changes"):
                case.query = {**(case.query or {}), "follow": False}
            headers = {"Authorization": f"Bearer {house.tokens['operate']}"}
            answer = case.call(base_url="http://127.0.0.1:8700", headers=headers)
            case.validate_response(answer, checks=CHECKS)
            tried += 1

        ask()
    assert tried >= 5 * len(house.app.openapi()["paths"])


def refusal(act: Callable[[], Any], kind: type[Exception]) -> str | None:
    """How something is refused, in one line; None: it is not."""
    try:
        act()
    except kind as error:
        said = str(error)
    else:
        return None
    assert "\n" not in said
    return said


HALF = "\ud800"  # half of a character: JSON can have it, UTF-8 and the databases cannot


def filled(schema: dict[str, Any], all_schemas: dict[str, Any], depth: int = 0) -> Any:
    """Return a value of a schema whose texts are all HALF."""
    if depth > 6:
        return HALF
    if "$ref" in schema:
        return filled(all_schemas.get(schema["$ref"].rpartition("/")[2], {}), all_schemas, depth + 1)
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return filled(schema[choice][0], all_schemas, depth + 1)
    if schema.get("type") == "array":
        return [filled(schema.get("items", {}), all_schemas, depth + 1)]
    if schema.get("type") == "object" or "properties" in schema:
        more = schema.get("additionalProperties")
        made = {name: filled(one, all_schemas, depth + 1) for name, one in schema.get("properties", {}).items()}
        return made | ({HALF: filled(more, all_schemas, depth + 1)} if isinstance(more, dict) else {})
    plain = {"number": 1, "integer": 1, "boolean": False}
    return schema["enum"][0] if "enum" in schema else plain.get(schema.get("type", ""), HALF)


def test_half_characters_are_refused(house: House) -> None:
    """In every text of every body, alone and together. The store could not write them, and the loop would end."""
    described = house.app.openapi()
    tried = 0
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if content is None:
                continue
            whole = filled(content["schema"], described["components"]["schemas"])
            parts = [{name: whole[name]} for name in whole] if isinstance(whole, dict) else []
            for body in (whole, *parts, *({"argv": ["x"], **part} for part in parts)):
                answer = house.call(
                    method.upper(),
                    path.replace("{number}", "1").replace("{name}", "s"),
                    content=json.dumps(body),
                    headers={"Content-Type": "application/json"},
                )
                assert answer.status_code < 500, (method, path, body, answer.text)
                tried += 1
    assert tried > 100
    house.submit()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
CHANGED = st.dictionaries(
    st.sampled_from(["policy", "options", "types", "classes", "x"]),
    json_values
    | st.sampled_from(["guarded", "best-fit", [{"name": "one", "demand": ["1", "0"]}], [{"name": "a"}]]),
    max_size=3,
)


@settings(parent=SHORT, max_examples=40)
@given(body=CHANGED)
def test_changes_that_make_no_sense(house: House, body: dict[str, Any]) -> None:
    """The loop goes on, whatever a cluster is to be changed into."""
    content = json.dumps(body)
    answer = house.call("PATCH", "/v1/cluster", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code in (200, 400, 422), answer.text
    house.submit()
    assert house.call("GET", "/readyz", None).status_code == 200


CLUSTER = """[cluster]
resources = ["cpu", "memory"]
servers = [{ name = "part", count = 8, capacity = [1, 1000], labels = { zone = "a" } }]
[[types]]
name = "one"
demand = [1, 0]
requires = { zone = ["a"] }
[policy]
name = "best-fit"
[run]
seed = 3
"""
TOML_VALUES = st.sampled_from(
    ["0", "-1", "1e308", "nan", "inf", '""', '"x"', "[]", "{}", "true", "[[]]", "2026-01-01", "1_000_000_000_000", "[1, 2, 3]", '["cpu", "cpu"]']
)  # fmt: skip


@settings(parent=SHORT, max_examples=150)
@given(data=st.data())
def test_cluster_files_that_make_no_sense(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """They are read, or refused in one line that says where."""
    lines = CLUSTER.splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        kind = data.draw(st.sampled_from(["drop", "double", "value", "text"]))
        if kind == "drop":
            lines[at] = ""
        elif kind == "double":
            lines.insert(at, lines[at])
        elif kind == "value" and "=" in lines[at]:
            lines[at] = lines[at].split("=")[0] + "= " + data.draw(TOML_VALUES)
        else:
            place = data.draw(st.integers(0, len(lines[at])))
            lines[at] = lines[at][:place] + data.draw(st.text(max_size=3)) + lines[at][place:]
    path = tmp_path_factory.getbasetemp() / "fuzzed.toml"
    path.write_text("\n".join(lines), "utf-8", "surrogatepass")
    said = refusal(lambda: read_cluster(str(path)), InputError)
    assert said is None or "fuzzed.toml" in said


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A store with a journal, as files: jobs of two types, a server that comes and is drained, a change."""
    folder = tmp_path_factory.mktemp("journal")
    made = House(folder)
    made.call(
        "PATCH",
        "/v1/cluster",
        json={"types": [{"name": "one", "demand": ["1", "0"]}, {"name": "two", "demand": ["2", "0"]}]},
    )
    made.call("POST", "/v1/servers", json={"name": "t", "server_class": "a"})
    numbers = [made.submit(type=kind, duration=1000.0) for kind in ("one", "two") * 8]
    for number in numbers[:3]:
        made.call("POST", f"/v1/jobs/{number}/stop")
    made.call("POST", f"/v1/jobs/{numbers[-1]}/cancel")
    made.call("POST", "/v1/servers/t/drain")
    made.service.loop.retention.checkpoint = lambda *_: None  # type: ignore[method-assign, assignment]
    made.service.close()
    return [folder / "x.db"]


@settings(parent=SHORT, max_examples=60)
@given(data=st.data())
def test_journals_that_make_no_sense(
    data: st.DataObject, journal: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Replay and restart read them, or say which row is damaged."""
    path = tmp_path_factory.getbasetemp() / "fuzzed.db"
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    shutil.copy(journal[0], path)
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT seq, event, placements FROM journal ORDER BY seq").fetchall()
        for _ in range(data.draw(st.integers(1, 2))):
            seq, event, placements = data.draw(st.sampled_from(rows))
            kind = data.draw(st.sampled_from(["drop", "value", "key", "text", "placements"]))
            if kind == "drop":
                connection.execute("DELETE FROM journal WHERE seq = ?", (seq,))
                continue
            row = json.loads(event)
            if kind == "value":
                row[data.draw(st.sampled_from(sorted(row)))] = data.draw(json_values)
            elif kind == "key":
                del row[data.draw(st.sampled_from(sorted(row)))]
            text = json.dumps(row)
            if kind == "text":
                text = text[: data.draw(st.integers(0, len(text)))]
            elif kind == "placements":
                placements = json.dumps(data.draw(json_values))
            connection.execute(
                "UPDATE journal SET event = ?, placements = ? WHERE seq = ?", (text, placements, seq)
            )
    connection.close()
    for read in (lambda store: replay(store), lambda store: load(store, SETUP)):
        store = open_store(f"sqlite:///{path}")
        try:
            refusal(lambda read=read, store=store: read(store), SlotwiseError)  # type: ignore[misc]
        finally:
            store.close()
