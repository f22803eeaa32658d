"""From a TOML file, a shipped name or a dictionary to a `Scenario`, with errors a person can act on."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from slotwise.errors import InputError
from slotwise.model.scenario import Scenario

SHIPPED = files("slotwise.model") / "scenarios"
LENGTHS = ("events", "jobs", "until")


def shipped_scenarios() -> list[str]:
    """Names of the scenarios that come with the package."""
    return sorted(path.name.removesuffix(".toml") for path in SHIPPED.iterdir() if path.name.endswith(".toml"))


def load_scenario(source: str | Path, overrides: Iterable[str] = ()) -> Scenario:
    """Read a scenario from a path or a shipped name; `overrides` are "dotted.key=value" strings."""
    name, text, where = _text_of(source)
    try:
        tables = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"is not valid TOML: {error}", where=where, remedy="see the line named") from None
    for override in overrides:
        _override(tables, override)
    tables.setdefault("name", name)
    if isinstance(source, Path) or source not in shipped_scenarios():
        _anchor_trace(tables, Path(source).parent)
    return parse_scenario(tables, where=where)


def parse_scenario(tables: Mapping[str, Any], *, where: str = "scenario") -> Scenario:
    """Validate nested dictionaries, as TOML gives them, into a scenario."""
    try:
        return Scenario.model_validate(tables)
    except ValidationError as error:
        raise _first_mistake(error, where) from None
    except InputError as error:
        raise InputError(error.what, where=f"{where}: {error.where}", remedy=error.remedy) from None


def _text_of(source: str | Path) -> tuple[str, str, str]:
    if isinstance(source, str) and source in shipped_scenarios():
        return source, (SHIPPED / f"{source}.toml").read_text("utf-8"), source
    path = Path(source)
    try:
        return path.stem, path.read_text("utf-8"), str(path)
    except FileNotFoundError:
        near = difflib.get_close_matches(str(source), shipped_scenarios(), 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InputError(
            "no such file or shipped scenario",
            where=str(source),
            remedy=f"{hint}`slotwise scenarios` lists what there is",
        ) from None
    except IsADirectoryError:
        raise InputError("is a directory", where=str(path), remedy="name a TOML file in it") from None
    except (UnicodeDecodeError, PermissionError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path), remedy="use a UTF-8 TOML file") from None


def _anchor_trace(tables: dict[str, Any], folder: Path) -> None:
    """A relative trace path is meant relative to the scenario's own file."""
    workload = tables.get("workload")
    if isinstance(workload, dict) and isinstance(workload.get("trace"), str):
        trace = Path(workload["trace"])
        generated = trace.suffix == "" and trace.parent == Path()  # a generator's name, not a file
        if not generated and not trace.is_absolute() and not trace.exists():
            workload["trace"] = str(folder / trace)


def _override(tables: dict[str, Any], override: str) -> None:
    """Apply "cluster.servers.standard.count=200": list items are addressed by name or by number."""
    key, equals, text = override.partition("=")
    where = f"--set {override}"
    if not equals or not key.strip():
        raise InputError("is not a setting", where=where, remedy="write key=value, such as run.seed=7")
    try:
        value = tomllib.loads(f"value = {text}", parse_float=Decimal)["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()  # a bare word is a string
    *path, last = [part.strip() for part in key.split(".")]
    if path == ["run"] and last in LENGTHS:  # the one asked for now takes the place of the one in the file
        for other in LENGTHS:
            tables.get("run", {}).pop(other, None)
    place: Any = tables
    for part in path:
        place = _step(place, part, where)
    if isinstance(place, list):
        place[_position(place, last, where)] = value
    elif isinstance(place, dict):
        place[last] = value
    else:
        raise InputError(f"{'.'.join(path)} is a value, not a table", where=where, remedy="shorten the key")


def _step(place: Any, part: str, where: str) -> Any:
    if isinstance(place, list):
        return place[_position(place, part, where)]
    if isinstance(place, dict):
        return place.setdefault(part, {})
    raise InputError(f"there is no table above {part!r}", where=where, remedy="see the reference of scenario keys")


def _position(items: list[Any], part: str, where: str) -> int:
    names = [item.get("name", "") if isinstance(item, dict) else "" for item in items]
    if part in names:
        return names.index(part)
    if part.isdigit() and int(part) < len(items):
        return int(part)
    known = ", ".join(filter(None, names)) or f"0 to {len(items) - 1}"
    raise InputError(f"there is no {part!r}", where=where, remedy=f"use one of: {known}")


def _first_mistake(error: ValidationError, where: str) -> InputError:
    """The first of pydantic's findings, in our words."""
    finding = error.errors(include_url=False)[0]
    place = _place(finding["loc"])
    kind, context = finding["type"], finding.get("ctx", {})
    key = str(finding["loc"][-1]) if finding["loc"] else ""
    what, remedy = finding["msg"].removeprefix("Value error, "), "see the reference of scenario keys"
    given = finding["input"] if not isinstance(finding["input"], Decimal) else float(finding["input"])
    if kind == "extra_forbidden":
        what, remedy = "unknown key", _nearest_key(finding["loc"])
    elif kind == "missing":
        what, remedy = "is missing", f"add {key} = ..."
    elif kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        limit = context.get("gt", context.get("ge", context.get("lt", context.get("le"))))
        words = {"greater_than": "above", "greater_than_equal": "at least", "less_than": "below"}
        what, remedy = f"is {given}", f"must be {words.get(kind, 'at most')} {limit}"
    elif kind == "finite_number":
        what, remedy = f"is {given}", "must be a finite number"
    elif kind.endswith(("_type", "_parsing")) or kind.startswith(("int_", "float_", "decimal_")):
        wanted = kind.removesuffix("_type").removesuffix("_parsing").split("_")[0]
        words = {"int": "a whole number", "float": "a number", "decimal": "a number", "string": "a text in quotes"}
        words |= {"tuple": "a list in [ ]", "model": "a table", "dict": "a table", "bool": "true or false"}
        what, remedy = f"is {given!r}", f"must be {words.get(wanted, wanted)}"
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        what = f"unknown law {context['tag']!r}" if "tag" in context else "has no law"
        tags = str(context.get("expected_tags", "")).replace("'", "") or "see the reference"
        remedy = f"use law = one of: {tags}" if tags != "see the reference" else 'write { law = "poisson" }, say'
    elif kind == "literal_error":
        what, remedy = f"is {given!r}", f"use one of: {context['expected']}"
    elif kind == "too_short":
        what, remedy = "is empty", "give at least one"
    # a list that is "too short" because its items are wrong, or both arms of a union, are one mistake
    places = {_place(other["loc"]) for other in error.errors(include_url=False)}
    more = sum(not any(other != one and other.startswith(one) for other in places) for one in places) - 1
    if more:
        remedy += f" (and {more} more mistake{'s' if more > 1 else ''} in this scenario)"
    return InputError(what, where=f"{where}: {place}" if place else where, remedy=remedy)


def _place(location: tuple[int | str, ...]) -> str:
    place = ""
    for part in location:
        if isinstance(part, int):
            place += f"[{part}]"
        elif part in _TAGS:
            continue  # the branch of a union, not a key that the user wrote
        else:
            place += f".{part}" if place else str(part)
    return place


_TAGS = {
    "poisson",
    "exponential",
    "deterministic",
    "lognormal",
    "hyperexponential",
    "weibull",
    "pareto",
    "empirical",
    "mmpp",
    "batch",
    "constrained-float",
    "literal['auto']",
    "float",
    "function-after[_one_way(), Hyperexponential]",
}


def _nearest_key(location: tuple[int | str, ...]) -> str:
    """What the user may have meant by an unknown key: a near one, or the list of those that exist."""
    model: type[BaseModel] = Scenario
    for part in location[:-1]:
        if isinstance(part, int) or part not in model.model_fields:
            continue
        inner = _model_in(model.model_fields[part].annotation)
        if inner is None:
            return "remove it"
        model = inner
    known = list(model.model_fields)
    near = difflib.get_close_matches(str(location[-1]), known, 1)
    return f"did you mean {near[0]}?" if near else f"the keys here are: {', '.join(known)}"


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _model_in(inner)
        if found is not None:
            return found
    return None
