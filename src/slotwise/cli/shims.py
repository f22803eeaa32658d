"""`slotwise slurm-shims`."""

from __future__ import annotations

import json

from slotwise.cli.light import Argument, LightCommand, Option
from slotwise.shims.install import install


def slurm_shims(*, folder: str, as_json: bool) -> None:
    """Write Slurm's commands into a folder."""
    paths = install(folder)
    print(json.dumps(paths) if as_json else "\n".join(paths))


SLURM_SHIMS = LightCommand(
    slurm_shims,
    "Write the commands sbatch, squeue, scancel, sacct, scontrol and srun into a folder. With the folder on PATH, tools that know only "
    "Slurm send their jobs to Slotwise. Do not put the folder on the PATH of a service that runs above the real Slurm.",
    (
        Argument("folder", "DIR", "where to write them"),
        Option("as_json", "--json", "print JSON on standard output"),
    ),
    ("slotwise slurm-shims shims",),
)
