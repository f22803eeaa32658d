"""Labels and requirements: how they are read, changed, matched, and refused."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest

from slotwise.errors import InputError
from slotwise.model import Cluster, JobType, Scenario, ServerClass, integers, load_scenario
from slotwise.packing import spaces_of

pytestmark = pytest.mark.core

TEXT = """
[cluster]
resources = ["cpu", "memory"]
servers = [
    { name = "plain", count = 2, capacity = [4, 8], labels = { zone = "a" } },
    { name = "gpu", count = 1, capacity = [8, 8], labels = { zone = "b", gpu = "a100" } },
]

[[types]]
name = "web"
demand = [1, 2]
rate = 3

[[types]]
name = "train"
demand = [2, 2]
rate = 1
requires = { gpu = ["a100", "h100"], zone = "b" }
"""


def read(tmp_path: Path, *settings: str, text: str = TEXT) -> Scenario:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return load_scenario(path, settings)


def refusal(tmp_path: Path, *settings: str, text: str = TEXT) -> str:
    with pytest.raises(InputError) as caught:
        read(tmp_path, *settings, text=text)
    said = str(caught.value)
    assert "\n" not in said
    assert caught.value.remedy
    assert said.startswith(f"{tmp_path / 'mine.toml'}: ")
    return said.removeprefix(f"{tmp_path / 'mine.toml'}: ")


def test_one_value_is_a_list_of_one(tmp_path: Path) -> None:
    scenario = read(tmp_path)
    assert scenario.cluster.servers[1].labels == {"zone": "b", "gpu": "a100"}
    assert scenario.types[1].requires == {"gpu": ("a100", "h100"), "zone": ("b",)}
    assert scenario.types[0].requires == {}
    assert Scenario.model_validate(scenario.model_dump()) == scenario
    assert Scenario.model_validate_json(scenario.model_dump_json()) == scenario


def test_settings_change_labels_and_requirements(tmp_path: Path) -> None:
    scenario = read(
        tmp_path,
        "cluster.servers.plain.labels.gpu=h100",
        "types.train.requires.zone=['a', 'b']",
        "types.web.requires.zone=a",
        'cluster.servers.plain.labels."topology.kubernetes.io/zone"=a1',
        'types.web.requires."topology.kubernetes.io/zone"=a1',
    )
    assert scenario.cluster.servers[0].labels == {"zone": "a", "gpu": "h100", "topology.kubernetes.io/zone": "a1"}
    assert scenario.types[0].requires == {"zone": ("a",), "topology.kubernetes.io/zone": ("a1",)}
    assert np.array_equal(allowed(scenario), [[True, True], [False, True]])


def allowed(scenario: Scenario) -> np.ndarray:
    found = integers(scenario.cluster, scenario.types).allowed
    assert found is not None
    return found


MISTAKES = [
    ("cluster.servers.gpu.labels.zone=3", "cluster.servers[1].labels.zone: is 3; must be a text in quotes"),
    ("cluster.servers.gpu.labels.gpu=true", "cluster.servers[1].labels.gpu: is true; must be a text in quotes"),
    (
        "cluster.servers.gpu.labels.zone=['a']",
        "cluster.servers[1].labels.zone: is a list; must be a text in quotes",
    ),
    ("cluster.servers.gpu.labels=a100", "cluster.servers[1].labels: is 'a100'; must be a table"),
    (
        "cluster.servers.gpu.labels.zone=''",
        "cluster.servers[1].labels.zone: is empty; write at least one character",
    ),
    # a label may be called like a law
    ("cluster.servers.gpu.labels.batch=3", "cluster.servers[1].labels.batch: is 3; must be a text in quotes"),
    ("types.train.requires=a100", "types[1].requires: is 'a100'; must be a table"),
    ("types.train.requires.gpu=[]", "types[1].requires.gpu: is empty; give at least one"),
    ("types.train.requires.gpu=['a100', 4]", "types[1].requires.gpu[1]: is 4; must be a text in quotes"),
    (
        "types.train.requires.gpu=4",
        'types[1].requires.gpu: is neither a text nor a list of texts; write it like "a" or ["a", "b"]',
    ),
    (
        "types.web.requires.gpo=a100",
        "types[0] (web).requires.gpo: no server class has a label 'gpo'; did you mean gpu?",
    ),
    (
        "types.web.requires.rack=7a",
        "types[0] (web).requires.rack: no server class has a label 'rack'; use one of: gpu, zone",
    ),
    (
        "types.train.requires.gpu=['h100', 'v100']",
        "types[1] (train).requires.gpu: no server class has gpu = h100 or v100; use one of: a100",
    ),
    (
        "types.train.requires.zone=a",
        (
            "types[1] (train).requires: no server class has all of gpu = a100 or h100, zone = a; require less, or label a class"
            " so (all that plain lacks is gpu = a100 or h100)"
        ),
    ),
    (
        "types.train.demand=[9, 2]",
        (
            "types[1] (train).demand: fits no server that meets its requirements: it asks for 9 of cpu, the largest such"
            " server has 8; lower it, or add a larger server"
        ),
    ),
]


@pytest.mark.parametrize(("setting", "message"), MISTAKES)
def test_mistakes_are_told_in_one_line_with_file_and_key(setting: str, message: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, setting) == message


def test_a_type_must_fit_a_class_that_it_may_run_on(tmp_path: Path) -> None:
    """5 of cpu fit the other class, but that has no such label."""
    assert "the largest such server has 4" in refusal(
        tmp_path, "types.web.requires.zone=a", "types.web.demand=[5, 1]"
    )
    assert read(tmp_path, "types.web.demand=[5, 1]").types[0].demand == (5, 1)


def test_labels_where_no_class_has_any(tmp_path: Path) -> None:
    bare = TEXT.replace(', labels = { zone = "a" }', "").replace(', labels = { zone = "b", gpu = "a100" }', "")
    assert refusal(tmp_path, text=bare) == (
        "types[1] (train).requires.gpu: no server class has a label 'gpu'; give a server class labels = { ... }"
    )


def test_predicates_are_checked_for_labels_too() -> None:
    servers = (ServerClass(name="s", count=1, capacity=(1,), labels={"zone": "a"}, feasible=lambda k: sum(k) <= 2),)
    types = (JobType(name="t", demand=(1,), rate=1, requires={"zone": ["b"]}),)
    with pytest.raises(InputError, match=r"types\[0\] \(t\)\.requires\.zone: no server class has zone = b"):
        Scenario(cluster=Cluster(resources=("r",), servers=servers), types=types)


def test_who_matches_and_what_fits_against_a_second_reading() -> None:
    """Random labels on all sides: a class holds a type iff no key of the type's is missing or has another value."""
    rng = random.Random(5)
    keys, values = ["k", "l", "m"], ["u", "v", "w"]
    seen = set()
    for _ in range(200):
        labels = [{key: rng.choice(values) for key in keys if rng.random() < 0.7} for _ in range(3)]
        wanted = [
            {key: rng.sample(values, rng.randint(1, 3)) for key in keys if rng.random() < 0.4} for _ in range(4)
        ]
        servers = [ServerClass(name=f"c{c}", count=1, capacity=(4,), labels=labels[c]) for c in range(2)]
        servers.append(
            ServerClass(name="c2", count=1, capacity=(4,), labels=labels[2], feasible=lambda k: sum(k) <= 4)
        )
        types = [JobType(name=f"t{j}", demand=(1,), requires=wanted[j]) for j in range(4)]
        sizes = integers(Cluster(resources=("r",), servers=tuple(servers)), types)
        assert sizes.allowed is not None
        for (c, space), j in itertools.product(enumerate(spaces_of(servers, sizes)), range(4)):
            answers = [labels[c][key] in wanted[j][key] if key in labels[c] else False for key in wanted[j]]
            matches = False not in answers
            assert sizes.allowed[c, j] == matches
            assert space.most(j) == (4 if matches else 0)
            assert space.feasible([int(i == j) for i in range(4)]) == matches
            seen.add((matches, len(answers)))
    assert {(True, 3), (False, 3), (True, 0), (False, 1)} <= seen
