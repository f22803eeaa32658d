"""The demo cluster goes on whatever happens to it at the same moment."""

from __future__ import annotations

from typing import Any

from slotwise.live.demo import DemoEngine
from slotwise.live.engines.protocol import Start


def test_a_server_fails_while_jobs_start() -> None:
    """Jobs are started by one thread, and servers fail in another one: both hold the lock where they touch the same table."""
    engine = DemoEngine()
    written = []

    class Watched(dict[Any, Any]):
        def __setitem__(self, key: Any, value: Any) -> None:
            written.append(engine._lock._is_owned())  # type: ignore[attr-defined]
            super().__setitem__(key, value)

    engine._on = Watched()
    try:
        engine.start([Start(1, 1, "std-1", {"argv": ["x"], "type": "web"}, {})])
        engine.fail("std-1", "power")
        assert written == [True]
        assert not engine._running
    finally:
        engine.close()
