"""Simulation: a workload through a policy, measured and judged.

- `simulate`: what a program calls; start there, and then in `run.loop`, the compiled loop over events.
- `run` (one replication), `measure` (what is counted on the way), `judge` (intervals, verdicts, bounds), `result`.

Imports theory, workloads, scheduling and what is below them. The loop makes the same steps as `slotwise.Scheduler`.
"""
