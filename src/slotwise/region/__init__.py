"""The capacity region of a cluster: how far a load can grow, which mix of configurations carries it, and at what prices it ends.

It knows clusters and loads, and nothing of scheduling or workloads: policies may ask it, and so does `slotwise.theory`.
"""
