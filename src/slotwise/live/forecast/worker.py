"""The process that foresees: requests come as lines of JSON on standard input. Each answer is two lines on standard output, a head and the JSON for the caller.

It follows the service's journal by reading the store, so it takes nothing from the service but the reading. It runs with low priority, keeps itself to a share of one
CPU while no request is there, and ends when its standard input does.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from slotwise.errors import SlotwiseError
from slotwise.foresee.change import ClusterChange
from slotwise.live.forecast.foreseer import Foreseer
from slotwise.live.store import open_store

NICE = 10  # forecasts yield to the scheduler
MOST_MEMORY = 8 << 30  # bytes of address space; compiled code maps much that it does not use
IDLE_SHARE = 0.1  # of one CPU, for looks ahead that no request waits for
LEAST_PAUSE = 5.0  # seconds between two such looks


def answer(foreseer: Foreseer, request: dict[str, Any]) -> dict[str, Any]:
    """Do what a request asks for."""
    kinds: dict[str, Callable[[], dict[str, Any]]] = {
        "forecast": lambda: foreseer.forecast(int(request["job"])),
        "forecasts": lambda: foreseer.forecasts(request.get("type"), int(request.get("limit", 1000)), request.get("tenant")),
        "coverage": foreseer.coverage,
        "needs": lambda: foreseer.of_needs(
            request.get("needs"), request.get("requires"), request.get("type"), request.get("time"), request.get("tenant")
        ),
        "whatif": lambda: foreseer.what_if(change_of(request), float(request.get("hours", 4.0))),
        "advice": lambda: foreseer.advice(request.get("tenant")),
    }  # fmt: skip
    return kinds[request["kind"]]()


def change_of(request: dict[str, Any]) -> ClusterChange:
    """Return the change that a request describes."""
    return ClusterChange(
        add=request.get("add") or {},
        remove=request.get("remove") or {},
        drain=tuple(request.get("drain") or ()),
        policy=request.get("policy"),
        options=request.get("options") or {},
        rate=request.get("rate") or {},
        share=request.get("share") or {},
    )


def main() -> None:
    """Serve until standard input ends."""
    with suppress(OSError, ValueError):
        os.nice(NICE)
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else prints must not be taken for an answer
    lines = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115 - unbuffered, so that `select` knows of every line
    first = json.loads(lines.readline())
    store = open_store(first["store"])
    foreseer = Foreseer(store, Path(first["records"]) if first.get("records") else None)
    print(json.dumps({"ready": True}), file=out, flush=True)
    ready = selectors.DefaultSelector()
    ready.register(lines, selectors.EVENT_READ)
    pause = LEAST_PAUSE
    while True:
        if not ready.select(pause):
            began = time.monotonic()
            with suppress(SlotwiseError):  # the next caller is told
                if foreseer.is_behind():
                    foreseer.sight(fresh=True)
            pause = max(LEAST_PAUSE, (time.monotonic() - began) / IDLE_SHARE)
            continue
        line = lines.readline()
        if not line:
            return
        request = json.loads(line)
        found, wrong = {}, None
        try:
            found = answer(foreseer, request)
        except SlotwiseError as error:
            wrong = str(error)
        print(json.dumps({"id": request["id"], "error": wrong}), json.dumps(found), sep="\n", file=out, flush=True)


if __name__ == "__main__":
    main()
