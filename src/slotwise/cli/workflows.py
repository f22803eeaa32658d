"""`slotwise graph` and `slotwise resubmit`."""

from __future__ import annotations

import json
import sys

from slotwise.cli.connecting import CONNECTION, connected
from slotwise.cli.light import Argument, LightCommand, Option, whole
from slotwise.errors import InputError


def graph(*, what: str, dot: bool, out: str | None, server: str | None, profile: str | None, as_json: bool) -> None:
    """Draw the jobs around a job, or the jobs of a file."""
    from slotwise.display.layers import as_dot, as_svg, graph_of

    if what.isdecimal():
        with connected(server, profile) as client:
            found = client.call("GET", f"/v1/jobs/{what}/graph").json()
        if not found["complete"]:
            print(f"slotwise: the graph is larger; {len(found['nodes']):,} jobs are shown", file=sys.stderr)
    else:
        found = graph_of_file(what)
    if as_json:
        text = json.dumps(found) + "\n"
    else:
        text = (as_dot if dot or (out or "").endswith((".dot", ".gv")) else as_svg)(*graph_of(found))
    if out is None:
        sys.stdout.write(text)
        return
    try:
        with open(out, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=out) from None


def graph_of_file(path: str) -> dict[str, object]:
    """Return the graph of a file of jobs as the service would tell it; jobs are numbered from 1, and jobs of the service are left out."""
    from slotwise.cli.jobfile import read_jobs
    from slotwise.live.after import element

    jobs = read_jobs(path)
    place = {job.get("name"): at for at, job in enumerate(jobs, 1)}
    edges = [
        {"before": place[one], "after": at, "kind": kind}
        for at, job in enumerate(jobs, 1)
        for kind, ids in job.get("after", {}).items()
        for one in ids
        if isinstance(one, str) and element(one) is None
    ]
    nodes = [
        {"id": at, "name": job.get("name", ""), "states": {f"array {job['array']}": 1} if "array" in job else {}}
        for at, job in enumerate(jobs, 1)
    ]
    return {"nodes": nodes, "edges": edges, "complete": True}


def resubmit(
    *, numbers: list[int], dependants: bool, server: str | None, profile: str | None, as_json: bool
) -> None:
    """Submit ended jobs once more."""
    with connected(server, profile) as client:
        found = client.call("POST", "/v1/jobs/resubmit", json={"ids": numbers, "dependants": dependants}).json()
    if as_json:
        print(json.dumps(found))
        return
    for old, new in found["by_old"].items():
        print(f"job {new} (was {old})")


GRAPH = LightCommand(
    graph,
    "Draw the dependencies of a job, or of a file of jobs, as SVG or for Graphviz.",
    (
        Argument("what", "ID|FILE", "the number of a job or an array, or a file of jobs"),
        Option("dot", "--dot", "print the language of Graphviz instead of SVG"),
        Option("out", "-o, --out", "write it to this file; .dot and .gv mean --dot", "FILE"),
        *CONNECTION,
    ),
    ("slotwise graph 7 -o jobs.svg", "slotwise graph jobs.toml --dot"),
)
RESUBMIT = LightCommand(
    resubmit,
    "Submit ended jobs again, as new jobs with the same commands and requests. Of an array, the jobs that are not done are "
    "submitted, with their indices. Jobs that are resubmitted together keep their dependencies.",
    (
        Argument("numbers", "ID...", "the numbers of jobs and arrays", whole, many=True),
        Option("dependants", "--dependants", "also the jobs that were cancelled because these jobs failed"),
        *CONNECTION,
    ),
    ("slotwise resubmit 7", "slotwise resubmit 7 --dependants"),
)
