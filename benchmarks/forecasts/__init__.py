"""Forecasts of start times, measured by rolling origin on real logs and simulated days: `python -m benchmarks.forecasts`."""
