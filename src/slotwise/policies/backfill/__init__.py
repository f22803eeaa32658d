"""EASY backfilling: `easy` is the policy, `reservation` the reservation of the oldest waiting job.

Imports core and policies.fit.
"""
