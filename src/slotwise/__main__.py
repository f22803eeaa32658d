"""`python -m slotwise` and the `slotwise` command."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command. Ctrl-C may come during the import."""
    gc.disable()  # until all is imported: nothing of it is garbage, and looking for some takes a tenth of the time
    try:
        from slotwise.cli.main import main as command
    except KeyboardInterrupt:
        print("slotwise: interrupted", file=sys.stderr)
        sys.exit(130)
    command()


if __name__ == "__main__":
    main()
