"""The capacity region of a cluster: how far a load can grow, which mix of configurations carries it, and at what prices it ends.

- `region`: the questions; start there. `ray`: how far a load can grow in its direction, by column generation.
- `pricing`, `search`: the best configuration at given prices. `simplex`: the linear program, which goes on where it stood.

It knows clusters and loads, and nothing of scheduling or workloads: policies may ask it, and so does `slotwise.theory`. Imports packing and what is below it.
"""
