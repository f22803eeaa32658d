"""Workloads: which jobs arrive, when, and how long they run.

- `source`: what a simulation reads its jobs from; start there. `jobs`: the types and demands of a workload.
- `laws`, `processes`, `profiles`, `generators`: made-up jobs. `traces`: logs, with an importer for each format.
- `typemaking`, `covers`, `fitting`: how the jobs of a trace become types.

Imports model, display, files and compiler, nothing of scheduling.
"""
