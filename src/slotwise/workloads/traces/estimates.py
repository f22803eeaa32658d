"""What an import says of users' estimates: how many are missing, absurd or too short.

Policies that know durations use estimates, so a user of a trace should know how good they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

# An estimate is absurd if it is this many times as long as the longest job of the trace. Users often request the longest time that a
# queue allows, which is near the longest job.
ABSURD = 10.0


@dataclass
class Estimates:
    """Counts of the estimates in tables of jobs, which come one after the other."""

    jobs: int = 0
    missing: int = 0
    too_short: int = 0
    """jobs that ran longer than their estimate"""
    longest_job: float = 0.0
    absurd: pl.Series = field(default_factory=lambda: pl.Series(dtype=pl.Float64))
    """the estimates that are absurd beside the jobs so far"""

    def add(self, jobs: pl.DataFrame) -> None:
        """Count the estimates of a table of jobs."""
        if "estimate" not in jobs.columns or not jobs.height:
            return
        estimate, duration = jobs["estimate"], jobs["duration"]
        self.jobs += jobs.height
        self.missing += estimate.null_count()
        self.too_short += int((duration > estimate).sum())
        self.longest_job = max(self.longest_job, float(duration.max()))  # type: ignore[arg-type]
        both = pl.concat([self.absurd, estimate.drop_nulls()])
        self.absurd = both.filter(both > ABSURD * self.longest_job)

    def notes(self) -> list[str]:
        """Return a sentence for each defect."""
        if not self.jobs:
            return []
        if self.missing == self.jobs:
            return ["no job has an estimate of its duration"]
        found = []
        if self.missing:
            share = f"{self.missing:,} of {self.jobs:,} jobs have no estimate"
            found.append(f"{share}; policies that use estimates take the longest estimate of the trace for them")
        if count := len(self.absurd):
            most = float(self.absurd.max())  # type: ignore[arg-type]
            verb = "estimate is" if count == 1 else "estimates are"
            found.append(
                f"{count:,} {verb} more than {ABSURD:g} times as long as the longest job ({self.longest_job:,.6g} s), "
                f"up to {most:,.10g} s"
            )
        if self.too_short:
            found.append(f"{self.too_short:,} of {self.jobs:,} jobs ran longer than their estimate")
        return found
