"""The live scheduler: the same core on the wall clock, durable, with engines that execute jobs.

`Client` and `AsyncClient` are for programs; they need the extra `slotwise[serve]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slotwise.live.async_client import AsyncClient
    from slotwise.live.client import Client

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> Any:
    if name == "AsyncClient":
        from slotwise.live.async_client import AsyncClient

        return AsyncClient
    if name == "Client":
        from slotwise.live.client import Client

        return Client
    raise AttributeError(f"module 'slotwise.live' has no attribute {name!r}")
