"""Slurm's commands on a service of Slotwise: `sbatch`, `squeue`, `scancel`, `sacct`, `scontrol` and `srun`, for tools that know Slurm only.

`slotwise slurm-shims DIR` writes them into a folder for PATH. Imports `live` (the client) and the standard library only: tools call these
commands often. Start reading in `sbatch`; `options` reads command lines, `words` has the states and formats of Slurm.
"""
