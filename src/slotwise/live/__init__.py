"""The live scheduler: the same core on the wall clock, durable, with engines that execute jobs.

`Client` and `AsyncClient` are for programs; they need the extra `slotwise[serve]`. `Executor` runs functions as jobs; it needs `slotwise[executor]`.

- `serving`: `slotwise serve`, everything together in one process; start there, and then in `loop`, whose thread makes every decision.
- `ledger`: the scheduler with its books. `store`: what is durable. `engines`: what executes jobs. `changes`: a new cluster file.
- `api`, `dashboard`, `hooks`, `forecast`, `metrics`: what users and other programs see.

Imports foresee, simulation, scheduling and what is below them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slotwise.live.async_client import AsyncClient
    from slotwise.live.client import Client
    from slotwise.live.executor import Executor

__all__ = ["AsyncClient", "Client", "Executor"]


def __getattr__(name: str) -> Any:
    if name == "AsyncClient":
        from slotwise.live.async_client import AsyncClient

        return AsyncClient
    if name == "Client":
        from slotwise.live.client import Client

        return Client
    if name == "Executor":
        from slotwise.live.executor import Executor

        return Executor
    raise AttributeError(f"module 'slotwise.live' has no attribute {name!r}")
