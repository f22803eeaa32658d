"""The memory of a policy as plain data, by the names of types, resources and servers, and back.

A field per type or resource is a mapping from names, so that it survives new types; one per server is a list in the order of the
situation's servers. What the data lacks starts as the memory says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from slotwise.core.contract.memory import Field, Scalar
from slotwise.errors import InputError

if TYPE_CHECKING:
    from slotwise.core.store import Store


class Names(NamedTuple):
    """What the data calls things, and which rows of the state these are; -1: none is there any more."""

    types: Sequence[str]
    type_rows: Sequence[int]
    resources: Sequence[str]
    servers: Sequence[Any]
    server_rows: Sequence[int]


def read(store: Store, names: Names) -> dict[str, Any]:
    """Return what is kept, by name."""
    memory = store.policy.memory
    values: dict[str, Any] = {}
    for scalars, array in (
        (memory.whole, store.arrays["policy_ints"]),
        (memory.real, store.arrays["policy_floats"]),
    ):
        values |= {scalar.name: array[scalar.at].item() for scalar in scalars if scalar.kept}
    for field in memory.fields:
        if field.kept:
            values[field.name] = _read_field(store, field, names)
    return values


def write(store: Store, values: dict[str, Any], names: Names) -> None:
    """Put it back."""
    memory = store.policy.memory
    parts: list[Scalar | Field] = [*memory.whole, *memory.real, *memory.fields]
    known = {part.name for part in parts if part.kept}
    for name in values:
        if name not in known:
            raise damaged(store, name, f"{store.policy.label} keeps: {', '.join(sorted(known)) or 'nothing'}")
    for scalars, array in (
        (memory.whole, store.arrays["policy_ints"]),
        (memory.real, store.arrays["policy_floats"]),
    ):
        for scalar in scalars:
            if scalar.kept and scalar.name in values:
                try:
                    array[scalar.at] = values[scalar.name]
                except (TypeError, ValueError):
                    raise damaged(store, scalar.name, "it is one number") from None
    for field in memory.fields:
        if field.kept and field.name in values:
            try:
                _write_field(store, field, values[field.name], names)
            except (TypeError, ValueError, KeyError, IndexError, AttributeError):
                raise damaged(store, field.name, f"it is one entry for each {field.per}") from None


def damaged(store: Store, name: str, remedy: str) -> InputError:
    """Return the error for a policy whose kept values are not possible."""
    return InputError("cannot be read", where=f"situation.learnt.{name} of {store.policy.label}", remedy=remedy)


def _read_field(store: Store, field: Field, names: Names) -> Any:
    array = store.field(field)
    if field.names_servers:
        by_row = dict(zip(names.server_rows, names.servers, strict=True))
        rows: list[Any] = [by_row.get(int(number) - 1) for number in array]
    elif field.per == "server":
        return array[np.asarray(names.server_rows, np.int64)].tolist()
    else:
        rows = array.tolist()
    keys = {"type": names.types, "resource": names.resources}.get(str(field.per))
    return rows if keys is None else dict(zip(keys, rows, strict=True))


def _write_field(store: Store, field: Field, values: Any, names: Names) -> None:
    array: NDArray[Any] = store.field(field)
    row_of = dict(zip(names.servers, names.server_rows, strict=True)) if field.names_servers else {}

    def entry(value: Any) -> Any:
        return (row_of.get(value, -1) + 1 if value is not None else 0) if field.names_servers else value

    if field.per == "type":
        for name, row in zip(names.types, names.type_rows, strict=True):
            if row >= 0 and name in values:
                array[row] = entry(values[name])
    elif field.per == "resource":
        for row, name in enumerate(names.resources):
            array[row] = entry(values[name])
    elif field.per == "server":
        if len(values) != len(names.server_rows):
            raise ValueError
        array[np.asarray(names.server_rows, np.int64)] = np.asarray(values, array.dtype).reshape(
            len(values), *array.shape[1:]
        )
    else:
        array[:] = np.asarray([entry(value) for value in values], array.dtype)
