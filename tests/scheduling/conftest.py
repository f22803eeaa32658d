"""The helpers beside the tests (instances, ledger, naive policies) are modules of their own."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
