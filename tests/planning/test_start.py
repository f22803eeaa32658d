"""A plain simulation starts without the libraries that are slow to import."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from slotwise.cli.main import main
try:
    main(["simulate", "example1", "--set", "run.events=2000", "--json"])
except SystemExit as done:
    assert not done.code, done.code
slow = ("polars", "matplotlib", "scipy.optimize", "scipy.special", "slotwise.workloads.traces")
print([name for name in slow if name in sys.modules], file=sys.stderr)
"""


def test_simulate_imports_nothing_slow() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"
