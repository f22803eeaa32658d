"""What a service compiles before it takes jobs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from slotwise.compiler.kernel import JIT

CODE = """
from slotwise.live.restart import Setup
from slotwise.model import Cluster, JobType, ServerClass
from slotwise.packing.kernels import solve

cluster = Cluster(resources=("cpu", "memory"), servers=(ServerClass(name="a", count=1, capacity=(4, 8)),))
Setup(cluster, (JobType(name="one", demand=(1, 1)),), "best-fit").warm()
assert solve.signatures, "the first job with another demand would wait until the search for configurations is compiled"
"""


@pytest.mark.skipif(not JIT, reason="nothing is compiled here")
def test_the_search_for_configurations_is_compiled_before_jobs_come() -> None:
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
