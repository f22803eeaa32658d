"""`sbatch`: a batch script as a job."""

from __future__ import annotations

import os
import re
import socket
import sys
import uuid
from collections.abc import Mapping, Sequence
from getpass import getuser
from typing import Any

from slotwise.errors import InputError
from slotwise.live.client import Client
from slotwise.live.patience import patiently
from slotwise.shims import script as scripts
from slotwise.shims.options import (
    FLAG,
    OPTIONAL,
    Read,
    SlurmOption,
    flags,
    ignored,
    no_effect,
    read_words,
    refused,
    typed,
)
from slotwise.shims.times import MEBIBYTE, limit_of, megabytes_of
from slotwise.shims.waiting import AWAY, say_away, wait_for
from slotwise.shims.words import ACTIVE, PARTITION, Owners, numbers_in

ONE_SERVER = "a job has one server here"
OPTIONS = [
    SlurmOption("array", "a"), SlurmOption("chdir", "D"), SlurmOption("comment"), SlurmOption("constraint", "C"), SlurmOption("cpus-per-task", "c"),
    SlurmOption("dependency", "d"), SlurmOption("error", "e"), SlurmOption("export"), SlurmOption("gpus", "G"), SlurmOption("gpus-per-node"),
    SlurmOption("gpus-per-task"), SlurmOption("gres"), SlurmOption("input", "i"), SlurmOption("job-name", "J"), SlurmOption("mem"), SlurmOption("mem-per-cpu"),
    SlurmOption("nodes", "N"), SlurmOption("ntasks", "n"), SlurmOption("ntasks-per-node"), SlurmOption("open-mode"), SlurmOption("output", "o"),
    SlurmOption("signal"), SlurmOption("time", "t"), SlurmOption("begin", "b"), SlurmOption("kill-on-invalid-dep"), SlurmOption("wrap"),
    *flags("no-requeue", "parsable", "quiet/Q", "requeue", "wait/W"),
    *no_effect(
        "account/A", "acctg-freq", "clusters/M", "cores-per-socket", "cpu-bind", "distribution/m", "extra-node-info/B", "hint", "mail-type",
        "mail-user", "mem-bind", f"nice//{OPTIONAL}", "ntasks-per-core", "ntasks-per-socket", "partition/p", "priority", "profile",
        "propagate", "qos/q", "reservation", "sockets-per-node", "threads-per-core", "time-min", "tmp", "wckey",
        f"get-user-env//{OPTIONAL}", f"verbose/v/{FLAG}",
    ),
    *refused("jobs do not wait for their user here: submit the job later", f"hold/H/{FLAG}"),
    *refused("a job shares its server here: request all of its CPUs instead", f"exclusive//{OPTIONAL}"),
    *refused("servers are not chosen by name here: label them, and use --constraint", "nodelist/w", "exclude/x", "nodefile/F"),
    *refused("jobs of several tasks with GPUs of their own are not known here", "gpus-per-socket", "mem-per-gpu", "cpus-per-gpu"),
    *refused("has no counterpart here", "licenses/L", "deadline", f"test-only//{FLAG}", "export-file", "uid", "gid", f"immediate/I/{OPTIONAL}",
             "switches", "container", "bb", "bbf", "cluster-constraint", "mincpus", f"oversubscribe/s/{FLAG}"),
]  # fmt: skip
FROM_ENVIRONMENT = {
    "SBATCH_ARRAY_INX": "array", "SBATCH_CONSTRAINT": "constraint", "SBATCH_EXPORT": "export", "SBATCH_GRES": "gres",
    "SBATCH_JOB_NAME": "job-name", "SBATCH_MEM_PER_NODE": "mem", "SBATCH_MEM_PER_CPU": "mem-per-cpu", "SBATCH_OPEN_MODE": "open-mode",
    "SBATCH_OUTPUT": "output", "SBATCH_ERROR": "error", "SBATCH_SIGNAL": "signal", "SBATCH_TIMELIMIT": "time",
}  # fmt: skip
OUTPUT, ARRAY_OUTPUT = "slurm-%j.out", "slurm-%A_%a.out"
DEPENDENCIES = {"afterok": "ok", "afterany": "any", "afternotok": "failed", "aftercorr": "each-ok"}
NOT_EXPORTED = (
    "SLURM_",
    "SBATCH_",
    "SLOTWISE_JOB_",
    "SLOTWISE_ARRAY_",
    "SLOTWISE_ATTEMPT",
    "SLOTWISE_SERVER_NAME",
    "SLOTWISE_CLAIM",
)
LONGEST_NAME = 200  # characters of the name of a variable that the API takes
SECRET = "SLOTWISE_TOKEN"  # exported only by name: jobs of other tenants may run as the same user


def main(words: Sequence[str]) -> int:
    """Submit a batch script; the exit code."""
    line = read_words(words, OPTIONS)
    text, name, arguments = read_script(line)
    within = read_words(scripts.directives(text, name), OPTIONS)
    if within.rest:
        raise InputError(f"{within.rest[0]!r} is no option", where=f"{name}: {scripts.DIRECTIVE}")
    from_environment = {option: os.environ[key] for key, option in FROM_ENVIRONMENT.items() if os.environ.get(key)}
    values = without_rivals(within.values, from_environment, line.values)
    without_effect = ignored(values, OPTIONS)
    if without_effect and "quiet" not in values:
        print(f"sbatch: note: {', '.join(without_effect)}: no effect here", file=sys.stderr)
    with Client() as client:
        body = request(values, text, name, arguments)
        if "dependency" in values:
            body["after"] = after_of(values["dependency"], body["name"], client)
        body["key"] = uuid.uuid4().hex  # a submission that is repeated, because the service restarts, submits once
        made = patiently(lambda: client.call("POST", "/v1/jobs", json=body).json(), say_away("sbatch"), AWAY)
        if "parsable" in values:
            print(made["id"])
        elif "quiet" not in values:
            print(f"Submitted batch job {made['id']}")
        sys.stdout.flush()
        return wait_for(client, made["ids"]) if "wait" in values else 0


def read_script(line: Read) -> tuple[str, str, list[str]]:
    """Return the text of the script, what it is called, and its arguments."""
    if "wrap" in line.values:
        if line.rest:
            raise InputError("is given beside a script", where="--wrap", remedy="leave one of them out")
        text, name = scripts.wrapped(line.values["wrap"]), "wrap"
    elif line.rest:
        name = os.path.basename(line.rest[0])
        try:
            with open(line.rest[0], encoding="utf-8") as file:
                text = file.read()
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=line.rest[0]) from None
        except ValueError:
            raise InputError("is not a text file", where=line.rest[0], remedy="use a UTF-8 script") from None
    else:
        text, name = sys.stdin.read(), "sbatch"
    scripts.check(text, name)
    return text, name, line.rest[1:]


def without_rivals(*layers: Mapping[str, str]) -> dict[str, str]:
    """Return options of which later layers replace earlier ones, also where two options are about the same."""
    rivals = [{"mem", "mem-per-cpu"}, {"requeue", "no-requeue"}, {"ntasks", "ntasks-per-node"}]
    found: dict[str, str] = {}
    for layer in layers:
        for group in rivals:
            if group & layer.keys():
                found = {name: value for name, value in found.items() if name not in group}
        found |= layer
    return found


def request(
    values: Mapping[str, str], text: str, name: str, arguments: Sequence[str], default_output: str | None = OUTPUT
) -> dict[str, Any]:
    """Return a submission as the API takes it, without dependencies."""
    refuse_others(values)
    folder = os.path.abspath(values.get("chdir", "."))
    named = values.get("job-name", name)
    time = typed(limit_of, values, "time")
    needs = needs_of(values)
    warn, ignored_signal = warning_of(values.get("signal"), time)
    output = values.get("output", ARRAY_OUTPUT if "array" in values else default_output)
    body: dict[str, Any] = {
        "argv": scripts.command(text, arguments, ignored_signal),
        "name": named[:200],
        "cwd": folder,
        "needs": needs,
        "requires": requirements(values),
        "time": time,
        "warn": warn,
        "array": values.get("array"),
        "stdin": stream_file(values.get("input"), "input", folder, named),
        "stdout": stream_file(output, "output", folder, named),
        "stderr": stream_file(values.get("error") or output, "error", folder, named),
        "append": values.get("open-mode", "truncate").startswith("a"),
        "on_loss": "requeue" if "requeue" in values else None,
        "env": exported(values.get("export", "ALL")) | variables(values, needs, named),
        "labels": {"comment": values["comment"][:200]} if values.get("comment") else {},
    }
    return {key: value for key, value in body.items() if value not in (None, {}, "", False)}


def refuse_others(values: Mapping[str, str]) -> None:
    """Refuse values that mean what does not exist here."""
    nodes = values.get("nodes", "1")
    if nodes not in ("1", "1-1"):
        raise InputError(ONE_SERVER, where=f"--nodes={nodes}", remedy="use 1")
    if values.get("begin", "now") != "now":
        raise InputError(
            "jobs do not wait for a time here", where=f"--begin={values['begin']}", remedy="leave it out"
        )
    if values.get("kill-on-invalid-dep", "yes") != "yes":
        raise InputError(
            "a job that can never start is cancelled here", where="--kill-on-invalid-dep", remedy="use yes"
        )
    if values.get("open-mode", "truncate") not in ("append", "truncate", "a", "t"):
        raise InputError(
            f"{values['open-mode']!r} is no mode", where="--open-mode", remedy="use append or truncate"
        )


def needs_of(values: Mapping[str, str]) -> dict[str, float]:
    """Return what a job needs: CPUs, megabytes of memory, GPUs."""
    tasks = count_of(values, "ntasks") or count_of(values, "ntasks-per-node") or 1
    each = count_of(values, "cpus-per-task")
    needs: dict[str, float] = {}
    if each or tasks > 1 or "ntasks" in values:
        needs["cpu"] = float(tasks * (each or 1))
    cpus = needs.get("cpu", 1.0)
    if values.get("mem") in ("0", "0M", "0G"):
        raise InputError("all memory of a server cannot be requested", where="--mem=0", remedy="name an amount")
    for option, times in (("mem", 1.0), ("mem-per-cpu", cpus)):
        amount = typed(megabytes_of, values, option)
        if amount is not None:
            needs["memory"] = round(amount * times, 3)
    for option, times in (("gpus", 1), ("gpus-per-node", 1), ("gpus-per-task", tasks)):
        if option in values:
            needs["gpu"] = times * gpus_of(values[option], option)[0]
    if "gres" in values:
        needs["gpu"] = gpus_of(gpu_part(values["gres"]), "gres")[0]
    return needs


def gpu_part(gres: str) -> str:
    """Return what --gres says of GPUs; other resources are refused."""
    kind, _, rest = gres.removeprefix("gres:").removeprefix("gres/").partition(":")
    if kind != "gpu" or "," in gres:
        raise InputError(f"{gres!r}: only gpu is known here", where="--gres", remedy="write it like gpu:2")
    return rest or "1"


def gpus_of(text: str, option: str) -> tuple[float, str | None]:
    """Return the number of GPUs and their make.

    >>> gpus_of("a100:2", "gpus"), gpus_of("1", "gpus")
    ((2.0, 'a100'), (1.0, None))
    """
    make, colon, number = text.rpartition(":")
    if not colon and not number.isdecimal():
        make, number = number, "1"
    if not number.isdecimal():
        raise InputError(f"{text!r} is no number of GPUs", where=f"--{option}", remedy="write it like 2 or a100:2")
    return float(number), make or None


def requirements(values: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the labels that the server must have. A feature `a` is the label a=yes."""
    found: dict[str, list[str]] = {}
    for option in ("gpus", "gpus-per-node", "gpus-per-task", "gres"):
        if option in values:
            text = gpu_part(values[option]) if option == "gres" else values[option]
            make = gpus_of(text, option)[1]
            found |= {} if make is None else {"gpu": [make]}
    for part in filter(None, re.split("[&,]", values.get("constraint", ""))):
        label, equals, alternatives = part.partition("=")
        if not equals and re.search(r"[|\[\]()*]", part):
            raise InputError(
                "alternatives among features are not known here",
                where=f"--constraint={part}",
                remedy="write a label with its values, like gpu=a100|h100",
            )
        found[label.strip()] = alternatives.split("|") if equals else ["yes"]
    return found


def warning_of(text: str | None, time: float | None) -> tuple[dict[str, Any] | None, str]:
    """Return the signal before the time limit, and the signal that a batch script does not get.

    As in Slurm, the script itself gets the signal only with B:; without B:, the commands that it calls with srun do.
    """
    if text is None:
        return None, ""
    match = re.fullmatch(r"(?:([BR]+):)?(?:SIG)?([A-Za-z0-9]+)(?:@(\d+))?", text)
    if match is None:
        raise InputError(f"{text!r} is no signal", where="--signal", remedy="write it like B:USR2@30")
    name = signal_name(match[2])
    if time is None:
        return None, ""  # nothing to be warned of
    before = min(float(match[3] or 60), time)
    return {"signal": name, "before": before}, "" if "B" in (match[1] or "") else name


def signal_name(text: str) -> str:
    """Return the name of a signal from its name or number, without SIG."""
    import signal

    try:
        found = signal.Signals(int(text)) if text.isdecimal() else signal.Signals["SIG" + text.upper()]
    except (ValueError, KeyError):
        raise InputError(f"{text!r} is no signal", where="--signal", remedy="use a name such as USR1") from None
    return found.name.removeprefix("SIG")


def stream_file(pattern: str | None, option: str, folder: str, name: str) -> str | None:
    """Return a file of a standard stream with the patterns of the service.

    >>> stream_file("%x-%J.%t", "output", "/a", "50%")
    '/a/50%%-%j.0'
    """
    if not pattern or (option == "input" and pattern == "/dev/null"):
        return None
    fixed = {"x": name.replace("/", "_"), "u": getuser(), "n": "0", "t": "0", "s": "batch"}
    kept = {"j": "%j", "J": "%j", "A": "%A", "a": "%a", "%": "%%"}

    def filled(match: re.Match[str]) -> str:
        letter = match[1]
        if letter in fixed:
            return fixed[letter].replace("%", "%%")
        if letter not in kept:
            raise InputError(
                f"%{letter} is not known here",
                where=f"--{option}={pattern}",
                remedy="use %j, %A, %a, %x, %u, %n, %t or %%",
            )
        return kept[letter]

    return os.path.join(folder, re.sub(r"%(\d*.?)", filled, pattern, flags=re.DOTALL))


def exported(text: str) -> dict[str, str]:
    """Return the variables that --export names.

    >>> exported("A=1,B=x=y")
    {'A': '1', 'B': 'x=y'}
    """
    found: dict[str, str] = {}
    for word in filter(None, text.split(",")):
        name, equals, value = word.partition("=")
        if equals:
            found[name] = value
        elif word == "ALL":
            found |= {
                name: value
                for name, value in os.environ.items()
                if not name.startswith(NOT_EXPORTED) and name != SECRET and is_sendable(name, value)
            }
        elif word not in ("NONE", "NIL") and word in os.environ:
            found[word] = os.environ[word]
    return found


def is_sendable(name: str, value: str) -> bool:
    """Return whether a variable is text that can be sent, and none that the shell sets anew."""
    try:
        (name + value).encode()
    except UnicodeEncodeError:
        return False
    return name not in ("_", "SHLVL", "OLDPWD", "PWD") and name.isprintable() and len(name) <= LONGEST_NAME


def variables(values: Mapping[str, str], needs: Mapping[str, float], name: str) -> dict[str, str]:
    """Return Slurm's variables that are known before a job has a number. The wrapper of the script sets the remaining ones."""
    tasks = count_of(values, "ntasks") or count_of(values, "ntasks-per-node") or 1
    cpus = str(int(needs.get("cpu", 1)))
    found = {
        "SLURM_JOB_NAME": name, "SLURM_SUBMIT_DIR": os.getcwd(), "SLURM_SUBMIT_HOST": socket.gethostname(), "SLURM_CLUSTER_NAME": PARTITION,
        "SLURM_JOB_PARTITION": PARTITION, "SLURM_JOB_USER": getuser(), "SLURM_NTASKS": str(tasks), "SLURM_NPROCS": str(tasks),
        "SLURM_TASKS_PER_NODE": str(tasks), "SLURM_JOB_NUM_NODES": "1", "SLURM_NNODES": "1", "SLURM_NODEID": "0", "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0", "SLURM_CPUS_ON_NODE": cpus, "SLURM_JOB_CPUS_PER_NODE": cpus, "ENVIRONMENT": "BATCH",
    }  # fmt: skip
    if "cpus-per-task" in values:
        found["SLURM_CPUS_PER_TASK"] = values["cpus-per-task"]
    if "memory" in needs:
        found["SLURM_MEM_PER_NODE"] = str(int(needs["memory"] / MEBIBYTE))
    if needs.get("gpu"):
        found["SLURM_GPUS_ON_NODE"] = str(int(needs["gpu"]))
    if "array" in values:
        found |= array_variables(values["array"])
    return found


def array_variables(array: str) -> dict[str, str]:
    """Return Slurm's variables for the bounds of an array.

    >>> array_variables("1,3,5-9:2%4")
    {'SLURM_ARRAY_TASK_COUNT': '5', 'SLURM_ARRAY_TASK_MIN': '1', 'SLURM_ARRAY_TASK_MAX': '9', 'SLURM_ARRAY_TASK_STEP': '2'}
    """
    indices: list[int] = []
    step = 1
    for part in array.partition("%")[0].split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if match is None:
            raise InputError(
                f"{array!r} is no list of indices", where="--array", remedy="write it like 1-10 or 1,3,5-9%4"
            )
        step = int(match[3] or 1)
        indices += range(int(match[1]), int(match[2] or match[1]) + 1, max(1, step))
    if not indices:
        raise InputError(f"{array!r} has no index", where="--array", remedy="write the smaller index first")
    return {
        "SLURM_ARRAY_TASK_COUNT": str(len(indices)), "SLURM_ARRAY_TASK_MIN": str(min(indices)),
        "SLURM_ARRAY_TASK_MAX": str(max(indices)), "SLURM_ARRAY_TASK_STEP": str(step),
    }  # fmt: skip


def after_of(text: str, name: str, client: Client) -> dict[str, list[int | str]]:
    """Return dependencies as the API takes them."""
    found: dict[str, list[int | str]] = {}
    if "?" in text:
        raise InputError(
            "all conditions must hold here", where=f"--dependency={text}", remedy="separate them with commas"
        )
    for part in filter(None, text.split(",")):
        kind, _, numbers = part.partition(":")
        if kind == "singleton":
            mine = Owners(client).of(getuser())
            active = [job.id for job in client.jobs(name=name, state=list(ACTIVE)) if mine(job)]
            found.setdefault("any", []).extend(active)
        elif kind not in DEPENDENCIES or "+" in numbers or not numbers:
            raise InputError(
                f"{part!r} is not known here",
                where="--dependency",
                remedy=f"use singleton or, with numbers of jobs, {', '.join(DEPENDENCIES)}",
            )
        else:
            ids: list[int | str] = [int(one) if one.isdecimal() else one for one in numbers_in(numbers.split(":"))]
            found.setdefault(DEPENDENCIES[kind], []).extend(ids)
    return {kind: some for kind, some in found.items() if some}


def count_of(values: Mapping[str, str], option: str) -> int | None:
    """Return the number that an option says; None: it is not given."""
    text = values.get(option)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{text!r} is no number of 1 or more", where=f"--{option}")
    return int(text)
