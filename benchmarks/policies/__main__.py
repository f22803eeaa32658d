"""`python -m benchmarks.policies`: every policy on every scenario of the suite, and how far each is from the best.

For each scenario: the lower bound, the best stable policy's figure, and each policy's ratio to it, of mean queue, mean wait
and p99 wait, p99.9 and the longest wait; `diverges` where the queue grows. Then, for each policy, on how many scenarios it is how close to
the best that knows no durations. `--part` runs the families of `families.py`, `--quick` a short choice of everything. Results are kept
under build/policies and used again while the code that they came from is the same. With
`--search` it looks instead for seeds on which a common policy diverges or is far from the best; with `--google` for the
servers that the Google window needs.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.policies import tables
from benchmarks.policies.cache import Cache
from benchmarks.policies.families import PARTS, family_entries
from benchmarks.policies.google import google
from benchmarks.policies.running import POLICIES, Row, Runner
from benchmarks.policies.searching import search
from benchmarks.policies.suite import USUAL, Entry, suite
from benchmarks.policies.traces import google_window

EVENTS, QUICK_EVENTS = USUAL, 150_000
QUICK = (
    "guarded",
    "algorithm1",
    "best-fit",
    "first-fit",
    "quickswap",
    "nmsr",
    "easy-backfill",
    "guarded-durations",
)
QUICK_EACH = 4  # scenarios of each family, about
QUICK_OLD = (
    "example1",
    "table1-20-0.89",
    "trap-10-5-2-x20-0.95",
    "trap-10-10-1-x5-0.9",
    "random-1003",
    "random-1017",
)
ALLOWED = 3.0  # times the p99 wait of a type under algorithm1


def report(rows: list[Row], policies: list[str], command: str) -> list[str]:
    """All results as Markdown."""
    lines = [f"Written by `{command}`.", "", *tables.markdown(tables.summary(rows, policies)), ""]
    lines += [
        f"{len(tables.compared(rows))} scenarios. Mean queues against the best policy's; of queues under 5, 2 more are allowed.",
        "`?`: a longer run might give another verdict. A trace has no verdict on drift.",
        "",
        *tables.markdown(tables.scenarios(rows)),
        "",
    ]
    lines += ["By family: geometric mean of the ratio to the best, in brackets how often it diverges.", ""]
    lines += [*tables.markdown(tables.families(rows, policies)), ""]
    waits = tables.longest(rows, policies)
    if len(waits) > 1:
        lines += ["Waits on logs of parallel machines, as multiples of those under easy-backfill.", ""]
        lines += [*tables.markdown(waits), ""]
    if {"guarded", "algorithm1"} <= set(policies):
        said, worst = starvation(rows)
        lines += [
            said,
            "",
            *tables.markdown([["scenario", "type", "waits", "guarded", "algorithm1", "ratio"], *worst]),
        ]
    return lines


def starvation(rows: list[Row]) -> tuple[str, list[list[str]]]:
    """What is to be said of single types, and the worst of them: those above what is allowed, ten at least."""
    waits = tables.starvation(rows, "guarded", "algorithm1")
    over = sum(w.ratio > ALLOWED for w in waits)
    said = f"Of {len(waits)} types {over} have a p99 wait above {ALLOWED:g} times that under algorithm1."
    shown = waits[: max(10, over)]
    return said, [
        [w.scenario, w.type, str(w.waits), *map(tables.number, (w.mine, w.other, w.ratio))] for w in shown
    ]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policies", description=__doc__)
    parser.add_argument("--held-out", action="store_true", help="the seeds that nobody tuned on")
    parser.add_argument(
        "--labelled", action="store_true", help="clusters whose servers have labels that types require"
    )
    parser.add_argument(
        "--part", choices=PARTS, help="a part of the families: tune, wide, decide, or last (look at it once)"
    )
    parser.add_argument("--quick", action="store_true", help="a few short scenarios of each kind, for development")
    parser.add_argument("--policies", default="", help="names, with commas between")
    parser.add_argument("--only", default="", help="only families or scenarios whose name contains this")
    parser.add_argument("--events", type=int, help=f"arrivals and completions of each run (default {EVENTS:,})")
    parser.add_argument("--runs", type=int, help="independent runs (default 2)")
    parser.add_argument("--afresh", action="store_true", help="do not use, or keep, results under build/policies")
    parser.add_argument("--threads", type=int, default=2, help="runs at the same time")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--markdown", type=Path, help="write the results to this file")
    parser.add_argument("--search", type=int, metavar="N", help="look through N seeds for traps")
    parser.add_argument("--google", action="store_true", help="servers for equal mean wait on the Google window")
    arguments = parser.parse_args()
    if arguments.search:
        search(arguments.search, arguments.events or EVENTS, arguments.runs or 2)
        return
    if arguments.google:
        trace = google_window()
        if trace is None:
            sys.exit("the Google window is not at ../shared/traces/google2011")
        text = "\n".join(google(trace)) + "\n"
        print(text)
        if arguments.markdown:
            arguments.markdown.write_text("Written by `python -m benchmarks.policies --google`.\n\n" + text)
        return
    policies = arguments.policies.split(",") if arguments.policies else [*(QUICK if arguments.quick else POLICIES)]
    entries = [e for e in chosen(arguments) if arguments.only in e.family or arguments.only in e.name]
    if not entries:
        sys.exit(f"no family or scenario has {arguments.only!r} in its name")
    runner = Runner(
        events=arguments.events or (QUICK_EVENTS if arguments.quick else EVENTS),
        runs=arguments.runs or (1 if arguments.quick else 2),
        threads=arguments.threads,
        cache=Cache(on=not arguments.afresh),
        say=lambda text: print(f"... {text}", file=sys.stderr, flush=True),
    )
    rows = []
    for n, entry in enumerate(entries, 1):
        print(f"{n} of {len(entries)}: {entry.name}", file=sys.stderr, flush=True)
        rows.append(runner.row(entry, policies))
        print(tables.in_detail(rows[-1]), flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    print(f"\n{len(tables.compared(rows))} scenarios; mean queue against the best policy's that knows no durations")
    print(tables.aligned(tables.summary(rows, policies)))
    print("\nby family: geometric mean of the ratio to the best [diverges]")
    print(tables.aligned(tables.families(rows, policies)))
    waits = tables.longest(rows, policies)
    if len(waits) > 1:
        print("\nwaits on logs of parallel machines, as multiples of those under easy-backfill")
        print(tables.aligned(waits))
    if {"guarded", "algorithm1"} <= set(policies):
        said, worst = starvation(rows)
        print(f"\n{said}")
        print(tables.aligned([["scenario", "type", "waits", "guarded", "algorithm1", "ratio"], *worst]))
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(report(rows, policies, command_of(arguments))) + "\n")


def chosen(arguments: argparse.Namespace) -> list[Entry]:
    """The scenarios that were asked for."""
    if arguments.quick:
        found = family_entries("tune")
        seen: dict[str, int] = {}
        for entry in found:
            seen[entry.family] = seen.get(entry.family, 0) + 1
        step = {family: max(1, count // QUICK_EACH) for family, count in seen.items()}
        picked, at = [], dict.fromkeys(seen, 0)
        for entry in found:
            if at[entry.family] % step[entry.family] == 0:
                picked.append(entry)
            at[entry.family] += 1
        return [*(e for e in suite() if e.name in QUICK_OLD), *picked]
    if arguments.part:
        return family_entries(arguments.part)
    return suite(arguments.held_out, arguments.labelled)


def command_of(arguments: argparse.Namespace) -> str:
    """The command that wrote the report."""
    which = " --labelled" if arguments.labelled else " --held-out" if arguments.held_out else ""
    which = f" --part {arguments.part}" if arguments.part else " --quick" if arguments.quick else which
    shorter = "".join(
        f" --{name} {value}"
        for name in ("only", "policies", "events", "runs")
        if (value := getattr(arguments, name)) is not None and value != ""
    )
    return f"python -m benchmarks.policies{which}{shorter}"


if __name__ == "__main__":
    main()
