"""What a job needs, as people write it."""

from __future__ import annotations

import pytest

from slotwise.errors import InputError
from slotwise.live.needs import parse_needs


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [("1500", 1500), ("1.5G", 1500), ("1Gi", 1073.741824), ("1gib", 1073.741824), ("512K", 0.512), ("1T", 1e6)],
)
def test_units_of_memory(text: str, megabytes: float) -> None:
    assert parse_needs(f"cpu=2, memory={text}") == {"cpu": 2.0, "memory": megabytes}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("cpu", "no need"), ("cpu=", "no need"), ("=1", "no need"), ("", "no need"), ("cpu=1,", "no need"), ("cpu=-1", "no need"),
        ("cpu=1e3", "no need"), ("memory=4B", "no need"), ("memory=1GiX", "no need"), ("cpu=1,cpu=1", "names cpu twice"),
        ("cpu=1, cpu=2", "names cpu twice"), ("cpu=2G", "no unit"), ("cpu=\u0661", "no need"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        parse_needs(text)
