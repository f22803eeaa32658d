"""Statements that results may or may not bear out, and the verdict on them with its evidence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Standing(StrEnum):
    """How a statement fared."""

    HOLDS = "holds"
    IN_PART = "holds in part"
    FAILS = "does not hold here"
    UNTESTED = "not tested"


@dataclass(frozen=True)
class Claim:
    """A named statement with its verdict."""

    name: str
    statement: str
    verdict: Standing
    evidence: str
    """the figures that were measured"""
    because: str = ""
    """why it does not hold, or holds only in part, as far as the results tell"""

    @property
    def finding(self) -> str:
        """The verdict in a few words."""
        return f"{self.verdict}, because {self.because}" if self.because else str(self.verdict)
