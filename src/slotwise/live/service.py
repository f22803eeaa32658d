"""The service as a whole: a store, an engine and the loop between them, from the first start to the last."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from slotwise.live.changes.starting import Source, compare
from slotwise.live.clock import Clock
from slotwise.live.engines.protocol import Attached, Engine
from slotwise.live.forecast.desk import Desk
from slotwise.live.home import Home
from slotwise.live.hooks.definition import Hook
from slotwise.live.hooks.delivering import HookDelivery
from slotwise.live.loop import Loop
from slotwise.live.restart import Setup, load, take_up
from slotwise.live.retention import Retention
from slotwise.live.store.protocol import Store

log = logging.getLogger(__name__)


class Service:
    """Opened in `__init__`, which waits for the store where `standby` says so; `close` leaves jobs running."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        setup: Setup,
        *,
        home: Home | None = None,
        retention: Retention | None = None,
        standby: bool = False,
        source: Source | None = None,
        hooks: Sequence[Hook] = (),
    ) -> None:
        self.store, self.engine = store, engine
        self.forecasts = Desk(store, None if home is None else home.folder)
        setup.warm()  # a standby need not do it when its time has come
        if standby:
            log.info("ready to take over; waiting for the store")
        self.epoch = store.become_writer(wait=standby)
        began = time.monotonic()
        if home is not None:
            home.claim()
        ledger, settings = load(store, setup)
        if home is not None:
            home.check_claims(ledger.next_job)
        clock = Clock(not_before=ledger.core.now)
        retention = retention or Retention()
        retention.settings = settings | retention.settings
        if not store.checkpoints():
            store.save_checkpoint(retention.situation(ledger))  # a journal without one could not be read back
        if source is not None:
            compare(ledger, engine, setup, source, clock.now())
        self.loop = Loop(store, ledger, engine, clock=clock, retention=retention)
        batch, _ = ledger.take()
        if batch:
            store.commit(batch)
            store.save_checkpoint(retention.situation(ledger))
        retention.kept_at = max(seq for seq, _, _ in store.checkpoints())
        if isinstance(engine, Attached):
            engine.attach(ledger.core.cluster.resources, self.loop.why_waits)
        engine.open(self.loop.inbox.tell, self.epoch)
        take_up(self.loop, engine)
        log.info(
            "start %d of %s with engine %s: jobs placed or running %d, waiting %d; read in %.1f s",
            self.epoch,
            store.url,
            engine.name,
            len(ledger.live),
            sum(ledger.core.waiting.values()),
            time.monotonic() - began,
        )
        self.loop.start()
        self.hooks = HookDelivery(hooks, store, self.loop)
        self.hooks.start()

    def close(self) -> None:
        """End the loop and let go; jobs go on."""
        self.hooks.close()
        self.forecasts.close()
        self.loop.stop()
        self.engine.close()
        self.store.close()
