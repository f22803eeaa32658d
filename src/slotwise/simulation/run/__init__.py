"""One run and many: from a scenario and a policy to the events of a replication.

- `replication`: one replication, prepared and run; start there. `loop` and `churn` are its compiled loops, `agenda` what happens next.
- `engines`, `sequential`: replications on threads, processes or Dask, and how many of them.
- `ahead`, `parts`: compiling before the first event. `takeup`: a run from a live situation.

Imports simulation.measure, workloads, policies, scheduling and core.
"""
