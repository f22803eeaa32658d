"""Records of numbers and array addresses, as the scheduling state is one, and the arrays behind them."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray


def dtype_of(fields: type) -> Any:
    """Return the record type with the fields that a class annotates: whole numbers and floats."""
    kinds = [(name, "f8" if kind == "float" else "i8") for name, kind in fields.__annotations__.items()]
    return np.dtype((np.record, kinds))


class RecordStore:
    """One record, and the arrays that its `at_...` fields point at, which live as long as the store does."""

    def __init__(self, dtype: Any) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        self.memory = np.zeros(1, dtype)
        self.record: Any = cast(Any, self.memory[0])

    def put(self, name: str, values: NDArray[Any]) -> None:
        """Keep an array, and its address in the record."""
        self.arrays[name] = values
        setattr(self.record, f"at_{name}", values.ctypes.data)

    def lengthen(self, name: str, larger: NDArray[Any]) -> None:
        """Take the place of a shorter record, and keep its values."""
        old = self.arrays.get(name)
        if old is not None:
            larger[: len(old)] = old
        self.put(name, larger)
