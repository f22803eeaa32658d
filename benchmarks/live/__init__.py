"""Benchmarks of the live service: `python -m benchmarks.live`."""
