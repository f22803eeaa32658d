"""Durations as people write them: 90, 90s, 15m, 2h, 1d12h. Standard library only."""

from __future__ import annotations

import re
import time

TIME_LIMIT = "time limit"  # how the reason begins where a time limit has ended a job
UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
PARTS = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


def seconds_of(text: str) -> float:
    """Return the seconds that a text means.

    A number without a unit is in seconds. Beside other parts each needs its unit: 1h30 may be thirty minutes, or seconds.

    >>> [seconds_of(text) for text in ("90", "1.5s", "15m", "2h", "1d12h")]
    [90.0, 1.5, 900.0, 7200.0, 129600.0]
    """
    match = PARTS.fullmatch(text.strip().lower())
    if match is None or not any(match.groups()):
        raise ValueError("is no duration; write it like 90s, 15m, 2h or 1d12h")
    if any(match.groups()[:-1]) and match[4] and not text.strip().lower().endswith("s"):
        raise ValueError(f"ends without a unit; write {text.strip()}m or {text.strip()}s")
    return float(sum(float(part) * size for part, size in zip(match.groups(), UNITS.values(), strict=True) if part))


def coming(text: str) -> float:
    """Read a time that is to come: in how long (2h), a date, or a date with a time of day."""
    if text == "now":
        return time.time()
    try:
        return time.time() + seconds_of(text)
    except ValueError:
        from datetime import datetime

        try:
            return datetime.fromisoformat(text).timestamp()
        except ValueError:
            raise ValueError("is no time; write in how long (2h), a date (2026-01-31 12:00) or now") from None


def in_words(seconds: float) -> str:
    """Return a duration with its two largest units.

    >>> [in_words(seconds) for seconds in (0.25, 2, 90, 7200, 129_600)]
    ['0.25 s', '2 s', '1 min 30 s', '2 h', '1 d 12 h']
    """
    if seconds < 60:
        return f"{seconds:.2f}".rstrip("0").rstrip(".") + " s"
    left, parts = round(seconds), []
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])


def over_time(seconds: float) -> str:
    """Return the reason of a job that its time limit has ended.

    >>> over_time(2)
    'time limit of 2 s exceeded'
    """
    return f"{TIME_LIMIT} of {in_words(seconds)} exceeded"
