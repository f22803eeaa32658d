"""What a confined job must not reach or change, besides the folder of its engine: see `engines.supervisor.confining`.

It runs as the user of the service. So it must not change what this user executes either, such as the program of the service: the
service would execute the job's commands when it starts the next time.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import slotwise
from slotwise.live.addresses import config_file, state_folder
from slotwise.live.hooks.definition import Hook
from slotwise.live.store.protocol import Store

# Of the home directory: keys and passwords, which jobs must not read, and what shells and desktops execute, which jobs must not change.
KEYS = (
    ".ssh",
    ".gnupg",
    ".netrc",
    ".pgpass",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".config/gcloud",
    ".git-credentials",
)
STARTED = (
    ".profile", ".bash_profile", ".bash_login", ".bash_logout", ".bashrc", ".zshenv", ".zprofile", ".zshrc", ".config/fish", ".config/systemd",
    ".config/autostart", ".local/bin", ".local/lib", "bin",
)  # fmt: skip


def out_of_reach(
    store: Store, folder: Path, named: Iterable[str | Path | None], hooks: Sequence[Hook] = ()
) -> dict[str, list[Path]]:
    """Return the `hidden` and the `fixed` paths of an engine. `named` are files that the operator has named."""
    home = Path.home()
    hidden = [folder, state_folder(), config_file().parent, *(home / name for name in KEYS)]
    if store.file is not None:
        path = Path(os.path.realpath(store.file))
        hidden += [path, *(path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm", "-journal", ".lock"))]
    hidden += [Path(one) for one in named if one is not None]
    hidden += [one.secret_file for one in hooks if one.secret_file is not None]
    commands = [shutil.which(one.command[0]) for one in hooks if one.command]
    fixed = [Path(one) for one in (sys.prefix, sys.base_prefix, *slotwise.__path__, *commands) if one is not None]
    fixed += [home / name for name in STARTED]
    return {"hidden": hidden, "fixed": [path for path in fixed if os.access(path, os.W_OK)]}
