"""`slotwise trace`: bring traces in, describe them, cut and join them, make types and generate traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from slotwise.display.numbers import as_json as to_json
from slotwise.display.terminal import show
from slotwise.errors import InputError
from slotwise.files import filled, reserve
from slotwise.workloads.fitting import treat_too_large
from slotwise.workloads.generators import PROFILES
from slotwise.workloads.profiles import closeness, fit_profile, generate
from slotwise.workloads.traces import tools
from slotwise.workloads.traces.filtering import keep_where
from slotwise.workloads.traces.formats import FORMATS, import_to_file
from slotwise.workloads.traces.importing import size_of
from slotwise.workloads.traces.rhythm import measured_profile
from slotwise.workloads.traces.schema import Trace, read_trace, write_trace
from slotwise.workloads.traces.show import closeness_view, profile_view, summary_view, types_view
from slotwise.workloads.traces.summary import summarise
from slotwise.workloads.typemaking import METHODS, WASTE, capacity_of, make_types

app = typer.Typer(help="Import traces, describe them, cut, join and generate them.", no_args_is_help=True)

# File names and messages may hold brackets, so nothing is read as markup.
_err = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)

TraceFile = Annotated[Path, typer.Argument(metavar="TRACE", help="a trace that `trace import` wrote")]
Output = Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="the new trace")]
Seed = Annotated[int, typer.Option(help="equal seeds give equal traces")]


def _pairs(items: list[str] | None, flag: str) -> dict[str, str]:
    pairs = {}
    for item in items or []:
        key, equals, value = item.partition("=")
        if not (key and equals and value):
            raise InputError(f"{item!r} has no value", where=flag, remedy=f"write {flag} {item}=VALUE")
        pairs[key] = value
    return pairs


def _numbers(items: list[str] | None, flag: str) -> dict[str, float]:
    try:
        return {key: float(value) for key, value in _pairs(items, flag).items()}
    except ValueError as problem:
        raise InputError(str(problem), where=flag, remedy="use RESOURCE=NUMBER") from problem


def _capacity(items: list[str] | None, trace: Trace) -> dict[str, float]:
    """What one server holds, of what the trace has."""
    given = _numbers(items, "--capacity")
    for name, value in given.items():
        if name not in trace.resources:
            has = ", ".join(trace.resources)
            raise InputError(f"the trace has no resource {name!r}", where="--capacity", remedy=f"it has {has}")
        if not value > 0:
            raise InputError(f"is {value:g} for {name}", where="--capacity", remedy="capacities are above 0")
    return given


def _save(trace: Trace, path: Path) -> None:
    write_trace(trace, path)
    _err.print(f"{path}: {len(trace):,} jobs")


@app.command(
    "import",
    help=f"""Read a trace in one of many formats and write it as Parquet.

Formats: {", ".join(FORMATS)}.

\b
Examples:
  slotwise trace import google2011 DIR -o jobs.parquet
  slotwise trace import csv jobs.csv -o jobs.parquet --map arrival=submitted
""",
)
def import_(
    format: Annotated[str, typer.Argument(metavar="FORMAT", help="the format of the files, one of those above")],  # noqa: A002
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="files, or their directory")],
    output: Output,
    interrupted: Annotated[
        str | None,
        typer.Option(metavar="keep|drop", help="jobs whose end is not in the files (default: by format)"),
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="leave out bad rows and count them")] = False,
    map_: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="NAME=COLUMN",
            help="csv, parquet: the column that holds arrival, duration, demand.cpu, ...; repeatable",
        ),
    ] = None,
    time_unit: Annotated[
        str | None,
        typer.Option(metavar="UNIT", help="csv, parquet: s, ms, us, ns, min, h, d, iso, or a format: '%d/%m/%Y'"),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("-O", "--option", metavar="KEY=VALUE", help="an option of the format; repeatable"),
    ] = None,
) -> None:
    options: dict[str, Any] = dict(_pairs(option, "--option"))
    if map_:
        options["map"] = _pairs(map_, "--map")
    if time_unit:
        options["time_unit"] = time_unit
    columns = TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=_err, transient=True, disable=not _err.is_terminal) as progress:
        task = progress.add_task("reading", total=size_of(paths))
        report = import_to_file(
            format,
            paths,
            output,
            skip_bad=skip_bad,
            interrupted=interrupted,
            options=options,
            advance=lambda count: progress.advance(task, count),
        )
    for line in report.lines():
        _err.print(line)


@app.command()
def summary(
    trace: TraceFile,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object on standard output")] = False,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="also draw arrivals over time: .svg, .png or .pdf")
    ] = None,
    capacity: Annotated[
        list[str] | None,
        typer.Option(metavar="RESOURCE=SIZE", help="the capacity of one server, to count the load in servers"),
    ] = None,
) -> None:
    """Describe a trace: rates, demands, durations, burstiness and offered load.

    \b
    Example:
      slotwise trace summary jobs.parquet --capacity cpu=32 --figure arrivals.svg
    """
    found = read_trace(trace)
    facts = summarise(found, _capacity(capacity, found))
    if figure is not None:
        from slotwise.display.drawing import save_figure  # Matplotlib is slow to load
        from slotwise.workloads.traces.figure import arrivals_figure

        save_figure(arrivals_figure(found), figure)
        _err.print(f"{figure}: arrivals over time")
    if as_json:
        print(to_json(facts.dict()))
    else:
        show(lambda width: summary_view(facts, width))


@app.command()
def profile(
    trace: TraceFile,
    period: Annotated[str, typer.Option(metavar="day|week", help="the period of the profile")] = "day",
    steps: Annotated[int | None, typer.Option(help="number of steps of the period (default: one an hour)")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object on standard output")] = False,
) -> None:
    """Count how the rate of a trace changes over the day or the week.

    The last line is a `profile` for a scenario: for all types below [workload], for one type beside its rate.

    \b
    Examples:
      slotwise trace profile jobs.parquet
      slotwise trace profile jobs.parquet --period week --steps 14
    """
    found = measured_profile(read_trace(trace, columns=[]), period, steps)
    if as_json:
        print(to_json(found.dict()))
    else:
        show(profile_view(found))
        print(found.toml)


@app.command()
def window(
    trace: TraceFile,
    output: Output,
    start: Annotated[
        float, typer.Option(metavar="SECONDS", help="begin of the part, from the first arrival")
    ] = 0.0,
    end: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="end of the part, from the first arrival")
    ] = None,
    first: Annotated[int, typer.Option(help="leave out this many jobs at the begin")] = 0,
    jobs: Annotated[int | None, typer.Option(help="then keep this many jobs (default: all)")] = None,
) -> None:
    """Cut a part out of a trace, by time or by number of jobs.

    \b
    Examples:
      slotwise trace window jobs.parquet -o part.parquet --start 60 --end 600
      slotwise trace window jobs.parquet -o first.parquet --jobs 1000
    """
    _save(tools.window(read_trace(trace), start=start, end=end, first=first, jobs=jobs), output)


@app.command("filter")
def filter_(
    trace: TraceFile,
    condition: Annotated[str, typer.Argument(metavar="CONDITION", help="such as 'cpu <= 64 and duration > 60'")],
    output: Output,
) -> None:
    """Keep the jobs of a trace that meet a condition.

    A condition compares resources and columns: arrival, duration, tenant, priority, ...

    \b
    Examples:
      slotwise trace filter jobs.parquet 'cpu <= 0.5' -o fitting.parquet
      slotwise trace filter jobs.parquet 'duration > 60' -o long.parquet
    """
    found = read_trace(trace)
    kept = keep_where(found, condition)
    _save(kept, output)
    _err.print(f"left out: {len(found) - len(kept):,} jobs")


@app.command()
def thin(
    trace: TraceFile,
    keep: Annotated[
        float, typer.Argument(metavar="SHARE", help="the share of the jobs to keep, above 0 and at most 1")
    ],
    output: Output,
    by_batch: Annotated[bool, typer.Option("--by-batch", help="keep or drop whole batches")] = False,
    seed: Seed = 1,
) -> None:
    """Keep a random share of the jobs of a trace.

    \b
    Example:
      slotwise trace thin jobs.parquet 0.1 -o tenth.parquet
    """
    _save(tools.thin(read_trace(trace), keep, seed=seed, by_batch=by_batch), output)


@app.command()
def scale(
    trace: TraceFile,
    output: Output,
    time: Annotated[
        float, typer.Option(metavar="FACTOR", help="multiply the times between arrivals: 2 halves the rate")
    ] = 1.0,
    duration: Annotated[float, typer.Option(metavar="FACTOR", help="multiply the durations")] = 1.0,
) -> None:
    """Stretch or shrink the times between arrivals, or the durations of the jobs.

    \b
    Example:
      slotwise trace scale jobs.parquet -o busier.parquet --time 0.5
    """
    _save(tools.scale(read_trace(trace), time, duration=duration), output)


@app.command()
def concat(
    traces: Annotated[list[Path], typer.Argument(metavar="TRACE", help="two traces or more")],
    output: Output,
    gap: Annotated[float | None, typer.Option(metavar="SECONDS", help="time between the traces")] = None,
) -> None:
    """Put traces one after the other.

    \b
    Example:
      slotwise trace concat monday.parquet tuesday.parquet -o both.parquet
    """
    _save(tools.concat([read_trace(path) for path in traces], gap=gap), output)


@app.command()
def split(
    trace: TraceFile,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIRECTORY", help="a folder for the new traces")
    ],
    by: Annotated[str, typer.Option(metavar="KEY", help="tenant or priority")] = "tenant",
) -> None:
    """Write a trace for each tenant, or for each priority.

    \b
    Example:
      slotwise trace split jobs.parquet -o parts --by priority
    """
    parts = tools.split(read_trace(trace), by)
    reserve(output, [f"{part.name}.parquet" for part in parts.values()], "-o")
    with filled(output, "-o") as place:
        for part in parts.values():
            write_trace(part, place / f"{part.name}.parquet")
    for part in parts.values():
        _err.print(f"{output / part.name}.parquet: {len(part):,} jobs")


@app.command()
def bootstrap(
    trace: TraceFile,
    jobs: Annotated[int, typer.Argument(metavar="JOBS", help="how many jobs")],
    output: Output,
    block: Annotated[float, typer.Option(metavar="SECONDS", help="length of a piece")] = tools.BLOCK_SECONDS,
    seed: Seed = 1,
) -> None:
    """Make a longer trace from pieces of a real one, which keeps its burstiness.

    \b
    Example:
      slotwise trace bootstrap jobs.parquet 20000 -o longer.parquet
    """
    _save(tools.bootstrap(read_trace(trace), jobs, seed=seed, block=block), output)


@app.command()
def types(
    trace: TraceFile,
    method: Annotated[str, typer.Option(metavar="METHOD", help=", ".join(METHODS))] = "waste-bounded",
    count: Annotated[int | None, typer.Option("--types", "-k", help="waste-bounded: at most N types")] = None,
    waste: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help=f"waste-bounded: the fewest types that add at most this share to what jobs request (default {WASTE})",
        ),
    ] = None,
    levels: Annotated[int | None, typer.Option(help="grid: levels for each resource")] = None,
    capacity: Annotated[
        list[str] | None, typer.Option(metavar="RESOURCE=SIZE", help="the capacity of one server")
    ] = None,
    too_large: Annotated[
        str,
        typer.Option(metavar="refuse|drop|cap", help="jobs larger than the server: refuse, leave out, cut down"),
    ] = "refuse",
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object on standard output")] = False,
) -> None:
    """Sort the jobs of a trace into queue types.

    Show how much capacity the types waste, since each job is rounded up to its type. Without --types, the waste is at most 5 %, with at most 64 types.

    \b
    Examples:
      slotwise trace types jobs.parquet --capacity cpu=32
      slotwise trace types jobs.parquet --types 6 --capacity cpu=32
    """
    given = {"types": count, "levels": levels, "waste": waste}
    found = read_trace(trace, columns=[])
    options = {name: value for name, value in given.items() if value is not None}
    room = _capacity(capacity, found)
    if room or too_large != "refuse":
        sizes = capacity_of(found, room)
        found = treat_too_large(found, [sizes.tolist()], too_large, remedy="give --too-large drop or cap")
    typing = make_types(found, method, capacity=room, **options)
    if as_json:
        print(to_json(typing.dict(found)))
    else:
        show(lambda width: types_view(typing, found, width))


@app.command("generate")
def generate_(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"{', '.join(PROFILES)}, or a trace to imitate")],
    output: Output,
    jobs: Annotated[int, typer.Option(help="how many jobs")] = 100_000,
    seed: Seed = 1,
) -> None:
    """Generate a trace with the shape of a real one.

    \b
    Examples:
      slotwise trace generate google-like -o jobs.parquet --jobs 20000
      slotwise trace generate jobs.parquet -o imitation.parquet --jobs 20000
    """
    if name in PROFILES:
        profile = PROFILES[name]
    elif Path(name).suffix == ".parquet":
        profile = fit_profile(read_trace(name), f"{Path(name).stem}-like")
    else:
        raise InputError(f"no generator {name!r}", remedy=f"use {', '.join(PROFILES)} or a trace's .parquet file")
    _save(generate(profile, jobs, seed), output)


@app.command()
def compare(
    real: TraceFile,
    made: Annotated[Path, typer.Argument(metavar="OTHER", help="another trace over the same resources")],
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object on standard output")] = False,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="also draw both traces: .svg, .png or .pdf")
    ] = None,
) -> None:
    """Compare two traces by type mix, durations, load and burstiness.

    \b
    Example:
      slotwise trace compare jobs.parquet imitation.parquet
    """
    one, other = read_trace(real), read_trace(made)
    near = closeness(one, other)
    if figure is not None:
        from slotwise.display.drawing import save_figure
        from slotwise.workloads.traces.figure import comparison_figure

        save_figure(comparison_figure(one, other), figure)
        _err.print(f"{figure}: the two side by side")
    if as_json:
        print(to_json(near))
    else:
        show(closeness_view(near))
