"""`python -m slotwise` and the `slotwise` command."""

from __future__ import annotations

import sys


def main() -> None:
    """The command. Importing it takes a moment, in which somebody may press Ctrl-C."""
    try:
        from slotwise.cli.main import main as command
    except KeyboardInterrupt:
        sys.exit("slotwise: interrupted")
    command()


if __name__ == "__main__":
    main()
