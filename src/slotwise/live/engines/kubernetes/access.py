"""How to reach the API server: a kubeconfig file, or the service account of the pod that this process runs in."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
import ssl
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slotwise.errors import InputError
from slotwise.live.engines.kubernetes.http import Access, Headers
from slotwise.live.engines.kubernetes.pods import seconds

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REREAD_SECONDS = 60.0  # how long a token read from a file is used: the kubelet replaces it once an hour
EARLY_SECONDS = 60.0  # before its end, a token of a helper program is asked for anew
HELPER_SECONDS = 60.0


def find_access(kubeconfig: Path | None, context: str | None = None, account: Path = ACCOUNT) -> tuple[Access, str]:
    """Return how to reach the API server, and the namespace to use.

    Without a file named, the service account is used in a pod, and KUBECONFIG or ~/.kube/config elsewhere.
    """
    if kubeconfig is None and (account / "token").exists() and "KUBERNETES_SERVICE_HOST" in os.environ:
        return in_cluster(account)
    named = kubeconfig or Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    return from_file(Path(str(named).split(os.pathsep)[0]), context)


def in_cluster(account: Path = ACCOUNT) -> tuple[Access, str]:
    """Return access by the service account of this pod."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    shown = f"[{host}]" if ":" in host else host
    tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
    space = account / "namespace"
    return (
        Access(f"https://{shown}:{port}", tls, token_file(account / "token")),
        space.read_text().strip() if space.exists() else "default",
    )


def from_file(path: Path, context: str | None) -> tuple[Access, str]:
    """Return access by a kubeconfig file."""
    import yaml

    try:
        config = yaml.safe_load(path.read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"there is no file {path}", where="--kubeconfig", remedy="name a kubeconfig file, or run in a cluster"
        ) from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path), remedy="give a kubeconfig file") from None
    where = str(path)
    if not isinstance(config, dict):
        raise InputError("is no kubeconfig", where=where, remedy="`kubectl config view` shows one")
    name = context or config.get("current-context") or ""
    chosen = entry(config, "contexts", "context", name, where)
    cluster = entry(config, "clusters", "cluster", chosen.get("cluster") or "", where)
    user = entry(config, "users", "user", chosen["user"], where) if chosen.get("user") else {}
    url = str(cluster.get("server") or "")
    if not url.startswith(("https://", "http://")):
        raise InputError(f"server {url!r} is no URL", where=where, remedy="write it like https://host:6443")
    tls = trust(cluster, user, path.parent) if url.startswith("https://") else None
    return (
        Access(url, tls, credentials(user, path.parent, where), cluster.get("tls-server-name")),
        chosen.get("namespace") or "default",
    )


def entry(config: Mapping[str, Any], table: str, kind: str, name: str, where: str) -> dict[str, Any]:
    """Return an entry of a kubeconfig by its name."""
    there = {one["name"]: one.get(kind) or {} for one in config.get(table) or ()}
    if name not in there:
        raise InputError(
            f"no {kind} is called {name!r}", where=where, remedy=f"there are: {', '.join(there) or 'none'}"
        )
    found: dict[str, Any] = there[name]
    return found


def trust(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path) -> ssl.SSLContext:
    """Return a TLS context with the authorities and the certificate of a kubeconfig."""
    data = pem(cluster, "certificate-authority", folder)
    tls = ssl.create_default_context(cadata=data)
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    certificate, key = pem(user, "client-certificate", folder), pem(user, "client-key", folder)
    if certificate and key:
        load_certificate(tls, certificate, key)
    return tls


def load_certificate(tls: ssl.SSLContext, certificate: str, key: str) -> None:
    """Give a TLS context a client certificate. The ssl module reads files only, so the pair is in one for a moment."""
    descriptor, name = tempfile.mkstemp()  # readable for this user only
    try:
        with open(descriptor, "w") as file:
            file.write(f"{certificate}\n{key}\n")
        tls.load_cert_chain(name)
    finally:
        os.unlink(name)


def pem(values: Mapping[str, Any], name: str, folder: Path) -> str | None:
    """Return what a kubeconfig has under NAME-data, in base64, or in the file under NAME."""
    if values.get(f"{name}-data"):
        try:
            return base64.b64decode(values[f"{name}-data"], validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise InputError("is no base64", where=f"{name}-data", remedy="write the file anew") from None
    return (folder / values[name]).read_text() if values.get(name) else None


def credentials(user: Mapping[str, Any], folder: Path, where: str) -> Headers:
    """Return what sends a user's token with each request."""
    if user.get("tokenFile"):
        return token_file(folder / user["tokenFile"])
    if user.get("token"):
        return fixed({"Authorization": f"Bearer {user['token']}"})
    if user.get("username"):
        pair = f"{user['username']}:{user.get('password') or ''}".encode()
        return fixed({"Authorization": f"Basic {base64.b64encode(pair).decode()}"})
    if user.get("exec"):
        return Helper(user["exec"], where)
    if user.get("auth-provider"):
        raise InputError("has an auth-provider", where=where, remedy="use exec, a token or a certificate")
    return fixed({})


def fixed(headers: Mapping[str, str]) -> Headers:
    """Return the same headers for each request."""

    async def same() -> Mapping[str, str]:
        return headers

    return same


def token_file(path: Path) -> Headers:
    """Return the token that a file has, which is read again now and then."""
    kept: tuple[float, dict[str, str]] = (-REREAD_SECONDS, {})

    async def read() -> Mapping[str, str]:
        nonlocal kept
        if time.monotonic() - kept[0] >= REREAD_SECONDS:
            kept = time.monotonic(), {"Authorization": f"Bearer {path.read_text().strip()}"}
        return kept[1]

    return read


class Helper:
    """A program that prints a token (`exec` in a kubeconfig); it is run again before its token ends."""

    def __init__(self, spec: Mapping[str, Any], where: str) -> None:
        self._spec, self._where = spec, where
        self._token, self._until = "", 0.0
        self._lock = asyncio.Lock()

    async def __call__(self) -> Mapping[str, str]:
        async with self._lock:
            if time.time() >= self._until - EARLY_SECONDS:
                await self._run()
        return {"Authorization": f"Bearer {self._token}"}

    async def _run(self) -> None:
        spec = self._spec
        environment = os.environ | {one["name"]: one["value"] for one in spec.get("env") or ()}
        asked = {"apiVersion": spec.get("apiVersion"), "kind": "ExecCredential", "spec": {"interactive": False}}
        try:
            process = await asyncio.create_subprocess_exec(
                spec["command"], *(spec.get("args") or ()), stdout=asyncio.subprocess.PIPE,
                env=environment | {"KUBERNETES_EXEC_INFO": json.dumps(asked)},
            )  # fmt: skip
            text, _ = await asyncio.wait_for(process.communicate(), HELPER_SECONDS)
            status = json.loads(text)["status"]
            self._token = status["token"]
        except (OSError, ValueError, KeyError, TimeoutError) as error:
            raise InputError(
                f"the helper {spec.get('command')!r} gave no token: {type(error).__name__}: {error}",
                where=self._where,
                remedy="run it by hand to see why",
            ) from None
        self._until = seconds(status.get("expirationTimestamp")) or float("inf")
