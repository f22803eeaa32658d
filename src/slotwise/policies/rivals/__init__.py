"""Policies of later papers: VQS (`virtual`), Quickswap and nMSR. Each is in a file of its own.

Imports core, policies.fit, policies.paper and, for the mix of `nmsr`, region.
"""
