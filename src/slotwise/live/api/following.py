"""What is expected of jobs must be known before a window is planned, or a job with a deadline is submitted."""

from __future__ import annotations

import asyncio

from slotwise.live.api.common import done
from slotwise.live.service import Service
from slotwise.live.windows import jobs_of, learnt_of


async def follow(service: Service) -> None:
    """Let the loop know what is expected of all jobs, if it does not follow them already. The store is read outside the loop."""
    loop, store = service.loop, service.store
    if loop.ledger.is_followed():
        return
    await done(loop.ask(lambda ledger, _: ledger.follow_jobs()))  # what is submitted from here on is followed
    jobs, learnt = await asyncio.to_thread(lambda: (jobs_of(store), learnt_of(store)))
    await done(loop.ask(lambda ledger, _: ledger.know(jobs, learnt)))
