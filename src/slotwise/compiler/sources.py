"""What a compiled kernel was made from: its module, all modules of slotwise that the module imports, and the compiler.

Machine code in the cache is void as soon as one of these has changed, and only then: an edit of `planning` voids nothing of `core`.
Hashes and imports of the sources are kept in `__pycache__/sources.json`, so that a start reads sizes and times only. A file whose time
has changed, as in the layers of a container image, is known again by its content.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba

from slotwise.compiler.switch import MODE

PACKAGE = Path(__file__).parents[1]
ROOT = PACKAGE.name
RECORD = PACKAGE / "__pycache__" / "sources.json"
FORMAT = 1  # of the record


def stamp(module: str) -> str:
    """Return the hash of all that the kernels of a module are made from."""
    return _stamps()[module] if module in _stamps() else _everything()


@cache
def _everything() -> str:
    """Return the stamp for a function that is no part of the package, such as one that a test defines."""
    return hashlib.sha256("".join(sorted(_stamps().values())).encode()).hexdigest()


@cache
def _stamps() -> dict[str, str]:
    """Return the stamp of every module. Remove the compiled kernels of modules whose stamp has changed."""
    known = _record()
    files = {_name(path): path for path in PACKAGE.rglob("*.py")}
    found = {name: _facts_of(path, known["files"].get(name)) for name, path in files.items()}
    compiler = "".join(found[name]["hash"] for name in sorted(found) if name.startswith(f"{ROOT}.compiler"))
    base = f"{numba.__version__} {llvmlite.__version__} {MODE} {compiler}"
    imports = {name: [one for one in about["imports"] if one in found] for name, about in found.items()}
    stamps = {}
    for name in found:
        text = base + "".join(found[one]["hash"] for one in sorted(reached(name, imports)))
        stamps[name] = hashlib.sha256(text.encode()).hexdigest()
    if found != known["files"] or stamps != known["stamps"]:
        changed = [path for name, path in files.items() if known["stamps"].get(name, stamps[name]) != stamps[name]]
        _write({"format": FORMAT, "files": found, "stamps": stamps}, changed)
    return stamps


def reached(module: str, imports: dict[str, list[str]]) -> set[str]:
    """Return the module and all that it imports, directly or not."""
    found, waiting = {module}, [module]
    while waiting:
        for one in imports[waiting.pop()]:
            if one not in found:
                found.add(one)
                waiting.append(one)
    return found


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join((ROOT, *(parts[:-1] if parts[-1] == "__init__" else parts)))


def _facts_of(path: Path, known: dict[str, Any] | None) -> dict[str, Any]:
    info = path.stat()
    seen = [info.st_size, info.st_mtime_ns]
    if known is not None and known["seen"] == seen:
        return known
    source = path.read_bytes()
    content = hashlib.sha256(source).hexdigest()
    if known is not None and known["hash"] == content:
        return {**known, "seen": seen}
    return {"seen": seen, "hash": content, "imports": sorted(imported(source.decode()))}


_FOR_CHECKERS = re.compile(r"^if TYPE_CHECKING:\n(?:[ \t]+.*\n|\n)+", re.MULTILINE)
_IMPORT = re.compile(rf"^[ \t]*(?:from ({ROOT}[\w.]*) import (\([^)]*\)|.*)|import ({ROOT}[\w.]+))", re.MULTILINE)


def imported(source: str) -> set[str]:
    """Return the modules of the package that a source imports when it runs: not those for type checkers.

    Parsing would take a second for all sources, which a package that cannot be written to would spend at every start."""
    found: set[str] = set()
    for match in _IMPORT.finditer(_FOR_CHECKERS.sub("", source)):
        module, names, alone = match.groups()
        if alone:
            found.add(alone)
        else:
            found.update((module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))))
    return found - {ROOT}


def _record() -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(RECORD.read_text())
    except (OSError, ValueError):
        record = {}
    return record if record.get("format") == FORMAT else {"files": {}, "stamps": {}}


def _write(record: dict[str, Any], changed: list[Path]) -> None:
    """Write the record. Remove the compiled kernels of changed modules."""
    try:
        for path in changed:
            for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.nb[ci]"):
                compiled.unlink(missing_ok=True)
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.write_text(json.dumps(record))
    except OSError:
        ...  # installed where this user may not write: Numba then keeps its cache elsewhere
