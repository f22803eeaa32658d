"""Writes docs/reference from the code: `python docs/generate.py`. A test checks that the committed pages are up to date."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import slotwise
from slotwise import planning, theory
from slotwise.cli import waiting
from slotwise.cli.main import COMMANDS, build
from slotwise.core.contract.hooks import Hooks
from slotwise.model import RateProfile, laws, quotas, scenario, shares, shipped_scenarios
from slotwise.packing import SOLVERS
from slotwise.planning import MEANINGS
from slotwise.policies import POLICIES
from slotwise.scheduling import api
from slotwise.workloads import traces
from slotwise.workloads.traces import schema
from slotwise.workloads.traces.formats import FORMATS

REFERENCE = Path(__file__).parent / "reference"
MADE = "<!-- written by docs/generate.py: edit the code, not this page -->\n"


def row(*cells: str) -> str:
    """A line of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ").strip() for cell in cells) + " |"


def table(*heads: str) -> list[str]:
    """The top of a table."""
    return [row(*heads), "|" + "---|" * len(heads)]


# -- what pydantic knows ----------------------------------------------------------------------------------------------


def kind(annotation: Any) -> str:
    """A type in words that a reader of TOML knows."""
    origin = get_origin(annotation)
    if origin is typing.Annotated:
        return kind(get_args(annotation)[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    if origin in (typing.Union, types.UnionType):
        parts = [kind(part) for part in get_args(annotation) if part is not type(None)]
        return " or ".join(dict.fromkeys(parts))
    if origin is tuple:
        return f"list of {kind(get_args(annotation)[0])}"
    if origin is dict:
        return "table"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "law" if issubclass(annotation, laws.Law) else "table"
    words = {str: "text", int: "whole number", float: "number", bool: "true or false", Decimal: "exact decimal"}
    return words.get(annotation, "from Python only")


def limits(field: FieldInfo) -> str:
    """What else must hold of a value."""
    signs = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
    found = []
    for rule in field.metadata:
        found += [f"{words} {getattr(rule, sign):g}" for sign, words in signs.items() if hasattr(rule, sign)]
    return ", " + ", ".join(found) if found else ""


def default(field: FieldInfo) -> str:
    """The default as TOML would say it."""
    value = field.default
    if value is PydanticUndefined:
        return "required"
    if value is None or value in ((), {}):
        return "none"
    if isinstance(value, laws.Law):
        return f"`{value.law}`"  # type: ignore[attr-defined]
    if isinstance(value, BaseModel):
        return "its own defaults"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`"


def keys_of(model: type[BaseModel], *only: str) -> Iterator[str]:
    """A row for each key of a model, or for some."""
    yield from table("key", "value", "default", "meaning")
    for name, field in model.model_fields.items():
        if only and name not in only:
            continue
        yield row(f"`{name}`", kind(field.annotation) + limits(field), default(field), field.description or "")


# -- pages ------------------------------------------------------------------------------------------------------------


def scenario_page() -> str:
    parts: dict[str, type[BaseModel]] = {
        "[cluster]": scenario.Cluster,
        "cluster.servers": scenario.ServerClass,
        "cluster.servers.failures": scenario.Failures,
        "cluster.events": scenario.ServerEvent,
        "[[types]]": scenario.JobType,
        "[workload]": scenario.Workload,
        "workload.typing": scenario.TypeMaking,
        "workload.profile": RateProfile,
        "[shares]": shares.Shares,
        "[[shares.groups]]": shares.Group,
        "[[shares.tenants]]": shares.Tenant,
        "[[quotas]]": quotas.Quota,
        "[policy]": scenario.PolicyChoice,
        "[run]": scenario.Run,
    }
    lines = [
        "# Scenario keys",
        "",
        "A scenario is a TOML file, the one input of every command. Unknown keys are refused. `--set KEY=VALUE` changes a",
        "dotted key from the command line: `run.events=20000`, `workload.intensity=0.95`, and members of lists by their",
        "name: `cluster.servers.standard.count=40`. A name with dots in it is put in double quotes.",
        "What `labels` and `requires` are for: [labels and requirements](../guides/labels.md). What units and profiles do:",
        "[units, and rates that change](../guides/changing-rates.md).",
        "",
        "Scenarios that ship: " + ", ".join(f"`{name}`" for name in shipped_scenarios()) + ".",
    ]
    lines += ["", "## At the top of the file", "", *keys_of(scenario.Scenario, "name", "time_unit")]
    for heading, model in parts.items():
        lines += ["", f"## `{heading}`", "", inspect.getdoc(model) or "", "", *keys_of(model)]
    lines += ["", "## Laws", "", inspect.getdoc(laws) or ""]
    for title, union in (("Arrivals", laws.ArrivalLaw), ("Service times", laws.ServiceLaw)):
        names = [one.model_fields["law"].annotation for one in get_args(get_args(union)[0])]
        lines += ["", f"{title}: " + ", ".join(kind(name) for name in names) + "."]
    shown: list[type[BaseModel]] = []
    for union in (laws.ArrivalLaw, laws.ServiceLaw):
        shown += [one for one in get_args(get_args(union)[0]) if one not in shown]
    for law in shown:
        name = get_args(law.model_fields["law"].annotation)[0]
        lines += ["", f"### `{name}`", "", inspect.getdoc(law) or ""]
        if len(law.model_fields) > 1:
            lines += ["", *keys_of(law)]
    lines += [
        "",
        "### a member of `batches`",
        "",
        inspect.getdoc(laws.BatchKind) or "",
        "",
        *keys_of(laws.BatchKind),
    ]
    return "\n".join(lines)


def policies_page() -> str:
    lines = [
        "# Policies",
        "",
        "`slotwise policies` prints the list, `slotwise policies NAME` the options of one. Options stand beside the name in",
        "`[policy]`, or go as keywords to `slotwise.simulate` and `slotwise.Scheduler`.",
        "",
        *table("policy", "what it does"),
    ]
    lines += [row(f"[`{name}`](#{name})", policy.summary) for name, policy in POLICIES.items()]
    for name, policy in POLICIES.items():
        lines += ["", f"## {name}", "", policy.summary[0].upper() + policy.summary[1:] + ".", ""]
        lines += keys_of(policy.Options)
    lines += [
        "",
        "## Solvers",
        "",
        "What `solver` may be, and the share r of the greatest weight that it reaches:",
        "",
    ]
    lines += table("solver", "finds")
    lines += [row(f"`{name}`", about) for name, about in SOLVERS.items()]
    return "\n".join(lines)


def traces_page() -> str:
    lines = ["# Traces", "", "## Formats", "", "`slotwise trace import FORMAT PATH... -o FILE.parquet` reads:", ""]
    lines += table("format", "what it is", "jobs not seen to their end", "options (`-O KEY=VALUE`)")
    lines += [
        row(f"`{f.name}`", f.about, f.interrupted, ", ".join(f"`{o}`" for o in f.options) or "none")
        for f in FORMATS.values()
    ]
    lines += ["", "For `csv` and `parquet`, `--map` and `--time-unit` are these options.", "", "## The file"]
    return "\n".join([*lines, "", inspect.getdoc(schema) or ""])


def cli_page() -> str:
    app = typer.main.get_command(build(list(COMMANDS)))
    lines = [
        "# Command line",
        "",
        "Results go to standard output, messages and progress to standard error. Exit codes: 0 done, 1 failed, 2 bad input.",
        "`slotwise --install-completion` makes TAB complete commands, options, scenarios and policies ([more](../guides/install.md)).",
        "",
        "Targets of `slotwise plan`: " + ", ".join(f"`{key}` ({words})" for key, words in MEANINGS.items()) + ".",
    ]
    lines += commands_of(app, "slotwise")
    lines += ["", "## Exit codes of commands that wait", "", (inspect.getdoc(waiting) or "").partition("\n\n")[2]]
    return "\n".join(lines)


def commands_of(command: Any, path: str) -> Iterator[str]:
    """A command and those below it."""
    context = click.Context(command, info_name=path)
    if not hasattr(command, "commands"):
        usage = " ".join([path, *command.collect_usage_pieces(context)])
        words, _, examples = inspect.cleandoc(command.help or "").partition(
            "\b\n"
        )  # click's mark of lines to be left alone
        yield from ("", f"## `{path}`", "", words.strip(), "", f"    {usage}", "")
        if examples:
            _, *lines = examples.splitlines()
            yield from ("For example:", "", *(f"    {line.strip()}" for line in lines), "")
        yield from table("argument or option", "default", "meaning")
        for parameter in command.params:
            yield parameter_row(parameter)
        return
    for name in command.commands:
        yield from commands_of(command.commands[name], f"{path} {name}")


def parameter_row(parameter: Any) -> str:
    """A row about an argument or an option."""
    about = getattr(parameter, "help", "") or ""
    if parameter.param_type_name == "argument":
        return row(f"`{parameter.metavar or parameter.name.upper()}`", "", about)
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    value = parameter.default
    value = "" if value is None or value is False or value == [] else f"`{value}`"
    return row(names, "required" if parameter.required else value, about)


def python_page() -> str:
    lines = ["# Python API", "", inspect.getdoc(slotwise) or "", "", "## `slotwise`"]
    lines[2] = (inspect.getdoc(slotwise) or "").split("\n")[0]
    for name in slotwise.__all__:
        if name not in ("__version__", "POLICIES"):
            lines += member("slotwise", name, getattr(slotwise, name))
    lines += ["", "`POLICIES`: the policies by name. `__version__`: the version as text."]
    for module in (planning, theory, traces):
        lines += ["", f"## `{module.__name__}`", "", inspect.getdoc(module) or ""]
        for name in module.__all__:
            value = getattr(module, name)
            if callable(value):
                lines += member(module.__name__, name, value)
    lines += ["", "## `slotwise.scheduling.api`", "", "For the authors of policies.", "", "```text"]
    return "\n".join([*lines, inspect.getdoc(api) or "", "```"])


def signature(value: Any) -> str:
    """The parameters as code, without the module names of types."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    if inspect.isclass(value) and issubclass(value, BaseModel):
        return "(*, " + ", ".join(value.model_fields) + ")"
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(found))


def member(home: str, name: str, value: Any) -> Iterator[str]:
    """A function or a class with its methods."""
    doc = (inspect.getdoc(value) or "").split(">>>")[0].strip()
    if dataclasses.is_dataclass(value) and doc.startswith(f"{name}("):
        doc = ""
    shown = "" if inspect.isclass(value) and not is_plain(value) else signature(value)
    yield from ("", f"### `{name}`", "", "```text", f"{home}.{name}{shown}", "```", "", doc)
    if not inspect.isclass(value) or issubclass(value, BaseModel):
        return
    yield ""
    for key, inner in members(value).items():
        if key in Hooks._fields and issubclass(value, slotwise.Policy):
            continue  # the hooks that do nothing
        public = not key.startswith("_") and inspect.getdoc(inner) and not isinstance(inner, str | int | tuple)
        function = inner.__func__ if isinstance(inner, classmethod | staticmethod) else inner
        about = " ".join((inspect.getdoc(inner) or "").split("\n\n")[0].split())
        if public and (inspect.isfunction(function)):
            yield f"- `{key}{signature(function)}`: {about}"
        elif public and (isinstance(inner, property) or type(inner).__name__ == "cached_property"):
            yield f"- `{key}`: {about}"


def members(value: type) -> dict[str, Any]:
    """What a class has of its own, and from bases that are not shown themselves."""
    found: dict[str, Any] = {}
    for base in value.__mro__:
        if base is value or (base.__module__.startswith("slotwise.") and base.__name__ not in slotwise.__all__):
            found = {**found, **{key: inner for key, inner in vars(base).items() if key not in found}}
    return found


def is_plain(value: Any) -> bool:
    """Whether people make objects of this class themselves."""
    return value.__name__ in {"Scheduler", "Cluster", "JobType", "ServerClass", "Scenario", "Policy", "InputError"}


PAGES = {
    "scenario.md": scenario_page,
    "policies.md": policies_page,
    "traces.md": traces_page,
    "cli.md": cli_page,
    "python.md": python_page,
}


def pages() -> dict[str, str]:
    """Every page by its name."""
    return {name: MADE + make().rstrip() + "\n" for name, make in PAGES.items()}


def main() -> None:
    """Write them."""
    REFERENCE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text)


if __name__ == "__main__":
    main()
