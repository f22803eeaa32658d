"""Who listens on a port of this machine: a token is not given to a program of another user that has taken the port.

Standard library only: the client imports this module.
"""

from __future__ import annotations

import os
import sys

LISTENING = "0A"
TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
# Environment variable that names another user whose service is trusted with tokens.
VARIABLE = "SLOTWISE_SERVICE_USER"


def listeners(port: int) -> set[int] | None:
    """Return the numbers of the users who listen on a port; None where the system does not tell."""
    found: set[int] = set()
    told = False
    for table in TABLES:
        try:
            with open(table) as file:
                rows = [line.split() for line in file][1:]
        except OSError:
            continue
        told = True
        found |= {int(row[7]) for row in rows if row[3] == LISTENING and int(row[1].rpartition(":")[2], 16) == port}
    return found if told else None


def trusted() -> set[int]:
    """Return the users whose services may be given a token: this user, root, and the account that the environment names."""
    users = {0, os.geteuid()}
    name = os.environ.get(VARIABLE)
    if name:
        import pwd

        try:
            users.add(pwd.getpwnam(name).pw_uid)
        except KeyError:
            print(f"slotwise: {VARIABLE}: no account is called {name!r}", file=sys.stderr)
    return users


def stranger(port: int) -> str | None:
    """Return why a token must not be sent to a port of this machine; None if it may be sent."""
    users = listeners(port)
    if users is None or (users and users <= trusted()):
        return None
    if not users:
        return f"who listens on port {port} cannot be told"
    return (
        f"a program of user {min(users - trusted())} listens on port {port}, so no token is sent to it; if that is the service, "
        f"set {VARIABLE} to its account, or use its Unix socket"
    )
