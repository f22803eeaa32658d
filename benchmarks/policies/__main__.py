"""`python -m benchmarks.policies`: every policy on every scenario of the suite, and how far each is from the best.

For each scenario: the lower bound, the best stable policy's figure, and each policy's ratio to it, of mean queue, mean wait
and p99 wait; `diverges` where the queue grows. Then, for each policy, on how many scenarios it is how close to the best. With
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
from benchmarks.policies.google import google
from benchmarks.policies.running import POLICIES, Row, run_all
from benchmarks.policies.searching import search
from benchmarks.policies.suite import suite
from benchmarks.policies.traces import google_window

ALLOWED = 3.0
"""times the p99 wait of a type under algorithm1"""


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
    parser.add_argument("--policies", default=",".join(POLICIES), help="names, with commas between")
    parser.add_argument("--only", default="", help="only scenarios whose name contains this")
    parser.add_argument("--events", type=int, default=1_000_000, help="arrivals and completions of each run")
    parser.add_argument("--runs", type=int, default=2, help="independent runs")
    parser.add_argument("--threads", type=int, default=2, help="runs at the same time")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument(
        "--resume", action="store_true", help="keep the scenarios that are in the --json file already"
    )
    parser.add_argument("--markdown", type=Path, help="write the results to this file")
    parser.add_argument("--search", type=int, metavar="N", help="look through N seeds for traps")
    parser.add_argument("--google", action="store_true", help="servers for equal mean wait on the Google window")
    arguments = parser.parse_args()
    if arguments.search:
        search(arguments.search, arguments.events, arguments.runs)
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
    policies = arguments.policies.split(",")
    entries = [e for e in suite(arguments.held_out, arguments.labelled) if arguments.only in e.name]
    if not entries:
        sys.exit(f"no scenario has {arguments.only!r} in its name")
    known: dict[str, Row] = {}
    if arguments.resume and arguments.json and arguments.json.exists():
        known = {found["name"]: Row.from_dict(found) for found in json.loads(arguments.json.read_text())}
    rows = []
    for entry in entries:
        kept = known.get(entry.name)
        again = run_all([entry], policies, arguments.events, arguments.runs, threads=arguments.threads)
        row = kept if kept is not None else next(iter(again))
        print(tables.in_detail(row), flush=True)
        rows.append(row)
        if arguments.json:
            arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    print(f"\n{len(tables.compared(rows))} scenarios; mean queue against the best policy's")
    print(tables.aligned(tables.summary(rows, policies)))
    if {"guarded", "algorithm1"} <= set(policies):
        said, worst = starvation(rows)
        print(f"\n{said}")
        print(tables.aligned([["scenario", "type", "waits", "guarded", "algorithm1", "ratio"], *worst]))
    if arguments.markdown:
        which = " --labelled" if arguments.labelled else " --held-out" if arguments.held_out else ""
        command = f"python -m benchmarks.policies{which}"
        arguments.markdown.write_text("\n".join(report(rows, policies, command)) + "\n")


if __name__ == "__main__":
    main()
