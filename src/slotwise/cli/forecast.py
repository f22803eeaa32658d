"""`slotwise forecast`: when a job starts."""

from __future__ import annotations

import json
from typing import Any

from slotwise.cli.connecting import CONNECTION, connected
from slotwise.cli.light import Argument, LightCommand, Option, whole
from slotwise.errors import InputError
from slotwise.live.durations import in_words, seconds_of
from slotwise.live.needs import parse_needs

FIRST = ("p10", "p50", "p90", "coverage", "of")


def asked(source: str | None, request: dict[str, Any]) -> dict[str, Any]:
    """Answer a request without a service."""
    from slotwise.live.forecast.offline import ask

    return ask(source or "", request)


def in_order(found: dict[str, Any]) -> dict[str, Any]:
    """Return the keys that scripts rely on first."""
    return {name: found.get(name) for name in FIRST} | {k: v for k, v in found.items() if k not in FIRST}


def roughly(seconds: float) -> str:
    """Return a forecast duration: whole seconds from 10 seconds on."""
    return in_words(seconds if seconds < 10 else round(seconds))


def sentence(found: dict[str, Any], what: str) -> str:
    """Return a forecast for people."""
    if found["p50"] is None:
        return f"{what}: {found.get('reason') or 'not known yet'}"
    if found["p90"] == 0:
        return f"{what}: starts at once"
    late = roughly(found["p90"]) if found["p90"] is not None else "more than forecasts reach"
    text = f"{what}: starts in {roughly(found['p50'])}, in 8 of 10 cases between {roughly(found['p10'])} and {late}"
    if found.get("of"):
        text += f"; {found['coverage']:.0%} of the last {found['of']:,} starts lay within such an interval"
    return text


def forecast(
    number: int | None,
    *,
    needs: list[str],
    job_type: str | None,
    time: float | None,
    requires: list[str],
    source: str | None,
    as_json: bool,
    server: str | None,
    profile: str | None,
) -> int:
    """Print when a job starts."""
    wish = bool(needs or job_type)
    if wish == (number is not None):
        raise InputError("give the number of a job, or --needs, or --type")
    body: dict[str, Any] = {
        "needs": parse_needs(",".join(needs)) if needs else {},
        "type": job_type,
        "time": time,
        "requires": {label: values.split("|") for label, _, values in (one.partition("=") for one in requires)},
    }
    if source is not None:
        found = asked(source, {"kind": "needs"} | body if wish else {"kind": "forecast", "job": number})
    else:
        with connected(server, profile) as client:
            if wish:
                found = client.call("POST", "/v1/forecast", json=body).json()
            else:
                found = client.call("GET", f"/v1/forecast/{number}").json()
    found = in_order(found)
    print(
        json.dumps(found) if as_json else sentence(found, f"job {number}" if number is not None else "such a job")
    )
    return 0


SOURCE = Option("source", "--from", "a store or a file with a situation, instead of the service", "SOURCE")

FORECAST = LightCommand(
    forecast,
    "Say when a job will start: the times at 10, 50 and 90 %, and how often such intervals were right. The times come from simulations of the present state into many possible futures.",
    (
        Argument("number", "ID", "the number of a waiting job", whole, required=False),
        Option(
            "needs", "--needs", "requests of a job that is not submitted yet", "cpu=8,memory=4G", repeatable=True
        ),
        Option("job_type", "--type", "a type of the cluster, instead of needs", "NAME"),
        Option("time", "--time", "its time limit: seconds, or like 90s, 2h, 1d12h", "TIME", seconds_of),
        Option("requires", "--requires", "a label of the server", "LABEL=VALUE|...", repeatable=True),
        SOURCE,
        *CONNECTION,
    ),
    (
        "slotwise forecast 12",
        "slotwise forecast --needs cpu=8 --time 2h",
        "slotwise forecast 12 --json --from sqlite:///slotwise.db",
    ),
)
