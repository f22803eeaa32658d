"""The live scheduler: the same core on the wall clock, durable, with engines that execute jobs.

`Client` and `AsyncClient` are for programs; they need the extra `slotwise[serve]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slotwise.live.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from slotwise.live import client

        return getattr(client, name)
    raise AttributeError(f"module 'slotwise.live' has no attribute {name!r}")
