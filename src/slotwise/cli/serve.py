"""`slotwise serve` and what looks after its store: `replay`, `backup`, `restore`."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from slotwise.errors import InputError, SlotwiseError
from slotwise.live.addresses import state_folder

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        envvar="SLOTWISE_STORE",
        help="the store: sqlite:///FILE or postgresql://... (default: SLOTWISE_STORE, then slotwise.db in this folder, then in "
        "~/.local/state/slotwise)",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON on standard output")]


def store_of(given: str | None) -> str:
    """Return the address of the store: the given one, or the default."""
    if given is not None:
        return given
    if Path("slotwise.db").exists():
        return "sqlite:///slotwise.db"
    folder = state_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return f"sqlite:///{folder / 'slotwise.db'}"


def needs_extra(*names: str) -> None:
    """The live scheduler has dependencies of its own; they are looked for and not loaded, which would take a second."""
    for name in names or ("fastapi", "httpx", "prometheus_client", "uvicorn"):
        if importlib.util.find_spec(name) is None:
            raise InputError(f"{name} is not installed", remedy="pip install 'slotwise[serve]'")


def serve(
    source: Annotated[
        str | None, typer.Argument(metavar="[CLUSTER.toml]", help="a file with servers, job types and the policy")
    ] = None,
    local: Annotated[bool, typer.Option("--local", help="use this machine as a cluster of one server")] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="simulate a cluster with jobs and failures, for a look at the dashboard")
    ] = False,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="ENGINE",
            help="what executes the jobs: local, simulated, slurm, kubernetes or libvirt",
        ),
    ] = None,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="the address to listen on")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="the port to listen on; 0: any free port")
    ] = 8700,
    store: StoreOption = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder",
            metavar="DIR",
            help="for files of the engine and outputs of jobs (default: beside the store)",
        ),
    ] = None,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby", help="wait while another service uses the store; take over when that service ends"
        ),
    ] = False,
    moved: Annotated[
        bool,
        typer.Option(
            "--moved",
            help="the store and its folder were moved here from another machine; jobs that ran there become lost",
        ),
    ] = False,
    speed: Annotated[
        float, typer.Option("--speed", min=1e-6, help="simulated: units of time that pass in a second")
    ] = 1.0,
    partition: Annotated[
        str | None,
        typer.Option(
            "--partition",
            metavar="NAME",
            help="slurm: use only this partition, and schedule the held jobs of users in it",
        ),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(
            "--records", metavar="DIR", help="slurm: the folder in which jobs of users record their start and end"
        ),
    ] = None,
    deadline: Annotated[
        float,
        typer.Option(
            "--deadline",
            min=1,
            metavar="SECONDS",
            help="slurm: withdraw a placement that Slurm has not started after this time",
        ),
    ] = 60.0,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig",
            metavar="FILE",
            help="kubernetes: access to the API server (default: the service account of the pod, KUBECONFIG or ~/.kube/config)",
        ),
    ] = None,
    context: Annotated[
        str | None, typer.Option("--context", metavar="NAME", help="kubernetes: the context in the kubeconfig")
    ] = None,
    scheduler_name: Annotated[
        str,
        typer.Option("--scheduler-name", metavar="NAME", help="kubernetes: schedule pods with this schedulerName"),
    ] = "slotwise",
    lease: Annotated[
        str | None,
        typer.Option(
            "--lease",
            metavar="NAMESPACE/NAME",
            help="kubernetes: the Lease that the service holds while it schedules (default: the one named like the scheduler)",
        ),
    ] = None,
    keep_days: Annotated[
        float,
        typer.Option(
            "--keep-days", min=0, metavar="DAYS", help="keep ended jobs and rows of the journal for this time"
        ),
    ] = 30.0,
    output_limit: Annotated[
        float,
        typer.Option("--output-limit", metavar="MB", min=0.01, help="local: largest output that is kept of a job"),
    ] = 10.0,
    output_quota: Annotated[
        float,
        typer.Option(
            "--output-quota",
            metavar="MB",
            min=1,
            help="local: largest size of all outputs together; the oldest outputs are deleted first",
        ),
    ] = 10_000.0,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", metavar="FILE", help="a TLS certificate (PEM)")
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="the private key of the certificate (PEM)")
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="HOST", help="a host name in the URLs of clients; repeatable"),
    ] = None,
    rate: Annotated[
        float,
        typer.Option("--rate", min=0.1, help="most requests a second with one token, unless its role is operate"),
    ] = 500.0,
    waiting: Annotated[
        int,
        typer.Option("--max-waiting", min=1, help="most waiting jobs of a tenant, unless an operator submits them"),
    ] = 1_000_000,
    default_time: Annotated[
        list[str] | None,
        typer.Option(
            "--default-time",
            metavar="[TENANT=]TIME",
            help="time limit of jobs without --time, such as 1h or physics=1d; repeatable",
        ),
    ] = None,
    max_time: Annotated[
        list[str] | None,
        typer.Option(
            "--max-time",
            metavar="[TENANT=]TIME",
            help="longest time limit; also the limit of jobs without one if there is no --default-time; repeatable",
        ),
    ] = None,
    apply: Annotated[
        bool,
        typer.Option("--apply", help="apply changes of the cluster file at the start; see `slotwise apply`"),
    ] = False,
    socket: Annotated[
        Path | None,
        typer.Option(
            "--socket",
            metavar="PATH",
            help="the Unix socket for clients on this machine (default: in the state folder)",
        ),
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option(
            "--peers",
            metavar="ROLE",
            help="the role of other users of this machine at the socket: read or submit (default: they are refused)",
        ),
    ] = None,
    hooks: Annotated[
        Path | None,
        typer.Option("--hooks", metavar="FILE", help="a file with [[hooks]] (default: the cluster file)"),
    ] = None,
    json_logs: Annotated[bool, typer.Option("--json-logs", help="write the log as lines of JSON")] = False,
) -> None:
    """Start the service: it accepts jobs, places them on servers and starts them. SIGTERM ends the service; its jobs go on, and the next service takes them over.

    \b
    Examples:
      slotwise serve --local
      slotwise serve --demo --speed 5
      slotwise serve mine.toml --engine simulated --speed 10
      slotwise serve --engine slurm --store postgresql:///slotwise
      slotwise serve --engine kubernetes --kubeconfig ~/.kube/config
      slotwise serve hosts.toml --engine libvirt
    """
    needs_extra()
    from slotwise.cli.compiling import shown
    from slotwise.live.serving import ServeOptions
    from slotwise.live.serving import serve as run
    from slotwise.live.time_limits import TimeLimits, by_tenant

    if local and engine not in (None, "local"):
        raise InputError(f"is given beside --engine {engine}", where="--local", remedy="leave one of them out")
    if peers not in (None, "read", "submit"):
        raise InputError(f"is {peers!r}", where="--peers", remedy="use read or submit")
    if (certificate is None) != (key is None):
        raise InputError("only one is given", where="--certificate and --key", remedy="give both")
    for option, path in (("--certificate", certificate), ("--key", key)):
        if path is not None and not path.is_file():
            raise InputError("there is no such file", where=f"{option} {path}", remedy="name a PEM file")
    chosen = engine or ("local" if local or source is None else "simulated")
    if demo and (source is not None or local or engine is not None):
        raise InputError("has a cluster of its own", where="--demo", remedy="leave out the cluster and the engine")
    if demo:
        chosen = "simulated"
    if demo and store is None:  # nothing of a demo is worth keeping
        temporary = tempfile.TemporaryDirectory(prefix="slotwise-demo-")
        store = f"sqlite:///{temporary.name}/demo.db"
    options = ServeOptions(
        source,
        chosen,
        host,
        port,
        store_of(store),
        folder,
        standby,
        speed,
        {"partition": partition, "records": records, "deadline": deadline},
        {"kubeconfig": kubeconfig, "context": context, "scheduler": scheduler_name, "lease": lease},
        keep_days,
        certificate,
        key,
        json_logs,
        tuple(names or ()),
        rate,
        waiting,
        moved,
        TimeLimits(by_tenant(default_time or (), "--default-time"), by_tenant(max_time or (), "--max-time")),
        apply,
        demo,
        socket.absolute() if socket is not None else None,
        peers,
        output_limit,
        output_quota,
        hooks,
    )
    with nullcontext() if json_logs else shown():
        run(options)


def replay(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Repeat every decision of the journal, and compare it with the recorded one. Nothing is changed.

    \b
    Examples:
      slotwise replay --store sqlite:///slotwise.db
    """
    needs_extra()
    from slotwise.live.replay import replay as again
    from slotwise.live.store import existing_store

    kept = existing_store(store_of(store))
    try:
        found = again(kept)
    finally:
        kept.close()
    if as_json:
        print(json.dumps(found._asdict() | {"differences": [one._asdict() for one in found.differences]}))
    else:
        print(f"{found.rows:,} rows, {found.placements:,} placements, {found.checkpoints} situations: ", end="")
        print("all as recorded" if not found.differences else f"{len(found.differences)} differ")
        for one in found.differences[:10]:
            print(f"  row {one.seq}: recorded {one.recorded}, decided {one.decided}")
    if found.differences:
        raise SlotwiseError("the journal does not replay with this version")


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="the backup to write")],
    store: StoreOption = None,
) -> None:
    """Write a backup of everything, while the service runs or not.

    \b
    Examples:
      slotwise backup nightly.gz --store sqlite:///slotwise.db
    """
    needs_extra()
    from slotwise.live.store import existing_store
    from slotwise.live.store.backup import save

    kept = existing_store(store_of(store))
    try:
        print(f"{save(kept, file):,} rows in {file}")
    finally:
        kept.close()


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a file of `slotwise backup`")],
    store: StoreOption = None,
    with_tokens: Annotated[
        bool, typer.Option("--with-tokens", help="also the tokens, those that were revoked since the backup, too")
    ] = False,
    allow_policy_code: Annotated[
        bool,
        typer.Option("--allow-policy-code", help="also if the policy is a Python file, which `serve` executes"),
    ] = False,
) -> None:
    """Fill an empty store from a backup; it may be of another kind than the one that was saved.

    Tokens are left out: make new ones with `slotwise token create`.

    \b
    Examples:
      slotwise restore nightly.gz --store postgresql:///slotwise
    """
    needs_extra()
    from slotwise.live.store import open_store
    from slotwise.live.store.backup import restore as fill

    if not file.is_file():  # before a store is made
        raise InputError("is not there", where=str(file), remedy="name a file of `slotwise backup`")
    kept = open_store(store_of(store))
    try:
        kept.become_writer()
        rows = fill(kept, file, tokens=with_tokens, policy_code=allow_policy_code)
        print(f"{rows:,} rows from {file}")
    finally:
        kept.close()
