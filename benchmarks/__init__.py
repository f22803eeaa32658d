"""Measurements that are made side by side in one run; `python -m benchmarks` prints them as one table."""
