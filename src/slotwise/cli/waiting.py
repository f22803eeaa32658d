"""Waiting for jobs: number and state while they wait, the output as it comes, why they ended, and the exit code.

Exit codes of a command that waits for jobs:

| code | meaning |
|---|---|
| 0 | the job completed |
| 1 to 123, 128 to 255 | the exit code of the job; 128 + N if signal N ended it |
| 124 | the job exceeded its time limit |
| 125 | there is no exit code: not submitted, cancelled before its start, lost, or the service does not answer |
| 126, 127 | the command cannot be executed, or does not exist |
| 130 | Ctrl-C ended the waiting; the job goes on |

124, 125 and 130 are reserved: a job that exits with one of them itself is reported as 1, and a line on standard error says so.
Of several jobs, the largest code counts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from slotwise.display.numbers import printable, terminal_output
from slotwise.live.durations import TIME_LIMIT

if TYPE_CHECKING:
    from slotwise.live.client import Client, Job

TIMED_OUT, NO_CODE, INTERRUPTED = 124, 125, 130
RESERVED = (TIMED_OUT, NO_CODE, INTERRUPTED)


def named(numbers: Sequence[int]) -> str:
    """Return a name for jobs that were submitted together."""
    return f"job {numbers[0]}" if len(numbers) == 1 else f"jobs {numbers[0]} to {numbers[-1]}"


def write(piece: bytes) -> None:
    """Pass output of a job on: to a file or a pipe as it is, to a terminal so that it cannot drive the terminal."""
    sys.stdout.buffer.write(terminal_output(piece) if sys.stdout.isatty() else piece)
    sys.stdout.buffer.flush()


def tell(text: str) -> None:
    """Print a line about a job on standard error."""
    print(f"slotwise: {printable(text)}", file=sys.stderr, flush=True)


class Waiting:
    """Waits for jobs that were submitted together. Ctrl-C ends the waiting, not the jobs."""

    def __init__(self, client: Client, numbers: Sequence[int], *, quiet: bool = False) -> None:
        self.client, self.numbers, self.quiet = client, list(numbers), quiet
        self._told: tuple[str, str | None] | None = None

    def to_the_end(self, *, show: bool) -> list[Job]:
        """Return the jobs when all have ended; with `show`, print the output of a single one as it comes."""
        try:
            if show:
                for piece in self.client.output(
                    self.numbers[0], follow=True, on_state=self.say_state, on_away=self.say_away
                ):
                    write(piece)
            elif not self.quiet:
                tell(f"{named(self.numbers)}: submitted")
            return self.client.wait(self.numbers)
        except KeyboardInterrupt:
            goes, it = ("goes", "it") if len(self.numbers) == 1 else ("go", "them")
            tell(f"{named(self.numbers)} {goes} on; `slotwise cancel {self.numbers[0]}` ends {it}")
            raise

    def say_state(self, state: str, server: str | None) -> None:
        """Tell the state once it has changed."""
        if not self.quiet and (state, server) != self._told and state in ("held", "waiting", "running"):
            self._told = state, server
            tell(f"{named(self.numbers)}: {state}" + (f" on {server}" if server and state == "running" else ""))

    def say_away(self, error: Exception) -> None:
        """Tell that the service does not answer."""
        if not self.quiet:
            tell(f"{error}; waiting for it")

    def exit_code(self, jobs: Sequence[Job]) -> int:
        """Return the largest exit code; say of each job that did not complete why."""
        for job in jobs:
            if job.state != "done" and not self.quiet:
                tell(why(job))
        return max(map(code_of, jobs), default=0)


def why(job: Job) -> str:
    """Return how a job ended, in one line."""
    if job.exit_code is None:
        how = ""
    elif job.exit_code < 0:
        how = f", signal {-job.exit_code}"
    else:
        how = f", exit code {job.exit_code}"
    reported = (
        " (reported as 1)" if how and shell_code(job.exit_code or 0) in RESERVED and not over_time(job) else ""
    )
    return f"job {job.id} {job.state}{how}{reported}" + (f": {job.reason}" if job.reason else "")


def over_time(job: Job) -> bool:
    """Return whether the time limit ended a job."""
    return job.state == "failed" and (job.reason or "").startswith(TIME_LIMIT)


def code_of(job: Job) -> int:
    """Return the exit code for how a job ended."""
    if over_time(job):
        return TIMED_OUT
    if job.exit_code is None:
        return 0 if job.state == "done" else NO_CODE
    code = shell_code(job.exit_code)
    return 1 if code in RESERVED else code


def shell_code(code: int) -> int:
    """Return an exit code as shells give it: 128 + N for signal N."""
    return code if code >= 0 else 128 - code
