"""The cluster that is wanted: by a cluster file, or as it runs. Both have the same form, so that they can be compared and written as TOML."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from slotwise.errors import InputError
from slotwise.live.engines.protocol import ServerUp
from slotwise.model import JobType, Quota, ServerClass, Shares

if TYPE_CHECKING:
    from slotwise.live.restart import Setup


@dataclass
class Outgoing:
    """What is no longer part of the cluster and stays until the last job that uses it has ended."""

    types: dict[str, str] = field(default_factory=dict)
    """each with the type that replaces it, "" where none does"""
    classes: list[str] = field(default_factory=list)
    servers: dict[str, str | None] = field(default_factory=dict)
    """draining servers, each with the class that it takes when it is empty; None: it leaves"""

    def as_dict(self) -> dict[str, Any]:
        """Return the target as journal rows and checkpoints keep it."""
        return {"types": self.types, "classes": self.classes, "servers": self.servers}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Outgoing:
        """What `as_dict` made."""
        return cls(dict(values["types"]), list(values["classes"]), dict(values["servers"]))


@dataclass(frozen=True)
class Target:
    """A cluster with its types and policy."""

    resources: tuple[str, ...]
    classes: tuple[ServerClass, ...]
    types: tuple[JobType, ...]
    policy: str
    options: Mapping[str, Any]
    servers: Mapping[str, str]
    """the class of each server"""
    shares: Shares | None = None
    quotas: tuple[Quota, ...] = ()

    @classmethod
    def of_setup(cls, setup: Setup, servers: Iterable[ServerUp]) -> Target:
        """Return what a service would begin with if it began anew."""
        return cls(
            setup.cluster.resources,
            setup.cluster.servers,
            setup.types,
            setup.policy,
            setup.options,
            {one.name: one.server_class for one in servers},
            setup.shares,
            setup.quotas,
        )

    def with_policy(self, policy: str | None, options: Mapping[str, Any] | None) -> Target:
        """Return the same cluster under another policy, or with other options of the same policy."""
        return replace(self, policy=policy or self.policy, options=dict(options or {}))

    def on_servers_of(self, running: Target) -> Target:
        """Return the same types and policy on the servers that run, for engines that find their servers themselves."""
        for name in self.resources:
            if name not in running.resources:
                raise InputError(
                    f"no server has a resource {name!r}",
                    where="cluster.resources",
                    remedy=f"the engine finds: {', '.join(running.resources)}",
                )
        types = tuple(
            one.model_copy(update={"demand": reordered(one.demand, self.resources, running.resources)})
            for one in self.types
        )
        return replace(
            self, resources=running.resources, classes=running.classes, servers=running.servers, types=types
        )

    def ordered_like(self, other: Target) -> tuple[ServerClass, ...]:
        """Return the classes with capacities in the order of another cluster's resources."""
        return tuple(
            one.model_copy(update={"capacity": reordered(one.capacity, self.resources, other.resources)})
            for one in self.classes
        )

    def to_toml(self, engine: str) -> str:
        """Return the target as a cluster file, which `slotwise serve` and `slotwise apply` take."""
        counts = Counter(self.servers.values())
        lines = ["# The cluster that runs, as `slotwise apply` takes it.", "[cluster]"]
        lines.append(f"resources = {toml(list(self.resources))}")
        for one in self.classes:
            values = {"name": one.name, "count": counts[one.name], "capacity": list(one.capacity)}
            if one.labels:
                values["labels"] = dict(one.labels)
            lines += ["", "[[cluster.servers]]", *(f"{key} = {toml(value)}" for key, value in values.items())]
            strange = [
                name
                for name, kind in self.servers.items()
                if kind == one.name and not is_numbered(name, one.name, counts[one.name])
            ]
            if strange:
                lines.append(f"# found by engine {engine}: {', '.join(strange)}")
        for job_type in self.types:
            values = job_type.model_dump(mode="python", exclude_defaults=True)
            lines += ["", "[[types]]", *(f"{key} = {toml(value)}" for key, value in values.items())]
        lines += shares_toml(self.shares)
        for quota in self.quotas:
            values = quota.model_dump(exclude_defaults=True)
            lines += ["", "[[quotas]]", *(f"{key} = {toml(value)}" for key, value in values.items())]
        lines += ["", "[policy]", f"name = {toml(self.policy)}"]
        lines += [f"{key} = {toml(value)}" for key, value in self.options.items()]
        return "\n".join(lines) + "\n"


def shares_toml(shares: Shares | None) -> list[str]:
    """Return the lines of a cluster file that state shares."""
    if shares is None:
        return []
    values = shares.model_dump(exclude_defaults=True, exclude={"groups", "tenants"})
    lines = ["", "[shares]", *(f"{key} = {toml(value)}" for key, value in values.items())]
    for table, parts in (("groups", shares.groups), ("tenants", shares.tenants)):
        for one in parts:
            values = one.model_dump(exclude_defaults=True)
            lines += ["", f"[[shares.{table}]]", *(f"{key} = {toml(value)}" for key, value in values.items())]
    return lines


def reordered(sizes: Sequence[Decimal], before: Sequence[str], after: Sequence[str]) -> tuple[Decimal, ...]:
    """Return sizes in another order of resources; a resource that had none gets 0."""
    found = dict(zip(before, sizes, strict=True))
    return tuple(found.get(name, Decimal(0)) for name in after)


def is_numbered(server: str, server_class: str, count: int) -> bool:
    """Return whether a server has one of the names that a cluster file gives: CLASS-0, CLASS-1, ..."""
    number = server.removeprefix(f"{server_class}-")
    return number.isdecimal() and int(number) < count and server == f"{server_class}-{int(number)}"


def toml(value: Any) -> str:
    """Return a value as TOML writes it.

    >>> toml({"gpu": ["a100"], "n": Decimal("1.50"), "yes": True})
    '{ gpu = ["a100"], n = 1.50, yes = true }'
    """
    if isinstance(value, Mapping):
        inner = ", ".join(f"{key_of(key)} = {toml(one)}" for key, one in value.items() if one is not None)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def key_of(name: str) -> str:
    """Return a key as TOML writes it: bare where that is allowed, otherwise in quotes."""
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if bare else toml(name)
