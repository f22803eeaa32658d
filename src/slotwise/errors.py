"""The errors a user can meet: one readable line that says what is wrong, where, and what would be right."""

from __future__ import annotations


class SlotwiseError(Exception):
    """The root of every error that Slotwise raises on purpose; `exit_code` is what the command line makes of it."""

    exit_code = 1


class InputError(SlotwiseError):
    """Bad input (exit code 2): what is wrong, where it stands, and what would be right.

    >>> str(InputError("is negative", where="jobs.toml: types[0].rate", remedy="use a rate of 0 or more"))
    'jobs.toml: types[0].rate: is negative; use a rate of 0 or more'
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what = what
        self.where = where
        self.remedy = remedy
        super().__init__(": ".join(part for part in (where, what) if part) + (f"; {remedy}" if remedy else ""))


class SlotwiseWarning(UserWarning):
    """What a user should know although the work goes on, such as jobs that were left out."""
