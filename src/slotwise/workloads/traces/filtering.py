"""Jobs chosen by a condition such as `cpu <= 64 and duration > 60`.

Names are the trace's resources (`cpu`, or `demand["odd name"]`) and its columns (`arrival`, `duration`, `tenant`,
`priority`, `batch`, `censored`, `id`). There are comparisons, `in (...)`, `and`, `or`, `not`, and + - * / of
numbers. A condition is data: it is taken apart here, never run as a program.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

import polars as pl

from slotwise.errors import InputError
from slotwise.workloads.traces.schema import DEMAND, Trace

COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
EXAMPLE = "such as 'cpu <= 64 and duration > 60'"


def keep_where(trace: Trace, condition: str) -> Trace:
    """Return the jobs for which the condition holds; the clock stays as it is."""
    try:
        tree = ast.parse(condition.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        raise InputError(f"{condition!r} is no condition", remedy=f"write one {EXAMPLE}") from problem
    try:
        mask = trace.frame.select(_expression(tree, trace, condition).alias("keep"))["keep"]
    except (pl.exceptions.PolarsError, TypeError, RecursionError) as problem:
        raise InputError(
            f"{condition!r} compares things that do not compare", remedy=f"numbers with numbers, {EXAMPLE}"
        ) from problem
    if mask.dtype != pl.Boolean:
        raise InputError(f"{condition!r} is no condition", remedy=f"write one {EXAMPLE}")
    mask = mask.fill_null(False)
    if len(mask) != len(trace):  # a condition without a column holds for all jobs or for none
        mask = pl.Series([bool(mask[0])] * len(trace), dtype=pl.Boolean)
    kept = trace.frame.filter(mask)
    if not kept.height:
        raise InputError(f"no job of {len(trace):,} meets {condition!r}", where=trace.name)
    out = len(trace) - kept.height
    return trace.with_frame(
        kept, f"filtered: {condition.strip()} ({out:,} {'job' if out == 1 else 'jobs'} left out)"
    )


def _expression(node: ast.expr, trace: Trace, text: str) -> pl.Expr:
    def inner(other: ast.expr) -> pl.Expr:
        return _expression(other, trace, text)

    match node:
        case ast.BoolOp(op=op, values=values):
            parts = [inner(value) for value in values]
            return pl.all_horizontal(parts) if isinstance(op, ast.And) else pl.any_horizontal(parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ~inner(operand)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -inner(operand)
        case ast.Compare(left=left, ops=ops, comparators=rights):
            parts = []
            for sign, one, other in zip(ops, [left, *rights], rights, strict=False):
                parts.append(_comparison(sign, one, other, inner, text))
            return pl.all_horizontal(parts)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            found: pl.Expr = ARITHMETIC[type(op)](inner(left), inner(right))
            return found
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return pl.lit(value)
        case ast.Name(id=name):
            return pl.col(_column(name, trace))
        case ast.Subscript(value=ast.Name(id="demand"), slice=ast.Constant(value=str() as name)) if (
            name in trace.resources
        ):
            return pl.col(DEMAND + name)
        case _:
            raise InputError(f"{ast.unparse(node)!r} cannot stand in a condition", remedy=f"write one {EXAMPLE}")


def _comparison(
    op: ast.cmpop, one: ast.expr, other: ast.expr, inner: Callable[[ast.expr], pl.Expr], text: str
) -> pl.Expr:
    if isinstance(op, (ast.In, ast.NotIn)) and isinstance(other, (ast.Tuple, ast.List, ast.Set)):
        values = [item.value for item in other.elts if isinstance(item, ast.Constant)]
        if len(values) == len(other.elts):
            inside = inner(one).is_in(values)
            return inside if isinstance(op, ast.In) else ~inside
    if type(op) not in COMPARE:
        raise InputError(f"{text!r} is no condition", remedy=f"write one {EXAMPLE}")
    found: pl.Expr = COMPARE[type(op)](inner(one), inner(other))
    return found


def _column(name: str, trace: Trace) -> str:
    if name in trace.resources:
        return DEMAND + name
    if name in trace.frame.columns:
        return name
    has = [*trace.resources, *(c for c in trace.frame.columns if not c.startswith(DEMAND))]
    raise InputError(f"has no column {name!r}", where=trace.name, remedy=f"it has {', '.join(has)}")
