"""Forecasts beside the service: a process of their own follows the journal and runs the live situation ahead."""
