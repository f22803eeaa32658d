"""Batch scripts: their directives, and the command that executes a script in a job with Slurm's variables."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from slotwise.errors import InputError

DIRECTIVE = "#SBATCH"
LONGEST = 131_072  # bytes of one argument of a command, on Linux
# The script travels in the command line, since servers need not see the caller's files. The shell writes it to a file without a name, so
# that nothing has to be removed when the script ends; then it becomes the interpreter, which gets the signals of the job.
# $1: a signal that the script does not get, or nothing; $2: the script; then the interpreter, the file and the script's arguments.
WRAPPER = """\
[ -z "$1" ] || trap '' "$1"
export SLURM_JOB_ID="$SLOTWISE_JOB_ID" SLURM_JOBID="$SLOTWISE_JOB_ID" SLURM_JOB_NODELIST="$SLOTWISE_SERVER_NAME"
export SLURM_NODELIST="$SLOTWISE_SERVER_NAME" SLURMD_NODENAME="$SLOTWISE_SERVER_NAME"
if [ -n "${SLOTWISE_ARRAY_INDEX-}" ]; then
    export SLURM_ARRAY_JOB_ID="$SLOTWISE_ARRAY_ID" SLURM_ARRAY_TASK_ID="$SLOTWISE_ARRAY_INDEX"
fi
[ "$SLOTWISE_ATTEMPT" = 1 ] || export SLURM_RESTART_COUNT="$((SLOTWISE_ATTEMPT - 1))"
file=$(umask 077; mktemp "${TMPDIR:-/tmp}/slurm_script.XXXXXX") && printf '%s' "$2" >"$file" && exec 9<"$file" && rm -f "$file" || {
    echo "sbatch: cannot write the script into ${TMPDIR:-/tmp}" >&2
    exit 126
}
shift 2
unset file
exec "$@"
"""
FILE = "/dev/fd/9"


def check(text: str, where: str) -> None:
    """Refuse what no node of Slurm could execute, and what is too long for a command line."""
    if not text.startswith("#!"):
        raise InputError(
            "does not look like a batch script",
            where=where,
            remedy="the first line must be #! and an interpreter, such as #!/bin/sh",
        )
    if "\r\n" in text:
        raise InputError(
            "has line breaks of DOS (\\r\\n)", where=where, remedy="convert them, for example with dos2unix"
        )
    if "\0" in text:
        raise InputError("has a null character", where=where)
    if len(text.encode()) >= LONGEST:
        raise InputError(
            f"has {len(text.encode()):,} bytes",
            where=where,
            remedy=f"a batch script has less than {LONGEST:,}: call a longer one from it",
        )


def directives(text: str, where: str) -> list[str]:
    """Return the words of the #SBATCH lines, which stand before the first command.

    >>> directives("#!/bin/sh\\n#SBATCH -J 'two words' # a name\\n\\necho\\n#SBATCH -n 2", "x")
    ['-J', 'two words']
    """
    found: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(DIRECTIVE):
            try:
                found += shlex.split(line[len(DIRECTIVE) :], comments=True)
            except ValueError as error:
                raise InputError(f"{line!r}: {error}", where=f"{where}, line {number}") from None
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return found


def command(text: str, arguments: Sequence[str], ignored_signal: str) -> list[str]:
    """Return the command of a job that executes a batch script."""
    interpreter = text.splitlines()[0].removeprefix("#!").split(None, 1)
    words = [one.strip() for one in interpreter] or ["/bin/sh"]
    return ["/bin/sh", "-c", WRAPPER, "slurm_script", ignored_signal, text, *words, FILE, *arguments]


def wrapped(line: str) -> str:
    """Return the script that --wrap means."""
    return f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{line}\n"
