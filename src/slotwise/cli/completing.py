"""What TAB completes: scenarios and policies."""

from __future__ import annotations

from pathlib import Path

from slotwise.model import shipped_scenarios


def scenario_names(incomplete: str) -> list[str]:
    """For completion: those that ship, and scenario files from here on."""
    files = (
        [*Path().glob(f"{incomplete}*.toml"), *Path().glob(f"{incomplete}*/")] if incomplete.count("*") == 0 else []
    )
    names = [*shipped_scenarios(), *(f"{path}/" if path.is_dir() else str(path) for path in sorted(files))]
    return [name for name in names if name.startswith(incomplete)]


def policy_names(incomplete: str) -> list[str]:
    """For completion: a policy, or one more after a comma."""
    from slotwise.policies import POLICIES  # with the compiler: not for commands that run nothing

    before = incomplete[: incomplete.rfind(",") + 1]
    return [before + name for name in POLICIES if (before + name).startswith(incomplete)]
