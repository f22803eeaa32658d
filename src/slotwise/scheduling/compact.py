"""Situations, and what goes with them, as text: JSON, compressed where it is large. A million jobs are a hundred megabytes otherwise."""

from __future__ import annotations

import json
import zlib
from base64 import b85decode, b85encode
from typing import Any

LARGE = 1_000_000  # characters of JSON above which it is compressed
MARK = "zlib85:"


def packed(values: dict[str, Any]) -> str:
    """Return the values as text that both databases keep."""
    text = json.dumps(values, separators=(",", ":"), allow_nan=False)
    return text if len(text) < LARGE else MARK + b85encode(zlib.compress(text.encode(), 1)).decode()


def unpacked(text: str) -> dict[str, Any]:
    """Return the values that `packed` took. Raise a ValueError if the text is damaged."""
    if text.startswith(MARK):
        try:
            text = zlib.decompress(b85decode(text[len(MARK) :])).decode()
        except zlib.error as error:
            raise ValueError(str(error)) from None
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError("is no object")
    return values
