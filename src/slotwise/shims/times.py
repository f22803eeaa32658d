"""Durations, times and amounts of memory as Slurm writes them."""

from __future__ import annotations

import re
import time
from datetime import datetime

MEBIBYTE = 1.048576  # megabytes
SIZES = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2}  # mebibytes; Slurm's units are powers of 1,024
NO_LIMIT = ("0", "UNLIMITED", "INFINITE", "-1")
CLOCK = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def limit_of(text: str) -> float | None:
    """Return the seconds of a time limit; None: no limit.

    >>> [limit_of(text) for text in ("90", "1:30", "01:00:00", "1-12", "1-0:30", "UNLIMITED")]
    [5400.0, 90.0, 3600.0, 129600.0, 88200.0, None]
    """
    if text.upper() in NO_LIMIT:
        return None
    match = CLOCK.fullmatch(text)
    if match is None:
        raise ValueError("is no time; write it like 90 (minutes), 1:30:00 or 2-12:00:00")
    days, first, second, third = (int(part) if part else 0 for part in match.groups())
    if match[1] or match[4]:
        hours, minutes, seconds = first, second, third
    else:
        hours, minutes, seconds = 0, first, second
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds) or None


def megabytes_of(text: str) -> float:
    """Return the megabytes (1,000,000 bytes) of an amount of memory; without a unit it is in mebibytes.

    >>> [round(megabytes_of(text), 1) for text in ("500", "4G", "4GB", "2000K")]
    [524.3, 4295.0, 4295.0, 2.0]
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT])?(?:I?B)?", text.strip().upper())
    if match is None:
        raise ValueError("is no amount of memory; write it like 500M or 4G")
    return float(match[1]) * SIZES[match[2] or "M"] * MEBIBYTE


def memory_shown(megabytes: float) -> str:
    """Return an amount of memory as Slurm shows it.

    >>> memory_shown(4294.967296), memory_shown(500)
    ('4G', '477M')
    """
    mebibytes = round(megabytes / MEBIBYTE)
    return f"{mebibytes // 1024}G" if mebibytes and mebibytes % 1024 == 0 else f"{mebibytes}M"


def duration_shown(seconds: float, *, long: bool = False) -> str:
    """Return a duration: as squeue shows it, or with `long` as sacct does.

    >>> duration_shown(75), duration_shown(90_061), duration_shown(75, long=True)
    ('1:15', '1-01:01:01', '00:01:15')
    """
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}-{hour:02}:{minute:02}:{second:02}"
    if hour or long:
        return f"{hour:02}:{minute:02}:{second:02}" if long else f"{hour}:{minute:02}:{second:02}"
    return f"{minute}:{second:02}"


def time_shown(moment: float | None, unknown: str) -> str:
    """Return a time of the wall clock, as in 2026-01-31T12:00:00."""
    return unknown if moment is None else time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(moment))


def moment_of(text: str) -> float:
    """Return the time that `sacct -S` or `-E` names: now, now-2days, a date, a time of today."""
    low = text.strip().lower()
    now = datetime.now()
    match = re.fullmatch(r"now(?:([+-])(\d+)(seconds?|minutes?|hours?|days?|weeks?)?)?", low)
    if match:
        unit = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}[(match[3] or "seconds")[0]]
        return now.timestamp() + (-1 if match[1] == "-" else 1) * int(match[2] or 0) * unit
    if low in ("today", "midnight"):
        return now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    for form in ("%H:%M:%S", "%H:%M", "%m/%d/%y", "%m/%d"):
        try:
            read = datetime.strptime(low, form)
        except ValueError:
            continue
        if ":" in form:
            read = read.replace(year=now.year, month=now.month, day=now.day)
        elif "%y" not in form:
            read = read.replace(year=now.year)
        return read.timestamp()
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ValueError("is no time; write it like 2026-01-31T12:00:00, 12:00 or now-2days") from None
