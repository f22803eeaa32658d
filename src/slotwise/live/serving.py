"""`slotwise serve`: everything together in one process, until it is told to end."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import uvicorn

from slotwise.core.contract.hooks import HOOKS
from slotwise.errors import InputError, SlotwiseError
from slotwise.live import unix_sockets
from slotwise.live.addresses import socket_file
from slotwise.live.api.app import make_app
from slotwise.live.api.connections import PeerConnection, notice_lost_peers
from slotwise.live.api.gate import LOOPBACK
from slotwise.live.api.limits import RATE, WAITING, Limits
from slotwise.live.auth import Guard, account_name, keep_own_token
from slotwise.live.changes.starting import Source
from slotwise.live.dashboard.sessions import Sessions, keep_key
from slotwise.live.demo import DemoEngine, Visitor
from slotwise.live.demo import setup as demo_setup
from slotwise.live.engines.local import OUTPUT_LIMIT, OUTPUT_QUOTA, LocalEngine
from slotwise.live.engines.protocol import Engine
from slotwise.live.engines.supervisor import confining
from slotwise.live.home import Home
from slotwise.live.hooks.definition import Hook, read_hooks
from slotwise.live.out_of_reach import out_of_reach
from slotwise.live.restart import Setup
from slotwise.live.retention import DAY, Retention
from slotwise.live.service import Service
from slotwise.live.settings import Ready, prepare
from slotwise.live.store import open_store
from slotwise.live.time_limits import TimeLimits
from slotwise.scheduling import POLICIES, make_policy
from slotwise.simulation.run import ahead

log = logging.getLogger(__name__)


class ServeOptions(NamedTuple):
    """What the command line says."""

    source: str | None
    engine: str
    host: str
    port: int
    store: str
    folder: Path | None
    """where the engine keeps claims and outputs; None: where the store says, or beside it"""
    standby: bool
    speed: float
    slurm: dict[str, Any]
    """options of that engine"""
    kubernetes: dict[str, Any]
    """options of that engine"""
    keep_days: float
    certificate: Path | None
    key: Path | None
    json_logs: bool
    names: tuple[str, ...] = ()
    """by which clients may call it, beside its own"""
    rate: float = RATE
    waiting: int = WAITING
    moved: bool = False
    """store and folder have come from another machine"""
    times: TimeLimits = TimeLimits()
    apply: bool = False
    """take over what differs in the cluster file"""
    demo: bool = False
    socket: Path | None = None
    """the Unix socket; None: beside the token file"""
    peers: str | None = None
    """the role of other users of this machine who come through the socket; None: they are refused"""
    output_limit: float = OUTPUT_LIMIT / 1e6
    """megabytes of one job's output"""
    output_quota: float = OUTPUT_QUOTA / 1e6
    """megabytes of all outputs"""
    hooks: Path | None = None
    """a file with [[hooks]]; None: the cluster file may have some"""


class JsonLines(logging.Formatter):
    """A log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        row: dict[str, Any] = {
            "time": record.created,
            "level": record.levelname.lower(),
            "from": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            row["exception"] = self.formatException(record.exc_info)
        return json.dumps(row, ensure_ascii=False)


def set_up_logs(*, as_json: bool) -> None:
    """To standard error; the time in UTC."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    text.converter = time.gmtime
    handler.setFormatter(JsonLines() if as_json else text)
    root = logging.getLogger("slotwise")
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)


# Seconds that a thread keeps the interpreter while another thread wants it. So an answer goes out before the loop has
# tidied up. With 0.0005 a submission took 18 ms beside a thread that read a large body, with 0.00005 it took 1.3 ms; neither cost throughput.
SWITCH_SECONDS = 0.0001
# Requests whose store is asked at the same time; one token has at most 8 of them (`gate.AT_ONCE`). Python's default is the number of CPUs and 4.
THREADS = 64


class UnixServer(uvicorn.Server):
    """Listens on a Unix socket, too, and says when it listens."""

    def __init__(self, config: uvicorn.Config, address: str, service: Service, unix: socket.socket) -> None:
        super().__init__(config)
        self.address, self.service, self.unix = address, service, unix

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "slotwise-request"))

        def connection() -> PeerConnection:
            return PeerConnection(self.config, self.server_state, self.lifespan.state)

        self.servers.append(await asyncio.get_running_loop().create_unix_server(connection, sock=self.unix))
        print(f"listening on {self.address}", flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End in order; uvicorn's own way would send the signal once more, before the service is closed."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self.service.loop.ended.is_set()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, before anything is promised."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        # the protocol is named, since asyncio sends small answers at once (TCP_NODELAY) only where it is; otherwise each may wait for 40 ms
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        notice_lost_peers(sock)
        sock.bind((host, port))
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}:{port}: {error.strerror}",
            where="--port",
            remedy="use another port, or end who uses it",
        ) from None
    return sock


def compile_ahead(setup: Setup) -> None:
    """Compile what the policy needs in helper processes that report their progress: the first start takes a while."""
    if setup.policy in POLICIES:
        policy = make_policy(setup.policy, **setup.options)
        drivers = (ahead.SCHEDULER, ahead.REST)
        ahead.compile_pieces(ahead.pieces_of(policy, ("join", *HOOKS), drivers, everything=True))


def say_isolation(engine: Engine, peers: str | None) -> None:
    """Say at the start what separates tenants, and refuse to let other users in where nothing does."""
    if engine.name != "local":
        return
    separate = getattr(engine, "runs_as_submitter", False)
    if separate:
        log.info("jobs run as the users who submit them")
        return
    if peers == "submit":
        raise InputError(
            "lets other users execute commands as the user of this service",
            where="--peers",
            remedy="run the service as root, so that jobs run as their users; or use --peers read",
        )
    user = account_name(os.geteuid())
    if isinstance(engine, LocalEngine) and engine.confines:
        log.warning(
            "all jobs run as user %s: tenants are no full isolation. Jobs of callers who do not operate are kept out of the store, "
            "the tokens and the outputs of other jobs (Landlock, version %d%s), but may do all else that this user may",
            user, confining.version(), "" if confining.keeps_signals() else "; they can signal other jobs",
        )  # fmt: skip
        return
    log.warning(
        "all jobs run as user %s: tenants are no isolation; a job can read the store, the tokens and the outputs of other jobs",
        user,
    )


def hooks_for(options: ServeOptions) -> list[Hook]:
    """Return the hooks of the operator's file."""
    if options.hooks is not None:
        return read_hooks(str(options.hooks))
    has_file = (
        options.source is not None and Path(options.source).is_file()
    )  # else it is a shipped name, or a mistake
    return read_hooks(str(options.source)) if has_file else []


def serve(options: ServeOptions) -> None:
    """Run until SIGTERM or SIGINT; jobs go on, and the next `serve` adopts them."""
    set_up_logs(as_json=options.json_logs)
    if options.host not in LOOPBACK and options.certificate is None:
        log.warning("listening on %s without TLS: tokens and jobs can be read on the way", options.host)
    hooks = hooks_for(options)
    sock = listen(options.host, options.port)
    store = open_store(options.store)
    try:
        home = Home(store, options.engine, options.folder, moved=options.moved)
        if options.demo:
            ready = Ready(DemoEngine(speed=options.speed, world=home.folder / "world"), demo_setup())
        else:
            ready = prepare(
                options.source,
                options.engine,
                home.folder,
                speed=options.speed,
                slurm=options.slurm,
                kubernetes=options.kubernetes,
                store=store.identity().identity,
                outputs={
                    "output_limit": int(options.output_limit * 1e6),
                    "output_quota": int(options.output_quota * 1e6),
                    "keep_seconds": options.keep_days * DAY,
                    **out_of_reach(store, home.folder, (options.key, options.source, options.hooks), hooks),
                },
            )
        compile_ahead(ready.setup)
        retention = Retention(journal=options.keep_days * DAY, jobs=options.keep_days * DAY)
        service = Service(
            store,
            ready.engine,
            ready.setup,
            home=home,
            retention=retention,
            standby=options.standby,
            source=Source(options.source, options.apply),
            hooks=hooks,
        )
    except BaseException:
        store.close()
        sock.close()
        raise
    visitor = Visitor(service, ready.engine, speed=options.speed) if isinstance(ready.engine, DemoEngine) else None
    try:
        port = sock.getsockname()[1]
        guard = Guard(store, options.peers)
        path = options.socket or socket_file(options.host, port)
        unix = unix_sockets.listen(path, for_all=options.peers is not None)
        say_isolation(ready.engine, options.peers)
        keep_own_token(guard, options.host, port)
        hosts = {*LOOPBACK, options.host, socket.gethostname(), socket.getfqdn(), *options.names}
        scheme = "http" if options.certificate is None else "https"
        shown = f"[{options.host}]" if ":" in options.host else options.host
        config = uvicorn.Config(
            make_app(
                service,
                guard,
                hosts,
                Limits(store.waiting_of, rate=options.rate, waiting=options.waiting),
                options.times,
                Sessions(guard, keep_key(home.folder / "session-key")),
                f"{scheme}://{'127.0.0.1' if options.host in ('0.0.0.0', '::') else shown}:{port}",
            ),
            http=PeerConnection,
            proxy_headers=False,  # who asks is told by tokens and by the kernel, not by headers
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=2,
            ssl_certfile=options.certificate,
            ssl_keyfile=options.key,
        )
        gc.collect()
        gc.freeze()  # what was loaded stays: it need not be looked through again and again
        gc.set_threshold(400_000, 20, 50)  # a bulk submission makes 100,000 objects that all go
        sys.setswitchinterval(SWITCH_SECONDS)
        if visitor is not None:
            visitor.start()
        try:
            UnixServer(config, f"{scheme}://{shown}:{port}", service, unix).run(sockets=[sock])
        finally:
            path.unlink(missing_ok=True)
    finally:
        if visitor is not None:
            visitor.stop()
        service.close()
    if service.loop.failure is not None:
        raise SlotwiseError(service.loop.trouble or "the service failed")
