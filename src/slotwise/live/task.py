"""The program of a job of `slotwise.live.Executor`: `python task.py CALL RESULT` calls a pickled function and writes what came of it.

It runs with whatever Python the job has: it imports nothing of Slotwise. Formats: the call is two pickles, the search path of modules and the
function with its arguments; the result is one pickle, (True, value) or (False, exception, traceback).
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from typing import Any, BinaryIO


def open_own(path: str) -> BinaryIO:
    """Open a file for reading. Raise PermissionError unless it belongs to this user: reading a pickle executes what it says."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        raise PermissionError(f"{path} belongs to another user")
    return open(descriptor, "rb")


def outcome_of(path: str) -> tuple[Any, ...]:
    """Return what came of the call in a file."""
    try:
        with open_own(path) as file:
            sys.path += [one for one in pickle.load(file) if one not in sys.path]
            function, arguments, keywords = pickle.load(file)
        return True, function(*arguments, **keywords)
    except BaseException as error:
        return False, error, traceback.format_exc()


def pickled(outcome: tuple[Any, ...]) -> bytes:
    """Return an outcome as bytes. What cannot be pickled is told in words."""
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(outcome)
        if not outcome[0]:
            pickle.loads(data)  # an exception with arguments of its own can be written and not be read
        return data
    except Exception as error:
        what = f"the result cannot be pickled: {error!r}" if outcome[0] else f"{outcome[1]!r} (not picklable)"
        return pickle.dumps((False, RuntimeError(what), "" if outcome[0] else outcome[2]))


def main(call: str, result: str) -> int:
    """Call the function; the exit code is 1 if it raised an exception."""
    outcome = outcome_of(call)
    if not outcome[0]:
        print(outcome[2], file=sys.stderr, end="")
    unfinished = f"{result}.{os.getpid()}"
    with open(unfinished, "wb") as file:
        file.write(pickled(outcome))
    os.replace(unfinished, result)  # whole or not there, also if the job is killed
    return 0 if outcome[0] else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
