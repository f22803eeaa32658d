"""The verbs of a scheduler: submit, complete, drain, ... Each is a thin call of `apply` with the event of that name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping

from slotwise.scheduling.events import (
    Amount,
    Cancel,
    Complete,
    Drain,
    Event,
    Fail,
    Join,
    Outcome,
    Placement,
    Remove,
    Requeue,
    Resume,
    Stop,
    Submit,
    Tick,
)
from slotwise.scheduling.faults import telling


class Verbs(ABC):
    """For programs that call functions rather than pass values."""

    @abstractmethod
    def apply(self, event: Event) -> Outcome:
        """Let the event happen."""

    @abstractmethod
    def _when(self, now: float | None) -> float:
        """The time of an event, where none is given."""

    # -- jobs -------------------------------------------------------------------------------------------------------

    def submit(
        self,
        job: Hashable,
        job_type: str,
        *,
        demand: Mapping[str, Amount] | None = None,
        duration: float | None = None,
        now: float | None = None,
    ) -> list[Placement]:
        """A job arrives. `demand` is what it really asks for, where that is less than its type's; clairvoyant policies need
        `duration` and `now`, to others it is as if no time had passed where `now` is not given."""
        return self._placements(Submit(job, job_type, self._when(now), demand, duration))

    def complete(self, job: Hashable, *, now: float | None = None, attempt: int | None = None) -> list[Placement]:
        """A running job has ended. One that was placed more than once needs `attempt`: which of them has ended."""
        return self._placements(Complete(job, self._when(now), attempt))

    def stop(self, job: Hashable, *, now: float | None = None, attempt: int | None = None) -> list[Placement]:
        """A running job was stopped by its user's wish: nothing is learnt from how long it ran."""
        return self._placements(Stop(job, self._when(now), attempt))

    def requeue(self, job: Hashable, *, now: float | None = None, attempt: int | None = None) -> list[Placement]:
        """A placement could not be carried out: the job waits again, in its old place in the line, and may be placed anew."""
        return self._placements(Requeue(job, self._when(now), attempt))

    def cancel(self, job: Hashable, *, now: float | None = None) -> list[Placement]:
        """A waiting job is withdrawn; a running one cannot be, since nothing here is interrupted."""
        return self._placements(Cancel(job, self._when(now)))

    def tick(self, *, now: float | None = None) -> list[Placement]:
        """The policy's own clock has rung; call it after exponential times of rate `tick_rate` where that is above 0."""
        return self._placements(Tick(self._when(now)))

    # -- servers ----------------------------------------------------------------------------------------------------

    def add_server(self, server: Hashable, server_class: str, *, now: float | None = None) -> list[Placement]:
        """A server of a class joins; one that had failed, or was drained and is empty, comes back."""
        return self._placements(Join(server, server_class, self._when(now)))

    def resume_server(self, server: Hashable, *, now: float | None = None) -> list[Placement]:
        """A server that drains takes jobs again, whatever it holds."""
        return self._placements(Resume(server, self._when(now)))

    def drain_server(self, server: Hashable, *, now: float | None = None) -> list[Placement]:
        """The server takes no more jobs; those on it run to their end."""
        return self._placements(Drain(server, self._when(now)))

    def remove_server(self, server: Hashable, *, now: float | None = None) -> list[Placement]:
        """A server that holds no jobs is forgotten."""
        return self._placements(Remove(server, self._when(now)))

    def fail_server(self, server: Hashable, *, now: float | None = None) -> Outcome:
        """The server is lost; its jobs wait again, in their old places in the line, and may start elsewhere."""
        outcome = self.apply(Fail(server, self._when(now)))
        if outcome.fault is not None:
            raise telling(outcome)
        return outcome

    def _placements(self, event: Event) -> list[Placement]:
        """Return the placements; raise a fault as an exception that holds them."""
        outcome = self.apply(event)
        if outcome.fault is not None:
            raise telling(outcome)
        return list(outcome.placements)
