"""How a virtual machine ended: its guest's own word on the console if there is one, else what the host knows."""

from __future__ import annotations

import re

from slotwise.live.durations import over_time
from slotwise.live.engines.libvirt.connection import (
    BY_GUEST,
    CRASHED,
    CRASHED_STATE,
    DESTROYED,
    FAILED,
    MIGRATED,
    SeenDomain,
)
from slotwise.live.engines.libvirt.marks import Mark
from slotwise.live.engines.protocol import Ended, Lost

EXIT = re.compile(rb"^slotwise-exit: (\d{1,3})\r?$", re.MULTILINE)
PANIC = b"Kernel panic - not syncing"
POWER_DOWN = b"reboot: Power down"
STOPPED, KILLED, ABORTED = -15, -9, -6  # exit codes as of a process that SIGTERM, SIGKILL or SIGABRT has ended
NOT_FOUND, NOT_STARTED = 127, 126  # as a shell tells that there is no such command, and that it cannot be executed


def exit_status(console: bytes) -> int | None:
    """Return the exit status that the guest wrote last, as the line `slotwise-exit: N`."""
    found = EXIT.findall(console)
    return int(found[-1]) if found else None


def end_of(mark: Mark, seen: SeenDomain, console: bytes, now: float, *, stop: bool) -> Ended | Lost:
    """Return the end of an attempt whose domain does not run any more; `console` is the last part of what it wrote."""
    key, begun = mark.key, mark.begun
    reason = seen.reason if mark.pulled is None or seen.reason == BY_GUEST else DESTROYED
    code = exit_status(console)
    if code is not None:
        return Ended(*key, code, now, f"the guest told exit status {code}", begun)
    ended_by_us = reason in (BY_GUEST, DESTROYED)
    if mark.time is not None and begun is not None and now >= begun + mark.time and ended_by_us:
        how = "shut down" if reason == BY_GUEST else "destroyed"
        return Ended(*key, STOPPED, now, f"{over_time(mark.time)}: {how}", begun, over_time=True)
    if reason in (CRASHED, FAILED) or (seen.state == CRASHED_STATE and mark.pulled is None):
        how = "crashed" if reason == CRASHED else "crashed: its QEMU process has gone"
        return Ended(*key, ABORTED, now, how, begun)
    if reason == DESTROYED:
        why = "destroyed after it was asked to shut down" if stop else "destroyed on its host"
        return Ended(*key, KILLED, now, why, begun, by_user=True)
    if PANIC in console:  # which looks like a power-off to the host
        return Ended(*key, ABORTED, now, "crashed: its kernel panicked", begun)
    if reason == BY_GUEST:
        return Ended(*key, STOPPED if stop else 0, now, "shut down" if stop else "powered off", begun)
    if POWER_DOWN in console:
        return Ended(*key, STOPPED if stop else 0, now, "powered off, as its console says", begun)
    if reason == MIGRATED:
        return Lost(*key, "it was migrated to another host, not by this service")
    return Lost(*key, "it ended while libvirtd was away, which does not know how")
