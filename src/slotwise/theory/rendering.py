"""A `Capacity` for the terminal: what it says, in words and tables that fit 80 columns."""

from __future__ import annotations

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from slotwise.display.numbers import counted, number
from slotwise.model import per_time
from slotwise.model.labels import in_words
from slotwise.theory.answer import WORTH_TELLING, answer
from slotwise.theory.capacity import Capacity
from slotwise.theory.guarantee import Guarantee, Verdict

MOST_TYPES = 20  # rows of a table that a reader takes in
MOST_CONFIGURATIONS = 8  # of a witness that are named
COLOURS = {True: "green", False: "red", None: "yellow"}
COLOUR = {
    Verdict.CERTIFIED: "green",
    Verdict.ASSUMED: "cyan",
    Verdict.NOT_CERTIFIED: "yellow",
    Verdict.IMPOSSIBLE: "red",
}
MARK = {True: "yes", False: "no", None: "not checked"}


def render(capacity: Capacity, proofs: bool = False) -> RenderableType:
    """Return the answer in a few lines; with `proofs`, all that it rests on."""
    lines: list[RenderableType] = [_title(capacity)]
    for n, sentence in enumerate(answer(capacity)):
        lines.append(Text(sentence, COLOURS[capacity.region.supportable] if n == 0 else ""))
    if not proofs:
        return Group(*lines, Text("Why: --proofs (mix of configurations, every policy, assumptions).", "dim"))
    parts: list[RenderableType] = [
        Padding(Group(*lines), (0, 0, 1, 0)),
        *_trace(capacity),
        _types(capacity),
        Padding(_legend(capacity), (0, 0, 1, 0)),
        *_requirements(capacity),
    ]
    if capacity.region.supportable is False and np.isfinite(capacity.region.intensity):
        asks = f"At these prices all servers together hold at most 1, and the load asks for {capacity.region.lower:.4g}."
        parts.append(Padding(Text(asks), (0, 0, 1, 0)))
    if capacity.region.witness:
        what = "it" if capacity.region.supportable else "the most of it"
        parts += [
            Text(f"A mix of configurations that carries {what}", "bold"),
            Padding(_witness(capacity), (0, 0, 1, 2)),
        ]
    parts += [Text("What is proven, policy by policy", "bold"), _guarantees(capacity.guarantees)]
    own = capacity.guarantees[0]
    if own.assumptions:
        parts += [Text(f"\nAssumptions behind {own.policy}", "bold"), Padding(_assumptions(own), (0, 0, 0, 2))]
    parts.append(_bound(capacity))
    return Group(*parts)


def _title(capacity: Capacity) -> Text:
    cluster = capacity.scenario.cluster
    classes = f"{len(cluster.servers)} classes" if len(cluster.servers) > 1 else "1 class"
    line = Text(capacity.scenario.name, "bold")
    line.append(
        f"  {counted(cluster.n_servers, 'server')} ({classes}), {counted(len(capacity.scenario.types), 'type')}",
        "dim",
    )
    return line


def _trace(capacity: Capacity) -> list[RenderableType]:
    """Return what is different about a trace."""
    if capacity.actual is None:
        return []
    shares = ", ".join(f"{share:.1%} of all {name}" for name, share in capacity.actual.items())
    return [
        Padding(
            f"The load is the average over the trace, with every job rounded up to its type. Jobs really ask for"
            f" {shares}: policies that pack by actual demand may carry more than the region above says.",
            (0, 0, 1, 2),
        )
    ]


def _types(capacity: Capacity) -> Table:
    region = capacity.region
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("type", overflow="fold")
    for heading in ("arrivals", "load", "price", "takes", "room for"):
        table.add_column(heading, justify="right", no_wrap=True)
    used = region.prices * region.rho
    order = np.argsort(-used, kind="stable")[:MOST_TYPES]
    for j in sorted(order):
        job_type, room = capacity.scenario.types[j], capacity.headroom[j]
        more = room.more / job_type.mean_service
        about = "" if room.limit - room.more <= 1e-6 * max(1.0, room.limit) else "≥ "
        table.add_row(
            job_type.name,
            number(float(capacity.rates[j])),
            number(float(region.rho[j])),
            f"{region.prices[j]:.3%}" if np.isfinite(region.intensity) else "-",
            f"{used[j]:.1%}" if np.isfinite(region.intensity) else "-",
            f"{about}+{number(more)}" if region.supportable is not False else "-",
        )
    return table


def _legend(capacity: Capacity) -> Text:
    left = len(capacity.region.rho) - MOST_TYPES
    return Text(
        f"arrivals {per_time(capacity.scenario.time_unit)}; load: jobs in service; price: share of the cluster that one job takes at the"
        " bottleneck; room for: more arrivals of this type alone"
        + (f"; {left} types not shown (--json)" if left > 0 else ""),
        "dim",
    )


def _requirements(capacity: Capacity) -> list[RenderableType]:
    """Return which server classes can hold the types that require something of them."""
    choosy = [(j, each) for j, each in enumerate(capacity.scenario.types) if each.requires]
    if not choosy:
        return []
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("type", "requires", "can run on"):
        table.add_column(heading, overflow="fold")
    for j, job_type in choosy[:MOST_TYPES]:
        table.add_row(job_type.name, in_words(job_type.requires), ", ".join(capacity.holders(j)))
    left = len(choosy) - MOST_TYPES
    said = [Text(f"{left} more types require something (--json)", "dim")] if left > 0 else []
    return [Text("What types require of servers", "bold"), Padding(Group(table, *said), (0, 0, 1, 2))]


def _witness(capacity: Capacity) -> Table:
    names = [job_type.name for job_type in capacity.scenario.types]
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for server, mix in zip(capacity.scenario.cluster.servers, capacity.region.witness, strict=True):
        order = np.argsort(-mix.shares, kind="stable")
        for i, row in enumerate(order[:MOST_CONFIGURATIONS]):
            held = [f"{k} {name}" for k, name in zip(mix.configurations[row], names, strict=True) if k]
            first = f"{server.count} x {server.name}" if i == 0 else ""
            table.add_row(Text(first, "dim"), f"{mix.shares[row]:.1%}", " + ".join(held) or "empty")
        rest = order[MOST_CONFIGURATIONS:]
        if len(rest):
            table.add_row("", f"{mix.shares[rest].sum():.1%}", f"{len(rest)} other configurations (--json)")
    return table


def _guarantees(found: list[Guarantee]) -> Table:
    """Return a table in which policies with the same guarantee share a row."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("policy", max_width=30, overflow="fold")
    table.add_column("verdict", overflow="fold")
    table.add_column("why", overflow="fold")
    rows: dict[tuple[Verdict, str], list[str]] = {}
    for one in found:
        rows.setdefault((one.verdict, one.why), []).append(one.policy)
    for (verdict, why), policies in rows.items():
        table.add_row(
            ", ".join(policies) if len(rows) > 1 else "every policy", Text(str(verdict), COLOUR[verdict]), why
        )
    return table


def _assumptions(one: Guarantee) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for assumption in one.assumptions:
        style = {True: "green", False: "red", None: "yellow"}[assumption.holds]
        detail = Text(assumption.text)
        if assumption.detail:
            detail.append(f" ({assumption.detail})", "dim")
        table.add_row(Text(MARK[assumption.holds], style), detail)
    return table


def _bound(capacity: Capacity) -> Text:
    bound = capacity.bound
    if not np.isfinite(bound.mean_queue) and capacity.actual is None:
        return Text("\nQueues grow without bound under every policy.", "bold")
    if bound.kind != "none" and bound.mean_queue < WORTH_TELLING:
        return Text("\nFor all that is known, queues can be next to empty at this load.")
    if bound.kind == "none":
        return Text(f"\nHow short queues can be is not known: {'; '.join(bound.assumptions)}.")
    line = Text(f"\nNo policy's mean queue is below {number(bound.mean_queue)}", "bold")
    line.append(f"  ({bound.kind}: {'; '.join(bound.assumptions)})", "dim")
    return line
