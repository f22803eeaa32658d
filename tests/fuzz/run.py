"""Fuzz one target with coverage guidance: `python tests/fuzz/run.py TARGET --seconds 60`. `make fuzz` runs all of them.

atheris changes bytes so that they reach code which no input has reached before. What it finds is written to build/fuzz/TARGET; copy
the file to tests/fuzz/corpus/TARGET when the defect is mended, and `make test` runs it from then on.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import random
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import atheris  # type: ignore[import-not-found]  # installed by `make fuzz`

HERE = Path(__file__).parent
INPUT_SECONDS, MEGABYTES = 20, 3000  # an input that takes more is a finding, too

SOURCES = Path(find_spec("slotwise").submodule_search_locations[0])  # type: ignore[union-attr, index]
PLAIN = ("live", "model", "scheduling")
COMPILED = [
    ".".join(("slotwise", *path.relative_to(SOURCES).with_suffix("").parts)).removesuffix(".__init__")
    for path in SOURCES.rglob("*.py")
    if path.relative_to(SOURCES).parts[0] not in PLAIN or "slotwise.compiler" in path.read_text()
]  # Numba cannot read what atheris has changed

with atheris.instrument_imports(include=["slotwise"], exclude=COMPILED):
    sys.path.insert(0, str(HERE))
    from targets import TARGETS, write_samples


VALUES = [
    None,
    True,
    0,
    -1,
    1,
    2**31,
    2**63,
    2**64,
    10**400,
    0.5,
    -0.0,
    1e308,
    float("nan"),
    "",
    "x",
    "1",
    "\ud800",
    [],
    {},
    [[]],
    [1, 2, 3],
]


def places(values: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place in values that can be changed: what holds it, and its key or index."""
    keys = values if isinstance(values, dict) else range(len(values)) if isinstance(values, list) else ()
    for key in keys:
        yield values, key
        yield from places(values[key])


def change_json(text: str, chance: random.Random) -> str:
    """Change one value of a JSON text: replace it, drop it or write it twice. Text that is no JSON stays as it is."""
    try:
        values = [json.loads(text)]
    except (ValueError, RecursionError):
        return text
    found = list(places(values))
    holder, key = chance.choice(found)
    other, its_key = chance.choice(found)
    kind = chance.random()
    if kind < 0.6:
        holder[key] = chance.choice(VALUES)
    elif kind < 0.8:
        holder[key] = copy.deepcopy(other[its_key])
    elif kind < 0.9 and holder is not values:
        del holder[key]
    elif isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    return json.dumps(values[0]) if values else ""


def mutate(data: bytes, size: int, seed: int) -> bytes:
    """Change bytes; or, as often, a value in one of the lines if that is JSON, which changed bytes seldom are."""
    chance = random.Random(seed)
    if chance.random() < 0.5:
        return bytes(atheris.Mutate(data, size))
    lines = data.decode("utf-8", "replace").split("\n")
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(lines))
        cells = lines[at].split("\t")
        cell = chance.randrange(len(cells))
        cells[cell] = change_json(cells[cell], chance)
        lines[at] = "\t".join(cells)
    return "\n".join(lines).encode("utf-8", "replace")[:size]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=[*TARGETS, "samples"])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"))
    given, rest = parser.parse_known_args()
    if given.target == "samples":
        write_samples(HERE / "corpus")
        return
    found = given.out / given.target
    (found / "corpus").mkdir(parents=True, exist_ok=True)
    arguments = [
        sys.argv[0],
        f"-max_total_time={given.seconds}",
        f"-artifact_prefix={found}/",
        f"-dict={HERE / 'words.dict'}",
        f"-timeout={INPUT_SECONDS}",
        f"-rss_limit_mb={MEGABYTES}",
        "-max_len=20000",
        "-print_final_stats=1",
        *rest,
        str(found / "corpus"),
        str(HERE / "corpus" / given.target),
    ]
    for file in sorted((HERE / "corpus" / given.target).iterdir()):
        TARGETS[given.target](file.read_bytes())  # kernels are compiled before inputs are timed
    logging.disable(logging.CRITICAL)  # inputs that are refused are logged
    atheris.Setup(arguments, TARGETS[given.target], custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
