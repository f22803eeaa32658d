"""Standard streams of a job to and from files, with patterns in their names.

The shell that opens the files runs as the job's user, in its working directory and under its limits, on whatever engine: a job reads and writes
what its user may.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

PATTERN = re.compile(r"%(.?)")
KEYS = ("stdin", "stdout", "stderr")
APPEND = "append"  # of a submission: files of output are not emptied first
SCRIPT = """\
cannot() { echo "slotwise: cannot open $1" >&2; exit 126; }
[ -z "$1" ] || (: <"$1") || cannot "$1"
[ -z "$2" ] || (: >"$2") || cannot "$2"
[ -z "$3" ] || [ "$3" = "$2" ] || (: >"$3") || cannot "$3"
[ -z "$1" ] || exec <"$1"
[ -z "$2" ] || exec >"$2"
[ -z "$3" ] || if [ "$3" = "$2" ]; then exec 2>&1; else exec 2>"$3"; fi
shift 3
exec "$@"
"""  # $1, $2, $3: files of standard input, output and error, each may be empty; then the command


def check(pattern: str) -> None:
    """Raise ValueError for a pattern that `filled` does not know."""
    for letter in PATTERN.findall(pattern):
        if letter not in tuple("jaAt%"):
            raise ValueError(
                f"%{letter} is no pattern; use %j (job), %a (array index), %A (array), %t (attempt) or %%"
            )


def filled(pattern: str, job: int, attempt: int, array: int | None, index: int | None) -> str:
    """Return a file name without patterns. A job of no array is its own array, with index 0.

    >>> filled("out-%A_%a.%t 100%%", 8, 1, 7, 2)
    'out-7_2.1 100%'
    """
    values = {"j": job, "t": attempt, "A": job if array is None else array, "a": index or 0, "%": "%"}
    return PATTERN.sub(lambda match: str(values[match[1]]), pattern)


def redirected(
    spec: Mapping[str, Any], job: int, attempt: int, array: int | None = None, index: int | None = None
) -> list[str]:
    """Return the command of a job, with its standard streams opened if files are named for them."""
    argv = list(spec.get("argv", ()))
    if not any(spec.get(key) for key in KEYS):
        return argv
    files = [filled(spec.get(key) or "", job, attempt, array, index) for key in KEYS]
    script = SCRIPT.replace('>"$', '>>"$') if spec.get(APPEND) else SCRIPT
    for place, key in ((2, "stdout"), (3, "stderr")):
        if "%" in os.path.dirname(spec.get(key) or ""):  # a folder that cannot be made before the job has a number
            script = f'mkdir -p -- "$(dirname -- "${place}")"\n{script}'
    return ["/bin/sh", "-c", script, "sh", *files, *argv]
