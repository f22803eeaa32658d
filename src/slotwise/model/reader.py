"""From a TOML file, a shipped name or a dictionary to a `Scenario`, with errors a person can act on."""

from __future__ import annotations

import difflib
import itertools
import re
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
    """Return the names of the scenarios that come with the package."""
    return sorted(path.name.removesuffix(".toml") for path in SHIPPED.iterdir() if path.name.endswith(".toml"))


# {"run.events": 20_000}, or ["run.events=20000"] with values as TOML writes them
Overrides = Mapping[str, Any] | Iterable[str]


def load_scenario(source: str | Path, overrides: Overrides = (), *, said: str = "overrides:") -> Scenario:
    """Read a scenario from a path or a shipped name, with some of its keys changed. `said` begins what is said of
    wrong overrides."""
    name, text, where = _text_of(source)
    tables = parse_toml(text, where=where)
    _change(tables, overrides, said)
    tables.setdefault("name", name)
    if isinstance(source, Path) or source not in shipped_scenarios():
        _anchor_trace(tables, Path(source).parent)
    return parse_scenario(tables, where=where)


def parse_toml(text: str, *, where: str) -> dict[str, Any]:
    """Return the tables of a TOML text, with exact numbers."""
    try:
        return tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"is not valid TOML: {error}", where=where, remedy="correct this line") from None


def changed(scenario: Scenario, overrides: Overrides) -> Scenario:
    """Return the same scenario with some of its keys changed."""
    tables = _lists(scenario.model_dump())
    tables = {key: value for key, value in tables.items() if value is not None}  # what was never given stays so
    for part in ("run", "workload"):
        tables[part] = {key: value for key, value in tables[part].items() if value is not None}
    for job_type in tables["types"]:
        for key in [key for key, value in job_type.items() if value is None]:
            del job_type[key]
    _change(tables, overrides, "overrides:")
    return parse_scenario(tables, where=scenario.name)


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(inner) for key, inner in value.items()}
    return [_lists(inner) for inner in value] if isinstance(value, list | tuple) else value


def _change(tables: dict[str, Any], overrides: Overrides, said: str) -> None:
    if isinstance(overrides, Mapping):
        for key, value in overrides.items():
            _set(tables, key, value, f"{said} {key}")
        return
    for override in [overrides] if isinstance(overrides, str) else overrides:
        _override(tables, override, said)


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
        return path.stem, path.read_text("utf-8-sig"), str(path)
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
    except UnicodeDecodeError:
        remedy = "give a scenario, a TOML file in UTF-8; a trace is named in one, as workload.trace"
        raise InputError("is not a text file", where=str(path), remedy=remedy) from None
    except OSError as error:
        why = error.strerror or error
        raise InputError(f"cannot be read ({why})", where=str(path), remedy="use a UTF-8 TOML file") from None


def _anchor_trace(tables: dict[str, Any], folder: Path) -> None:
    """Make a relative trace path relative to the scenario's own file."""
    workload = tables.get("workload")
    if isinstance(workload, dict) and isinstance(workload.get("trace"), str):
        trace = Path(workload["trace"])
        generated = trace.suffix == "" and trace.parent == Path()  # a generator's name, not a file
        if not generated and not trace.is_absolute() and not trace.exists():
            workload["trace"] = str(folder / trace)


def _override(tables: dict[str, Any], override: str, said: str) -> None:
    """Apply "cluster.servers.standard.count=200"."""
    where = f"{said} {override}"
    written = _SETTING.fullmatch(override)
    if written is None or not written["key"].strip():
        raise InputError("is not a setting", where=where, remedy="write key=value, such as run.seed=7")
    try:
        value = tomllib.loads(f"value = {written['value']}", parse_float=Decimal)["value"]
    except tomllib.TOMLDecodeError:
        value = written["value"].strip()  # a bare word is a string
    _set(tables, written["key"], value, where)


def _set(tables: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Change one key: items of lists are addressed by name or by number.

    A part in double quotes may have dots in it: cluster.servers.standard.labels."kubernetes.io/arch"=arm64.
    """
    *path, last = [part.strip().strip('"') for part in _DOTTED.findall(key)]
    if path == ["run"] and last in LENGTHS:  # the one asked for now takes the place of the one in the file
        run = tables.get("run")
        if isinstance(run, dict):
            for other in LENGTHS:
                run.pop(other, None)
    place: Any = tables
    for part in path:
        place = _step(place, part, where)
    if isinstance(place, list):
        place[_position(place, last, where)] = value
    elif isinstance(place, dict):
        place[last] = value
    else:
        raise InputError(f"{'.'.join(path)} is a value, not a table", where=where, remedy="shorten the key")


_SETTING = re.compile(r'(?P<key>(?:[^="]|"[^"]*")*)=(?P<value>.*)', re.DOTALL)
_DOTTED = re.compile(r'(?:^|(?<=\.))(?:[^."]|"[^"]*")*')


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


WORDS = {
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "string": "a text in quotes",
    "tuple": "a list in [ ]",
    "model": "a table",
    "dict": "a table",
    "bool": "true or false",
    "callable": "a function, which only Python can give",
}
LIMITS = {
    "greater_than": "above",
    "greater_than_equal": "at least",
    "less_than": "below",
    "less_than_equal": "at most",
}


def _first_mistake(error: ValidationError, where: str) -> InputError:
    """Return the first of pydantic's findings in our words. A misspelt key comes before what is missing because of
    it."""
    findings = error.errors(include_url=False)
    finding = next((each for each in findings if each["type"] == "extra_forbidden"), findings[0])
    place = _place(finding["loc"])
    what, remedy = _in_words(finding)
    # both arms of a union are one mistake, and so is a list that is "too short" because its items are wrong
    for other in findings:
        if other["type"] == "literal_error" and other is not finding and _place(other["loc"]) == place:
            remedy += f", or {other['ctx']['expected']}"
    places = {_place(other["loc"]) for other in findings}
    more = sum(not any(other != one and other.startswith(one) for other in places) for one in places) - 1
    if more:
        remedy += f" (and {more} more mistake{'s' if more > 1 else ''} in this scenario)"
    return InputError(what, where=f"{where}: {place}" if place else where, remedy=remedy)


def _in_words(finding: Any) -> tuple[str, str]:
    """Return what is wrong, and what would be right."""
    kind, context = finding["type"], finding.get("ctx", {})
    given = _given(finding["input"])
    if kind == "extra_forbidden":
        return "unknown key", _nearest_key(finding["loc"])
    if kind == "missing":
        key = str(finding["loc"][-1])
        return "is missing", f"add [{key}]" if key == "cluster" else f"add {key} = ..."
    if kind in LIMITS:
        return f"is {given}", f"must be {LIMITS[kind]} {next(iter(context.values())):g}"
    if kind == "finite_number":
        return f"is {given}", "must be a finite number"
    if kind in ("decimal_max_digits", "decimal_whole_digits", "decimal_max_places"):
        return "has too many digits to be kept exactly", f"use at most {context['max_digits']}, or a larger unit"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        if "tag" not in context:
            return "has no law", 'write { law = "..." } with the name of one'
        return f"unknown law {context['tag']!r}", f"use one of: {context['expected_tags'].replace(chr(39), '')}"
    if kind == "literal_error":
        return f"is {given}", f"use one of: {context['expected']}"
    if kind == "string_too_short":
        return "is empty", "write at least one character"
    if kind == "too_short":
        some, least = context.get("actual_length", 0), context["min_length"]
        return "is empty" if not some else f"has {some}", f"give at least {'one' if least == 1 else least}"
    if kind == "value_error":
        what, _, remedy = finding["msg"].removeprefix("Value error, ").partition("; ")
        return what, remedy
    wanted = kind.removesuffix("_type").removesuffix("_parsing").split("_")[0]
    if (
        wanted in ("model", "dict")
        and isinstance(finding["input"], str)
        and finding["loc"][-1] in ("arrivals", "service")
    ):
        return f"is {given}", f'write {{ law = "{finding["input"]}" }}'
    return f"is {given}", f"must be {WORDS.get(wanted, wanted)}"


def _given(value: Any) -> str:
    """Return what the user wrote, as TOML writes it."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return str(value) if value.is_finite() else str(float(value))
    return repr(value)


def _place(location: tuple[int | str, ...]) -> str:
    place = ""
    for part, above in zip(location, ("", *location), strict=False):
        if isinstance(part, int):
            place += f"[{part}]"
        elif part == "[key]" or (part in _TAGS and above not in _FREE):
            continue  # the branch of a union, not a key that the user wrote
        else:
            place += f".{part}" if place else str(part)
    return place


_FREE = ("labels", "requires", "jobs", "units")  # Tables whose keys are the user's own words.
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
    "literal['day','week']",
    "float",
    "function-after[_one_way(), Hyperexponential]",
}


def _nearest_key(location: tuple[int | str, ...]) -> str:
    """Return what the user may have meant by an unknown key: a near one, or the list of those that exist."""
    model: type[BaseModel] = Scenario
    for part, after in itertools.pairwise(location):
        if isinstance(part, int) or part not in model.model_fields:
            continue
        inner = _models_in(model.model_fields[part].annotation)
        if not inner:
            return "remove it"
        # of several laws the one that the user named, which comes next in pydantic's location
        model = next((each for each in inner if _law_of(each) == after), inner[0])
    known = list(model.model_fields)
    near = difflib.get_close_matches(str(location[-1]), known, 1)
    return f"did you mean {near[0]}?" if near else f"the keys here are: {', '.join(known)}"


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in getattr(annotation, "__args__", ()) for model in _models_in(inner)]


def _law_of(model: type[BaseModel]) -> str | None:
    law = model.model_fields.get("law")
    return law.annotation.__args__[0] if law is not None and law.annotation is not None else None
