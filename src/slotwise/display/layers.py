"""Pictures of graphs of jobs: each job stands below the jobs that it waits for. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

WIDTH, HEIGHT = 150, 40  # of a box, in pixels
ACROSS, DOWN = 24, 46  # between boxes, in pixels
MARGIN = 20
SWEEPS = 8  # passes over the layers that lessen crossings; more change little
LETTERS = 20  # of a name that fit into a box
COLOURS = {
    "held": "#e9e4f5", "waiting": "#f4ecd0", "placed": "#d8e8f7", "running": "#b9d8f5",
    "done": "#d3ecd6", "failed": "#f7cfcb", "cancelled": "#e3e3e3", "lost": "#f7cfcb",
}  # fmt: skip
# of several states of a box, the first that there is gives the colour
WORST = ("failed", "lost", "cancelled", "running", "placed", "waiting", "held", "done")


class LayerNode(NamedTuple):
    """A job, or an array of them."""

    id: int
    name: str
    states: Mapping[str, int]
    """how many jobs there are in each state"""


class Edge(NamedTuple):
    """`after` waits for `before`, as `kind` says."""

    before: int
    after: int
    kind: str


def graph_of(found: Mapping[str, Any]) -> tuple[list[LayerNode], list[Edge]]:
    """Return the graph that the service tells."""
    nodes = [LayerNode(one["id"], one["name"], one["states"]) for one in found["nodes"]]
    return nodes, [Edge(one["before"], one["after"], one["kind"]) for one in found["edges"]]


def layers_of(nodes: Sequence[LayerNode], edges: Sequence[Edge]) -> list[list[int]]:
    """Return nodes by layers: each stands one layer below the lowest that it waits for; neighbours stand near each other.

    >>> layers_of([Node(n, "", {}) for n in (1, 2, 3)], [Edge(1, 3, "ok"), Edge(2, 3, "ok")])
    [[1, 2], [3]]
    """
    before: dict[int, list[int]] = {one.id: [] for one in nodes}
    after: dict[int, list[int]] = {one.id: [] for one in nodes}
    for edge in edges:
        before[edge.after].append(edge.before)
        after[edge.before].append(edge.after)
    depth: dict[int, int] = {}
    left = {number: len(others) for number, others in before.items()}
    order = [number for number, many in left.items() if not many]
    for number in order:  # grows
        depth[number] = max((depth[one] + 1 for one in before[number]), default=0)
        for one in after[number]:
            left[one] -= 1
            if not left[one]:
                order.append(one)
    layers: list[list[int]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for number in order:
        layers[depth[number]].append(number)
    for sweep in range(SWEEPS):
        near, towards = (before, layers) if sweep % 2 == 0 else (after, layers[::-1])
        place = {number: at - len(layer) / 2 for layer in layers for at, number in enumerate(layer)}
        for layer in towards:
            middle = {
                number: sum(place[one] for one in near[number]) / len(near[number])
                if near[number]
                else place[number]
                for number in layer
            }
            layer.sort(key=lambda number, middle=middle: middle[number])  # type: ignore[misc]
            place |= {number: at - len(layer) / 2 for at, number in enumerate(layer)}
    return layers


def as_svg(nodes: Sequence[LayerNode], edges: Sequence[Edge]) -> str:
    """Return the graph as an SVG picture."""
    layers = layers_of(nodes, edges)
    widest = max(map(len, layers), default=1)
    width = 2 * MARGIN + widest * (WIDTH + ACROSS) - ACROSS
    height = 2 * MARGIN + len(layers) * (HEIGHT + DOWN) - DOWN
    at: dict[int, tuple[float, float]] = {}
    for depth, layer in enumerate(layers):
        left = (width - len(layer) * (WIDTH + ACROSS) + ACROSS) / 2
        for place, number in enumerate(layer):
            at[number] = left + place * (WIDTH + ACROSS), MARGIN + depth * (HEIGHT + DOWN)
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            'font-family="sans-serif" font-size="12">'
        ),
        (
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0 8 4 0 8z" fill="#666"/></marker></defs>'
        ),
    ]
    for edge in edges:
        (x1, y1), (x2, y2) = at[edge.before], at[edge.after]
        x1, y1, x2 = x1 + WIDTH / 2, y1 + HEIGHT, x2 + WIDTH / 2
        dash = "" if edge.kind.endswith("ok") else ' stroke-dasharray="5 3"'
        lines.append(
            f'<path d="M{x1:g} {y1:g}C{x1:g} {y1 + DOWN / 2:g} {x2:g} {y2 - DOWN / 2:g} {x2:g} {y2:g}" fill="none" '
            f'stroke="#666"{dash} marker-end="url(#tip)"><title>{escape(edge.kind)}</title></path>'
        )
    lines += [_box(node, *at[node.id]) for node in nodes]
    return "\n".join([*lines, "</svg>", ""])


def _box(node: LayerNode, x: float, y: float) -> str:
    state = next((one for one in WORST if node.states.get(one)), None)
    said = shown_states(node)
    name = node.name if len(node.name) <= LETTERS else node.name[: LETTERS - 1] + "…"
    first = f"{node.id} {name}".strip() if state is not None else name
    return (
        f'<g><title>{escape(f"{node.id} {node.name}: {said}")}</title><rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="5" '
        f'fill="{COLOURS.get(state or "", "#fff")}" stroke="#666"/><text x="{x + 8:g}" y="{y + 16:g}">{escape(first)}</text>'
        f'<text x="{x + 8:g}" y="{y + 32:g}" fill="#555">{escape(said)}</text></g>'
    )


def shown_states(node: LayerNode) -> str:
    """Return the states of a node in words.

    >>> shown_states(Node(7, "x", {"done": 1})), shown_states(Node(7, "x", {"done": 3, "failed": 1}))
    ('done', '3 done, 1 failed')
    """
    there = [(state, many) for state, many in node.states.items() if many]
    if len(there) == 1 and there[0][1] == 1:
        return there[0][0]
    return ", ".join(f"{many:,} {state}" for state, many in there)


def as_dot(nodes: Sequence[LayerNode], edges: Sequence[Edge]) -> str:
    """Return the graph in the language of Graphviz."""
    lines = ["digraph jobs {", '  node [shape=box, style="rounded,filled", fontname="sans-serif"];']
    for node in nodes:
        state = next((one for one in WORST if node.states.get(one)), "")
        label = _quoted(f"{node.id} {node.name}\n{shown_states(node)}")
        lines.append(f'  {node.id} [label={label}, fillcolor="{COLOURS.get(state, "#ffffff")}"];')
    for edge in edges:
        style = "" if edge.kind.endswith("ok") else ", style=dashed"
        lines.append(f"  {edge.before} -> {edge.after} [label={_quoted(edge.kind)}{style}];")
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    inner = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{inner}"'
