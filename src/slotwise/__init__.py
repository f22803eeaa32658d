"""Slotwise: scheduling of uninterruptible jobs on unlike servers, with a proven share of the maximum throughput."""

from slotwise._version import __version__

__all__ = ["__version__"]
