"""Jobs that span several nodes, as batch systems have them.

A job of Slotwise runs on one server. The option `nodes` says what becomes of a job that had k > 1 nodes:

- `whole` (default): one job that asks for the sum. It needs a server of that size, such as one that stands for the
  whole machine.
- `parts`: k jobs that arrive together (one `batch`), each with a k-th of the demand. Nothing makes them start
  together: no policy does that yet, so waits come out shorter than those of the job.
- `drop`: left out, and counted.
- `refuse`: the import fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from slotwise.errors import InputError
from slotwise.workloads.traces.importing import Intake

MOST_PARTS = 100_000_000  # jobs of one trace: more do not fit into memory
WAYS = ("whole", "parts", "drop", "refuse")


def way_of(intake: Intake) -> str:
    way = str(intake.options.get("nodes", "whole"))
    if way not in WAYS:
        raise InputError(
            f"{way!r} is no way to treat jobs of several nodes", remedy=f"use one of {', '.join(WAYS)}"
        )
    return way


def treat(
    intake: Intake, jobs: pl.DataFrame, demands: Sequence[str], whole_node: Mapping[str, float] | None = None
) -> pl.DataFrame:
    """Return `jobs` (with a column `nodes`, and an `id`) after the option `nodes`.

    `whole_node` has what a node holds, where the parts are full nodes and one that is not, rather than equal parts.
    """
    way = way_of(intake)
    nodes_of = jobs["nodes"].to_numpy()
    if not (count := int((nodes_of > 1).sum())):
        return jobs
    said = f"{count:,} of {jobs.height:,} jobs span several nodes (up to {nodes_of.max():g})"
    if way == "refuse":
        raise InputError(said, where=str(intake.paths[0]), remedy="give --option nodes=whole, parts or drop")
    if way == "drop":
        return intake.leave_out(jobs, pl.col("nodes") > 1, "jobs of several nodes")
    if way == "whole":
        intake.notes.append(
            f"{said}: each is read as one job that needs one server of that size; --option nodes=parts makes a job of"
            " each node, nodes=drop leaves them out"
        )
        return jobs
    if (parts := float(jobs["nodes"].clip(1).sum())) > MOST_PARTS:
        raise InputError(
            f"{parts:,.0f} parts of jobs", where=str(intake.paths[0]), remedy=f"up to {MOST_PARTS:,} are made"
        )
    intake.notes.append(
        f"{said}: each is read as one job for each node; they arrive together but need not start together"
    )
    nodes = pl.col("nodes").cast(pl.Int64)
    jobs = jobs.with_row_index("batch").with_columns(
        pl.col("batch").cast(pl.Int64), part=pl.int_ranges(0, pl.max_horizontal(nodes, pl.lit(1)))
    )
    jobs = jobs.explode("part")
    full = whole_node or {}
    columns = []
    for name in demands:
        if name in full:
            left = pl.col(name) - pl.col("part") * full[name]
            columns.append(pl.min_horizontal(left, pl.lit(full[name])).alias(name))
        elif full:  # in proportion to the part's share of what is filled node by node
            first, size = next(iter(full.items()))
            share = pl.min_horizontal(pl.col(first) - pl.col("part") * size, pl.lit(size)) / pl.col(first)
            columns.append((pl.col(name) * share).alias(name))
        else:
            columns.append((pl.col(name) / pl.max_horizontal("nodes", pl.lit(1))).alias(name))
    whole = pl.col("id").cast(pl.Int64).cast(pl.String) if jobs["id"].dtype.is_numeric() else pl.col("id")
    several = pl.col("nodes") > 1
    named = pl.when(several).then(pl.format("{}-{}", whole, "part")).otherwise(whole)
    return jobs.with_columns(*columns, named.alias("id")).drop("part")
