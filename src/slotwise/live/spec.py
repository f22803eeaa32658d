"""What a user asks for: a command and what it needs. Checked here, once, for the API, the client and the engines."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Required

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, with_config
from pydantic_core import to_json
from typing_extensions import TypedDict

from slotwise.errors import InputError
from slotwise.live.redirect import check as check_pattern
from slotwise.live.retries import MOST as MOST_RETRIES

MAX_ARRAY = 100_000  # jobs of one array
AT_ONCE = "at_once"  # in what is kept of a submission: how many jobs of its array may be active
JOBS = "jobs"  # in what is kept of a large array, which is submitted in pieces: how many jobs it has when it is complete
CONFINED = "confined"  # in what is kept of a submission: its job is kept out of the files of the service
LONGEST_TIME = 1e9  # seconds, 31 years
# Fields of a submission that stand in the job's own row instead.
NOT_KEPT = {"key", "array", "name", "tenant"}
LONGEST_ARGUMENT, LONGEST_COMMAND = 131_072, 1_000_000
# Number of arguments below which their total length need not be checked.
FEW_ARGUMENTS = LONGEST_COMMAND // LONGEST_ARGUMENT
Text = Annotated[str, StringConstraints(max_length=LONGEST_ARGUMENT, pattern=r"^[^\x00]*$")]
Short = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
VolumeName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f/]+$")]
Amount = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
MOST_DEPENDENCIES = 1_000  # of one job
Other = Annotated[int, Field(ge=1, lt=2**53)] | Short


def a_command(argv: list[str]) -> list[str]:
    """Refuse what cannot be executed."""
    if not argv[0]:
        raise ValueError("the command is empty")
    if len(argv) > FEW_ARGUMENTS and sum(map(len, argv)) > LONGEST_COMMAND:
        raise ValueError(f"the command line is longer than {LONGEST_COMMAND:,} characters")
    return argv


def a_directory(path: str | None) -> str | None:
    """Refuse a relative path: the service does not know where its caller stands."""
    if path is not None and not path.startswith("/"):
        raise ValueError(f"{path!r} is relative; send an absolute path")
    return path


def a_stream_file(path: str | None) -> str | None:
    """Refuse a relative path, and patterns that are not known."""
    if path is not None:
        check_pattern(path)
    return a_directory(path)


PATTERNS = "absolute, with %j (job), %a (array index), %A (array) and %t (attempt); by default the service keeps it"
StreamFile = Annotated[Text | None, AfterValidator(a_stream_file)]


def variables(env: dict[str, str]) -> dict[str, str]:
    """Refuse names that no environment can have."""
    for name in env:
        if "=" in name:
            raise ValueError(f"{name!r} is no name of an environment variable")
    return env


def an_array(array: str | None) -> str | None:
    """Refuse what is no range."""
    if array is not None:
        indices(array)
    return array


def a_signal(name: str) -> str:
    """Refuse what is no signal; the name without SIG."""
    short = name.upper().removeprefix("SIG")
    if f"SIG{short}" not in signal.Signals.__members__:
        raise ValueError(f"{name!r} is no signal; use a name such as USR1")
    return short


def a_dependency(after: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Refuse dependencies that name no job, and too many."""
    if any(not ids for ids in after.values()):
        raise ValueError("names no job")
    if sum(map(len, after.values())) > MOST_DEPENDENCIES:
        raise ValueError(f"names more than {MOST_DEPENDENCIES:,} jobs")
    return after


@with_config(ConfigDict(extra="forbid"))
class WarningSignal(TypedDict):
    """A signal that warns a job."""

    signal: Annotated[Short, AfterValidator(a_signal)]
    before: Annotated[float, Field(ge=0, allow_inf_nan=False, description="seconds before the time limit")]


@with_config(ConfigDict(extra="forbid"))
class MachineSpec(TypedDict, total=False):
    """A virtual machine. It runs until it powers off, is stopped or reaches its time limit."""

    image: Required[Annotated[VolumeName, Field(description="the base image: a volume of the hosts' storage pool")]]
    disk: Annotated[
        Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)],
        Field(description="size of the disk in megabytes (default: that of the image)"),
    ]
    user_data: Annotated[Text, Field(description="user data for cloud-init, as a seed on a second disk")]
    network: Annotated[Short, Field(description="a network of the host; without one the machine has none")]
    domain: Annotated[Text, Field(description="a template in libvirt's XML; for operators")]


@with_config(ConfigDict(extra="forbid"))
class JobSpec(TypedDict, total=False):
    """A job as it is submitted. (A plain mapping: ten thousand of them come in one request.)"""

    argv: Annotated[
        list[Text],
        Field(
            min_length=1,
            max_length=10_000,
            description="the command and its arguments; no shell. Required, unless the job is a virtual machine",
        ),
        AfterValidator(a_command),
    ]
    vm: Annotated[MachineSpec, Field(description="a virtual machine instead of a command (engine libvirt)")]
    type: Annotated[
        Short | None, Field(description="the job type, where the cluster has types; otherwise by `needs`")
    ]
    needs: Annotated[
        dict[Short, Amount], Field(description="how much of each resource, such as {cpu: 2, memory: 4000}")
    ]
    env: Annotated[
        dict[Short, Text], Field(max_length=1000, description="environment variables"), AfterValidator(variables)
    ]
    cwd: Annotated[
        Text | None,
        Field(description="the working directory, absolute; by default the home of the service's user"),
        AfterValidator(a_directory),
    ]
    stdin: Annotated[StreamFile, Field(description=f"a file that standard input is read from; {PATTERNS}")]
    stdout: Annotated[StreamFile, Field(description=f"a file that standard output goes to; {PATTERNS}")]
    stderr: Annotated[StreamFile, Field(description=f"a file that standard error goes to; {PATTERNS}")]
    append: Annotated[
        bool, Field(description="append to the files of standard output and error (default: empty them first)")
    ]
    name: Annotated[
        str,
        StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$"),
        Field(description="for people; need not be unique"),
    ]
    labels: Annotated[
        dict[Short, Short], Field(max_length=100, description="for people and programs; kept, not used")
    ]
    requires: Annotated[
        dict[Short, list[Short]],
        Field(max_length=100, description="labels that the server must have, each with the values that will do"),
    ]
    key: Annotated[
        Short | None,
        Field(
            description="idempotency key: a second submission with the same key and content gives the first one's job; with other content it is refused (409)"
        ),
    ]
    duration: Annotated[
        Annotated[float, Field(ge=0, allow_inf_nan=False)] | None,
        Field(description="expected duration in seconds, where it is known"),
    ]
    time: Annotated[
        Annotated[float, Field(gt=0, le=LONGEST_TIME, allow_inf_nan=False)] | None,
        Field(
            description="time limit in seconds: then SIGTERM, and SIGKILL after `grace`; the job fails. Without `duration` it is the expected duration, too"
        ),
    ]
    deadline: Annotated[
        Annotated[float, Field(gt=0, le=1e11, allow_inf_nan=False)] | None,
        Field(
            description="when the job is to have ended, in seconds since 1970. It goes first if it would otherwise be late, within a budget. "
            "Needs `time` or `duration`; refused if it cannot be met even by a job that starts at once"
        ),
    ]
    warn: Annotated[
        WarningSignal | None,
        Field(description="a signal before the time limit, such as {signal: USR1, before: 60} (seconds)"),
    ]
    grace: Annotated[
        Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] | None,
        Field(description="seconds between SIGTERM and SIGKILL when the job is ended; by default 10"),
    ]
    on_loss: Annotated[
        Literal["fail", "requeue"],
        Field(
            description="if its server is lost while it runs: `fail` (it ends as lost; the default) or `requeue` (it is executed again)"
        ),
    ]
    after: Annotated[
        dict[Literal["ok", "any", "failed", "each-ok", "each-any", "each-failed"], list[Other]],
        Field(
            description="start after other jobs of the tenant have ended: ok (they are done), failed (one is not) or any; with each-, the job of "
            "the other array with the same index. A job or array by its number, a job of an array as 7_1, a job of the same request by its name"
        ),
        AfterValidator(a_dependency),
    ]
    retry: Annotated[
        Annotated[int, Field(ge=0, le=MOST_RETRIES)],
        Field(description="execute the job again so many times at most if it fails; each time is a new attempt"),
    ]
    backoff: Annotated[
        Annotated[float, Field(ge=0, le=LONGEST_TIME, allow_inf_nan=False)],
        Field(
            description="seconds before the first retry (default 10); they double with each retry, up to an hour"
        ),
    ]
    retry_on: Annotated[
        list[Annotated[int, Field(ge=-255, le=255)]],
        Field(
            min_length=1,
            max_length=512,
            description="exit codes after which the job is executed again (default: all but 0); a job killed by signal 9 has ended with -9, or 137",
        ),
    ]
    open_files: Annotated[
        Annotated[int, Field(ge=3, le=1_000_000)] | None, Field(description="limit on open files")
    ]
    tenant: Annotated[
        Short | None,
        Field(description="whose job it is: an operator may say so; by default the tenant of the token"),
    ]
    user: Annotated[
        Short | None,
        Field(
            description="the account that executes the job, where the service may change users: an operator may say so; "
            "by default that of the caller"
        ),
    ]
    array: Annotated[
        str | None,
        Field(
            description="many jobs, such as 1-1000, 0-90:10 or 1,3,5-9%4 (at most 4 active); each has SLOTWISE_ARRAY_INDEX"
        ),
        AfterValidator(an_array),
    ]


FOR_COMMANDS = ("env", "cwd", "stdin", "stdout", "stderr", "append", "warn", "open_files")
MACHINE_NEEDS = {"cpu": 1.0, "memory": 1024.0}  # of a virtual machine that names no amount: CPUs, and MB


def check_work(spec: JobSpec, *, machines: bool) -> JobSpec:
    """Return a submission with the needs of its virtual machine. Raise InputError if it is not what the engine executes."""
    if "vm" not in spec:
        if "argv" not in spec:
            raise InputError("is missing", where="argv", remedy="send the command and its arguments as a list")
        if machines:
            raise InputError(
                "are not executed here",
                where="commands",
                remedy="submit a virtual machine: slotwise submit --vm IMAGE",
            )
        return spec
    if not machines:
        raise InputError(
            "are not executed here", where="virtual machines", remedy="they need slotwise serve --engine libvirt"
        )
    for name in ("argv", *FOR_COMMANDS):
        if name in spec:
            raise InputError("is for commands, not for a virtual machine", where=name, remedy="leave it out")
    cpu = spec.get("needs", {}).get("cpu", 1.0)
    if cpu != int(cpu) or cpu < 1:
        raise InputError(f"{cpu:g} CPUs", where="needs", remedy="a virtual machine has whole CPUs, at least one")
    if "type" in spec:
        return spec
    return {**spec, "needs": MACHINE_NEEDS | spec.get("needs", {})}


def body_of(spec: JobSpec) -> str:
    """What is kept of it for the engine, as JSON."""
    kept = spec if NOT_KEPT.isdisjoint(spec) else {name: spec[name] for name in spec if name not in NOT_KEPT}  # type: ignore[literal-required]
    return to_json(kept).decode()


def at_once(array: str) -> int | None:
    """Return how many jobs of an array may be active at the same time: the number behind %; None: all."""
    _, percent, number = array.partition("%")
    if not percent:
        return None
    if not (number.isascii() and number.isdigit() and 0 < int(number) <= MAX_ARRAY):
        raise ValueError(f"%{number} is no number of jobs; write it like 1-1000%4")
    return int(number)


def indices(array: str) -> Sequence[int]:
    """Return the indices that "1-1000", "0-90:10" or "1,3,5-9%4" means, in this order.

    >>> list(indices("1,3,5-9:2%4"))
    [1, 3, 5, 7, 9]
    """
    at_once(array)
    parts = [_range_of(part) for part in array.partition("%")[0].split(",")]
    total = sum(map(len, parts))
    if total > MAX_ARRAY:
        raise ValueError(f"has {total:,} jobs; at most {MAX_ARRAY:,} at once")
    if len(parts) == 1:
        return parts[0]
    found = [index for part in parts for index in part]
    if len(set(found)) < len(found):
        raise ValueError("names an index twice")
    return found


def _range_of(text: str) -> range:
    match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", text)
    first, last, step = (int(match[1]), int(match[2] or match[1]), int(match[3] or 1)) if match else (0, 0, 0)
    if match is None or step < 1 or last < first:
        raise ValueError(f"{text!r} is no range of indices; write it like 1-1000, 0-90:10 or 1,3,5-9%4")
    return range(first, last + 1, step)


def plain(spec: Any) -> dict[str, Any]:
    """The kept body as a mapping."""
    loaded: dict[str, Any] = json.loads(spec)
    return loaded
