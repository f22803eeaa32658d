"""Policies against each other on a suite of scenarios: `python -m benchmarks.policies`."""
