"""How Algorithm 1 works, seen: servers, slots, queues and stalls of a short run, step by step.

The run drives `slotwise.scheduling.scheduler.Scheduler`, the same code that the simulator and a live service use,
with the jobs of a small random workload, and draws what it finds after each event.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import polars as pl

from slotwise.core.contract.reasons import Reason
from slotwise.display.palette import BLUE, INK, ORANGE, SOFT, VERMILION
from slotwise.model import Cluster, JobType, ServerClass
from slotwise.report.blocks import Panel, Steps
from slotwise.scheduling.events import Placement
from slotwise.scheduling.scheduler import Scheduler

CAPACITY, SERVERS = 6, 2
SIZES = {"large": 4, "small": 1}
COLOURS = {"large": ORANGE, "small": BLUE}
RATES = {"large": 0.5 * SERVERS * 0.89, "small": 4 * SERVERS * 0.89}
BETA = 0.7  # low enough that a server stalls within a few steps
FRAMES = 24  # steps shown
LONGEST = 1500  # events after which the search for a telling stretch ends


@dataclass(frozen=True)
class DrawnServer:
    """What a server looks like: its state, jobs and slots by type."""

    state: str
    jobs: Mapping[str, int]
    slots: Mapping[str, int]


@dataclass(frozen=True)
class Step:
    """What happened, and what it led to."""

    time: float
    event: str
    words: str
    servers: tuple[DrawnServer, ...]
    waiting: Mapping[str, int]


def walk_of(seed: int) -> Steps:
    """The stretch of a short run that shows the most, as a block of the report."""
    steps = telling(record(seed))
    frames = [Panel(f"{n}. {step.words}", draw(step), _in_words(step)) for n, step in enumerate(steps, 1)]
    return Steps(
        "step-through",
        "Algorithm 1, step by step",
        f"Two servers of capacity {CAPACITY}; large jobs take 4 units, small ones 1. A filled block is a running job, an"
        " outlined one a slot that is kept for a type; a stalled server takes no new jobs until what is left fits the best"
        f" slots for the present queues. Here beta is a constant {BETA:g}, so that things happen within a few steps.",
        frames,
        _frame(steps),
    )


def record(seed: int, events: int = LONGEST) -> list[Step]:
    """A run of so many events, from empty servers."""
    cluster = Cluster(
        resources=("units",),
        servers=(ServerClass(name="server", count=SERVERS, capacity=(Decimal(CAPACITY),)),),
    )
    types = [JobType(name=name, demand=(Decimal(size),)) for name, size in SIZES.items()]
    scheduler = Scheduler(cluster, types, "algorithm1", seed=seed, beta=BETA)
    random = np.random.default_rng([seed, 7])
    heap: list[tuple[float, int, str, str]] = []
    for name, rate in RATES.items():
        heapq.heappush(heap, (float(random.exponential(1 / rate)), 0, "arrival", name))
    kind: dict[Hashable, str] = {}
    steps: list[Step] = []
    before = _servers(scheduler)
    for count in range(1, events + 1):
        time, job, what, name = heapq.heappop(heap)
        on = scheduler.running.get(job)
        if what == "arrival":
            heapq.heappush(heap, (time + float(random.exponential(1 / RATES[name])), 0, "arrival", name))
            kind[count] = name
            placed = scheduler.submit(count, name)
        else:
            placed = scheduler.complete(job)
        for placement in placed:
            done = time + float(random.exponential(1.0))
            heapq.heappush(heap, (done, int(str(placement.job)), "completion", kind[placement.job]))
        after = _servers(scheduler)
        number = None if on is None else scheduler.servers.index(on)
        words = _words(what, name, number, before, after, placed, scheduler, kind)
        steps.append(Step(time, what, words, after, scheduler.waiting))
        before = after
    return steps


def telling(steps: list[Step], length: int = FRAMES) -> list[Step]:
    """The earliest stretch that shows an arrival that waits, a stall, a drain and a reset; else the first steps."""
    for start in range(max(0, len(steps) - length)):
        part = steps[start : start + length]
        words = [step.words for step in part]
        stall = next((n for n, text in enumerate(words) if "stalls" in text), None)
        reset = next((n for n, text in enumerate(words) if "starts anew" in text), None)
        if stall is not None and reset is not None and stall >= 4 and stall + 3 <= reset <= length - 4:
            return part
    return steps[:length]


def _servers(scheduler: Scheduler) -> tuple[DrawnServer, ...]:
    found = []
    for name in scheduler.servers:
        because = scheduler.explain_server(name).because[0]
        jobs = dict(because.figures.get("holding", {}))
        slots = dict(because.figures.get("configuration", {}))
        states = {
            Reason.ACTIVE: "active",
            Reason.STALLED: "stalled",
            Reason.TURNS: "stalled",
        }
        state = states.get(because.reason, "empty")
        found.append(DrawnServer(state, jobs, slots))
    return tuple(found)


def _words(
    what: str,
    name: str,
    on: int | None,
    before: tuple[DrawnServer, ...],
    after: tuple[DrawnServer, ...],
    placed: list[Placement],
    scheduler: Scheduler,
    kind: Mapping[Hashable, str],
) -> str:
    """One or two sentences on a step."""
    started = [(scheduler.servers.index(p.server), kind[p.job]) for p in placed]
    if what == "arrival":
        if not started:
            return f"A {name} job arrives. No active server has an empty {name} slot: it waits."
        server = started[0][0]
        if before[server].state == "empty":
            return (
                f"A {name} job arrives. Server {server + 1} is empty and takes slots {_many(after[server].slots)}."
            )
        return f"A {name} job arrives and takes the empty {name} slot of server {server + 1}."
    assert on is not None
    text = f"A {name} job ends on server {on + 1}. "
    was, now = before[on], after[on]
    if was.state == "active" and now.state == "stalled":
        figures = scheduler.explain_server(scheduler.servers[on]).because[0].figures
        return text + (
            f"Its slots are worth {figures['weight']:g}, less than {figures['beta']:g} times the best {figures['best']:g}:"
            " the server stalls."
        )
    if was.state == "stalled" and now.state == "stalled":
        return text + "The server is stalled and takes no new job."
    if now.state == "empty":
        return text + "The server is empty and no job waits."
    if was.slots != now.slots:
        return text + f"Its room is enough for the best slots, {_many(now.slots)}: it starts anew{_fills(started)}."
    if started:
        return text + f"The next {name} job takes its slot."
    return text + f"No {name} job waits: the slot stays reserved."


def _fills(started: list[tuple[int, str]]) -> str:
    return f" with {len(started)} waiting job{'s' if len(started) > 1 else ''}" if started else ""


def _many(counts: Mapping[str, int]) -> str:
    return " and ".join(f"{n} {name}" for name, n in counts.items() if n) or "none"


def _in_words(step: Step) -> str:
    parts = [
        f"server {n} {server.state}, running {_many(server.jobs)}, slots {_many(server.slots)}"
        for n, server in enumerate(step.servers, 1)
    ]
    return "; ".join(parts) + "; waiting " + _many(step.waiting) + "."


def _frame(steps: list[Step]) -> pl.DataFrame:
    rows = []
    for n, step in enumerate(steps, 1):
        row: dict[str, object] = {"step": n, "time": step.time, "event": step.event, "words": step.words}
        row |= {f"waiting.{name}": step.waiting[name] for name in SIZES}
        for s, server in enumerate(step.servers, 1):
            row[f"server{s}.state"] = server.state
            row |= {f"server{s}.jobs.{name}": server.jobs.get(name, 0) for name in SIZES}
            row |= {f"server{s}.slots.{name}": server.slots.get(name, 0) for name in SIZES}
        rows.append(row)
    return pl.DataFrame(rows)


UNIT, TALL, LEFT, WIDE = 46, 34, 92, 420
FONT = 'font-family="system-ui, Arial, sans-serif"'


def draw(step: Step) -> str:
    """The picture of a step: a bar for each server, and the queues below."""
    parts, y = [], 8
    for n, server in enumerate(step.servers, 1):
        parts += _bar(server, n, y)
        y += TALL + 20
    for name in SIZES:
        parts += _queue(name, step.waiting[name], y)
        y += 24
    return (
        f'<svg viewBox="0 0 {WIDE} {y}" xmlns="http://www.w3.org/2000/svg" aria-hidden="true" focusable="false">'
        + "".join(parts)
        + "</svg>"
    )


def _bar(server: DrawnServer, n: int, y: int) -> list[str]:
    stalled = server.state == "stalled"
    edge = VERMILION if stalled else INK
    note = {"stalled": "stalled", "empty": "empty", "active": "active"}[server.state]
    parts = [
        f'<text x="0" y="{y + 14}" font-size="14" font-weight="600" fill="{INK}" {FONT}>server {n}</text>',
        f'<text x="0" y="{y + 31}" font-size="13" fill="{VERMILION if stalled else SOFT}" {FONT}>{note}</text>',
    ]
    x = LEFT
    for name, size in SIZES.items():
        running, slots = server.jobs.get(name, 0), server.slots.get(name, 0)
        for place in range(max(running, slots)):
            width = size * UNIT
            filled = place < running
            fill, dash = (COLOURS[name], "") if filled else ("white", ' stroke-dasharray="5 3"')
            parts.append(
                f'<rect x="{x + 2}" y="{y + 2}" width="{width - 4}" height="{TALL - 4}" rx="4" fill="{fill}"'
                f' stroke="{COLOURS[name]}" stroke-width="2"{dash}/>'
            )
            ink = (
                ("white" if name == "small" else INK) if filled else COLOURS[name] if name == "small" else "#8a5f00"
            )
            word = name if size > 1 else ("S" if filled else "s")
            parts.append(
                f'<text x="{x + width / 2:g}" y="{y + TALL / 2 + 5:g}" text-anchor="middle" font-size="14"'
                f' fill="{ink}" {FONT}>{word if filled else f"({word})"}</text>'
            )
            x += width
    dash = ' stroke-dasharray="7 4"' if stalled else ""
    parts.append(
        f'<rect x="{LEFT}" y="{y}" width="{CAPACITY * UNIT}" height="{TALL}" rx="5" fill="none" stroke="{edge}"'
        f' stroke-width="{2.5 if stalled else 1.3}"{dash}/>'
    )
    return parts


def _queue(name: str, length: int, y: int) -> list[str]:
    most = 18
    parts = [
        f'<text x="0" y="{y + 13}" font-size="13" fill="{INK}" {FONT}>{name}: {length} wait{"s" if length == 1 else ""}</text>'
    ]
    for place in range(min(length, most)):
        parts.append(
            f'<rect x="{LEFT + 8 + place * 16}" y="{y + 2}" width="12" height="13" rx="2" fill="{COLOURS[name]}"/>'
        )
    if length > most:
        parts.append(
            f'<text x="{LEFT + 12 + most * 16}" y="{y + 13}" font-size="13" fill="{INK}" {FONT}>+{length - most}</text>'
        )
    return parts
