"""`python -I -S supervisor FOLDER [--no-groups]`."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4)))
    from slotwise.live.engines.supervisor.daemon import main

    main(os.path.abspath(sys.argv[1]), uses_groups="--no-groups" not in sys.argv[2:])
