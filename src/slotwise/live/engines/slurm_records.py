"""Files that say what Slurm may forget: which attempts began, how they ended, and which users' jobs were released.

A job of ours runs inside a small shell script. It makes a file before the command, which can be made once only (at most one execution), and
another with the true exit code after it. Users' own jobs do the same in a folder that all can write to, where the site has installed
packaging/slurm/job_submit.lua. Before a user's job is released that is written down here, too.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from slotwise.live.engines.environment import told
from slotwise.live.engines.protocol import Attempt, Start

CLAIMS, EXITS, RELEASED, OUTPUT, PROCESSES = "claims", "exits", "released", "output", "processes"
# Seconds that files of settled attempts are kept: a controller that comes back from an old state might start the
# attempts again.
KEPT_SECONDS = 3600.0
TAKEN_BACK = "taken back"
# Prefix of the comment of users' jobs that keep records. Their files carry the same word.
MARK = re.compile(r"slotwise-records=([0-9a-f]+)\b")


class Foreign(NamedTuple):
    """A user's own job."""

    id: str
    submitted: int
    user: int
    records: str
    """it says itself when it begins and ends, in files that carry this word; empty: it does not"""
    memory: float
    """megabytes, where it asked for none (which means all to Slurm) and we have chosen"""
    released: float = 0.0
    """when we did so"""


class SlurmRecords:
    """`folder` is ours and seen by the nodes under the same name; `shared` is for users' jobs, and all can write to it."""

    def __init__(self, folder: Path, shared: Path | None) -> None:
        self.folder, self.shared = folder, shared
        self.identity = self._holder = ""

    def open(self) -> None:
        """Make what is missing. The identity keeps jobs of two services on one Slurm apart."""
        for name in (CLAIMS, EXITS, RELEASED, OUTPUT, PROCESSES):
            (self.folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / "identity"
        if not path.exists():
            write_once(path, os.urandom(4).hex())
        self.identity = path.read_text().strip()
        self._holder = os.urandom(8).hex()
        unfinished = self.folder / f"holder.{self._holder}"
        unfinished.write_text(self._holder)
        unfinished.replace(self.folder / "holder")

    def held(self) -> bool:
        """Whether no other service has opened them since: one that hung and has woken up must leave jobs alone."""
        return (self.folder / "holder").read_text() == self._holder

    def name(self, key: Attempt) -> str:
        """What an attempt is called in Slurm and here."""
        return f"slotwise-{self.identity}-{key[0]}-{key[1]}"

    def ours(self, name: str) -> bool:
        """Whether a job in Slurm is called like one of ours."""
        return name.startswith(f"slotwise-{self.identity}-")

    def changed(self) -> tuple[int, ...]:
        """Differs from before when something has begun or ended."""
        folders = [self.folder / CLAIMS, self.folder / EXITS, *([self.shared] if self.shared else [])]
        return tuple(folder.stat().st_mtime_ns if folder.exists() else 0 for folder in folders)

    # -- our own attempts ---------------------------------------------------------------------------------------

    def claimed(self, key: Attempt) -> bool:
        """Whether it was begun, or may not be begun any more."""
        return (self.folder / CLAIMS / self.name(key)).exists()

    def claim(self, key: Attempt) -> bool:
        """Take the right to execute it away, for good; False: it has begun."""
        return write_once(self.folder / CLAIMS / self.name(key), TAKEN_BACK) or self.taken_back(key)

    def taken_back(self, key: Attempt) -> bool:
        """Whether that was done."""
        try:
            return (self.folder / CLAIMS / self.name(key)).read_text() == TAKEN_BACK
        except FileNotFoundError:
            return False

    def exit_code(self, key: Attempt) -> int | None:
        """How it ended."""
        return read_code(self.folder / EXITS / self.name(key))

    def exit_time(self, key: Attempt, job: Foreign | None) -> float:
        """When it ended, by the file that says how; now, if there is none."""
        path = self.folder / EXITS / self.name(key) if job is None else self._shared(job, "ended")
        try:
            return time.time() if path is None else min(time.time(), path.stat().st_mtime)
        except OSError:
            return time.time()

    def output(self, key: Attempt) -> Path:
        """Where its output goes."""
        return self.folder / OUTPUT / self.name(key)

    def script(self, start: Start) -> str:
        """A claim, the command, and its exit code on the disk. The shell outlives SIGTERM, which it hands on, so that
        the code is the one that the command makes of it.

        A shell whose `wait` is interrupted by a signal just as the command ends tells the signal instead of the code. So an inner shell
        runs the command in the foreground and writes the code; the outer one only hands signals on, to the process in the file `.pid`.
        """
        key = start.job, start.attempt
        claim, end = (shlex.quote(str(self.folder / kind / self.name(key))) for kind in (CLAIMS, EXITS))
        pid, stop = (
            shlex.quote(str(self.folder / PROCESSES / f"{self.name(key)}{what}")) for what in ("", ".stop")
        )
        environment = {
            "PATH": os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin"),
            **start.spec.get("env", {}),
            **told(start),
        }
        plain = {name: value for name, value in environment.items() if name.isidentifier() and name.isascii()}
        setting = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in plain.items())
        others = [f"{name}={value}" for name, value in environment.items() if name not in plain]
        command = shlex.join([*(["env", *others] if others else []), *start.spec["argv"]])
        folder = shlex.quote(start.spec.get("cwd") or os.path.expanduser("~"))
        return f"""#!/bin/sh
if ! (set -C; : > {claim}) 2>/dev/null; then
    [ -e {claim} ] && exit 0  # it was executed before
    echo "slotwise: cannot write {claim}" >&2
    exit 1
fi
unset SLURM_JWT
hand_on() {{
    : > {stop}
    [ ! -s {pid} ] || kill -TERM "$(cat {pid})" 2>/dev/null
}}
trap hand_on TERM
{setting}
if cd -- {folder}; then
    (
        trap : TERM
        sh -c 'echo $$ > "$0"; [ ! -e "$0.stop" ] || exit 143; exec "$@"' {pid} {command}
        echo $? > {end}.new
    ) &
    inner=$!
    while kill -0 "$inner" 2>/dev/null; do
        wait "$inner"
    done
    code=$(cat {end}.new 2>/dev/null || echo 137)  # the inner shell was killed
else
    code=125
fi
rm -f {pid} {stop}
echo $code > {end}.new
ln {end}.new {end}  # now it is known, and what comes next is on its way while the disk is slow
sync {end}.new
rm -f {end}.new
exit $code
"""

    # -- users' own jobs ----------------------------------------------------------------------------------------

    def release(self, key: Attempt, job: Foreign) -> None:
        """Write down that a user's job is about to be released."""
        path = self.folder / RELEASED / self.name(key)
        unfinished = path.with_suffix(".new")
        with open(unfinished, "w") as file:
            json.dump(job._replace(released=time.time()), file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)

    def released(self, key: Attempt) -> Foreign | None:
        """The user's job that was released as this attempt."""
        try:
            return Foreign(*json.loads((self.folder / RELEASED / self.name(key)).read_text()))
        except FileNotFoundError:
            return None

    def began(self, job: Foreign) -> bool:
        """Whether a user's job says that it began."""
        return self._shared(job, "began") is not None

    def again(self, job: Foreign) -> bool:
        """Whether Slurm has started it a second time, in vain."""
        return self._shared(job, "again") is not None

    def ended(self, job: Foreign) -> int | None:
        """How a user's job says that it ended."""
        path = self._shared(job, "ended")
        return None if path is None else read_code(path)

    def _shared(self, job: Foreign, what: str) -> Path | None:
        if self.shared is None or not job.records:
            return None
        path = self.shared / f"{job.id}-{job.records}.{what}"
        try:
            return path if path.stat().st_uid == job.user else None  # another user's file proves nothing
        except OSError:
            return None

    # -- the end ------------------------------------------------------------------------------------------------

    def forget(self, busy: Collection[str]) -> None:
        """Drop files of attempts that were settled long ago, except those of `busy` names."""
        before = time.time() - KEPT_SECONDS
        for kind in (CLAIMS, EXITS, RELEASED, PROCESSES):
            for path in (self.folder / kind).iterdir():
                if path.name not in busy and path.stat().st_mtime < before:
                    path.unlink(missing_ok=True)


def living_jobs(folder: Path) -> set[Attempt]:
    """Return the attempts that began from a folder and have not said how they ended."""
    claims, exits = folder / CLAIMS, folder / EXITS
    began = {one.name for one in claims.iterdir() if one.read_text() != TAKEN_BACK} if claims.is_dir() else set()
    ended = {one.name for one in exits.iterdir()} if exits.is_dir() else set()
    found = [re.fullmatch(r"slotwise-[0-9a-f]+-(\d+)-(\d+)", name) for name in began - ended]
    return {(int(one[1]), int(one[2])) for one in found if one is not None}


def write_once(path: Path, text: str) -> bool:
    """Make a file that is not there; False: it is."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    with open(file, "w") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())
    return True


def read_code(path: Path) -> int | None:
    """An exit code that a script wrote."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
