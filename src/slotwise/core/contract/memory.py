"""What a policy remembers between events: declared once, by name, beside the kernels that use it.

    MEMORY = Memory()
    SEEN = MEMORY.count("seen")                        # policy_ints(s)[SEEN], one whole number
    ALPHA = MEMORY.number("alpha", kept=False)         # policy_floats(s)[ALPHA], an option that `prepare` writes
    KNOWN = MEMORY.block("known", 4096)                # policy_floats(s)[KNOWN + n], room for so many numbers
    ENDED = MEMORY.numbers("ended", per="type")        # float_field(s, ENDED)[j], a number for each type
    TURNS = MEMORY.counts("turns", per="server", columns=2)  # int_table(s, TURNS)[server, k]

What a declaration returns is a place: a constant to the compiler. A `kept` field is what the policy has learnt.
Situations hold it under its name, by the names of types, resources and servers. So it can be read back when types
and servers have changed. The rest are options, and room to work in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from slotwise.core.store import Store

# one number for each of these, or so many
Per = Literal["type", "resource", "server"] | int | Callable[["Store"], int]
Columns = int | Literal["type", "resource"] | Callable[["Store"], int]


@dataclass(frozen=True)
class Scalar:
    """One number, or so many that are not kept."""

    name: str
    kept: bool
    start: float
    at: int
    size: int = 1


@dataclass(frozen=True)
class Field:
    """Some numbers of one kind."""

    name: str
    real: bool
    per: Per
    columns: Columns | None
    kept: bool
    start: float
    names_servers: bool = False
    """the values are server numbers plus 1; 0: none"""


class Memory:
    """The fields of a policy, in the order of their declaration. `extends` is the memory of kernels that it uses."""

    def __init__(self, extends: Memory | None = None) -> None:
        self.whole: list[Scalar] = list(extends.whole) if extends else []
        self.real: list[Scalar] = list(extends.real) if extends else []
        self.fields: list[Field] = list(extends.fields) if extends else []

    def count(self, name: str, *, kept: bool = True, start: int = 0) -> int:
        """Declare a whole number. Return its place in policy_ints(s)."""
        return self._scalar(self.whole, name, kept, start)

    def number(self, name: str, *, kept: bool = True, start: float = 0.0) -> int:
        """Declare a number. Return its place in policy_floats(s)."""
        return self._scalar(self.real, name, kept, start)

    def block(self, name: str, size: int) -> int:
        """Declare some numbers that are not kept, quicker to read than a field. Return the place of the first in
        policy_floats(s)."""
        return self._scalar(self.real, name, False, 0.0, size)

    def counts(
        self, name: str, *, per: Per, columns: Columns | None = None, kept: bool = True, start: int = 0
    ) -> int:
        """Declare whole numbers. Return the field for int_field(s, field), or for int_table if it has columns."""
        return self._field(Field(name, False, per, columns, kept, start))

    def numbers(
        self, name: str, *, per: Per, columns: Columns | None = None, kept: bool = True, start: float = 0.0
    ) -> int:
        """Declare numbers. Return the field for float_field(s, field), or for float_table if it has columns."""
        return self._field(Field(name, True, per, columns, kept, start))

    def servers(self, name: str, *, per: Per) -> int:
        """Declare servers, each as its number plus 1 (0: none). Return the field for int_field(s, field)."""
        return self._field(Field(name, False, per, None, True, 0, names_servers=True))

    def _scalar(self, among: list[Scalar], name: str, kept: bool, start: float, size: int = 1) -> int:
        self._check(name)
        at = sum(other.size for other in among)
        among.append(Scalar(name, kept, start, at, size))
        return at

    def _field(self, field: Field) -> int:
        self._check(field.name)
        self.fields.append(field)
        return len(self.fields) - 1

    def _check(self, name: str) -> None:
        taken: list[Any] = [*self.whole, *self.real, *self.fields]
        if name in {other.name for other in taken}:
            raise ValueError(f"the memory has a field {name!r} already")
