"""What a job of Snakemake demands, in the words of Slotwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError

from slotwise.errors import InputError
from slotwise.live.needs import parse_needs

SECONDS_PER_MINUTE = 60  # Snakemake counts `runtime` in minutes


def options_of(threads: int, resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a submission: needs, requires, time.

    >>> options_of(2, {"mem_mb": 500, "runtime": 3})
    {'needs': {'cpu': 2.0, 'memory': 500.0}, 'time': 180.0}
    """
    needs: dict[str, float] = {"cpu": float(threads)}
    if resources.get("mem_mb"):
        needs["memory"] = number("mem_mb", resources["mem_mb"])
    if resources.get("gpu"):
        needs["gpu"] = number("gpu", resources["gpu"])
    if resources.get("slotwise_needs"):
        needs |= named_needs(str(resources["slotwise_needs"]))
    options: dict[str, Any] = {"needs": needs}
    if resources.get("slotwise_requires"):
        options["requires"] = requires(str(resources["slotwise_requires"]))
    if resources.get("runtime"):
        options["time"] = SECONDS_PER_MINUTE * number("runtime", resources["runtime"])
    return options


def number(name: str, value: Any) -> float:
    """Read a resource that is a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise WorkflowError(f"resource {name}: {value!r} is no number") from None


def named_needs(text: str) -> dict[str, float]:
    """Read `slotwise_needs`."""
    try:
        return parse_needs(text)
    except InputError as error:
        raise WorkflowError(f"resource slotwise_needs: {error}") from None


def requires(text: str) -> dict[str, list[str]]:
    """Read labels that the server must have.

    >>> requires("gpu=a100|h100,zone=b")
    {'gpu': ['a100', 'h100'], 'zone': ['b']}
    """
    found: dict[str, list[str]] = {}
    for part in text.split(","):
        label, equals, values = part.partition("=")
        if not (label and equals and values):
            raise WorkflowError(
                f"resource slotwise_requires: {part!r} is no label; write it like gpu=a100|h100,zone=b"
            )
        found[label] = values.split("|")
    return found
