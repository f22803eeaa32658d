"""`python -m slotwise.shims sbatch ...`: what the scripts of `slotwise slurm-shims` call."""

from __future__ import annotations

import gc
import importlib
import sys

from slotwise._version import __version__
from slotwise.errors import SlotwiseError
from slotwise.live.patience import patiently
from slotwise.shims.install import COMMANDS
from slotwise.shims.waiting import AWAY, say_away

READS = ("squeue", "sacct", "scontrol")  # they change nothing, so they are repeated while the service restarts
INTERRUPTED = 130


def main(words: list[str]) -> int:
    """Execute a command of Slurm; its exit code."""
    command, *rest = words or [""]
    if command not in COMMANDS:
        print(f"slotwise: no shim is called {command!r}; there are: {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    if rest in (["--version"], ["-V"]):
        print(f"slurm-wlm (slotwise {__version__})")
        return 0
    act = importlib.import_module(f"slotwise.shims.{command}").main
    gc.enable()
    try:
        if command not in READS:
            return int(act(rest))
        for line in patiently(lambda: act(rest), say_away(command), AWAY):
            print(line)
        sys.stdout.flush()
    except SlotwiseError as error:
        print(f"{command}: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        sys.stdout = None
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
