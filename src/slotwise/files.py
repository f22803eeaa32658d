"""Writing files: all or nothing, and never over a file that is not ours.

A file is written beside its place and moved there when it is whole: a full disk, an error or Ctrl-C leaves what was
there before. A folder of results has a list of its files in `.slotwise`; only those are ever written over.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from slotwise.errors import InputError

MARKER = ".slotwise"


@contextmanager
def whole(path: str | Path) -> Iterator[Path]:
    """Open a place to write to, which becomes `path` when the block ends well."""
    path = Path(path)
    if path.is_dir():
        raise InputError("is a directory", where=str(path), remedy="give the name of a file")
    if path.exists() and not path.is_file():  # a device or a pipe: nothing to move into place
        with told(path):
            yield path
        return
    place = path.resolve()
    part = place.with_name(f".{os.getpid()}.partial.{place.name}")
    try:
        with told(path):
            yield part
            part.replace(place)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Raise a one-line error if the disk fails in this block. Errors of the disk that Polars raises are recognised,
    too."""
    try:
        yield
    except Exception as problem:
        found = _of_the_disk(problem)
        if found is None:
            raise
        raise _not_written(path, found) from problem


def _of_the_disk(problem: Exception) -> OSError | None:
    if isinstance(problem, OSError):
        return problem
    number = re.search(r"\(os error (\d+)\)", str(problem))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else None


def _not_written(path: Path, problem: OSError) -> InputError:
    remedy = "" if path.parent.is_dir() else f"make the folder {path.parent} first"
    return InputError(f"cannot be written ({problem.strerror or problem})", where=str(path), remedy=remedy)


def write_text(path: str | Path, text: str) -> None:
    with whole(path) as place:
        place.write_text(text, "utf-8")


def reserve(folder: Path, names: Iterable[str], flag: str = "--out") -> None:
    """Make sure, before any work is done, that results can go to `folder` and write over nothing of others'."""
    made = [parent for parent in [folder, *folder.parents] if not parent.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as problem:
        raise InputError(
            f"cannot be made a folder ({problem.strerror or problem})",
            where=f"{flag} {folder}",
            remedy="give another",
        ) from problem
    finally:
        for parent in made:  # it is made again when there is something to put in
            with suppress(OSError):
                parent.rmdir()
    _refuse_others(folder, names, flag)


def _refuse_others(folder: Path, names: Iterable[str], flag: str) -> None:
    ours = _listed(folder)
    for name in names:
        if (folder / name).exists() and name not in ours and not any(one.startswith(f"{name}/") for one in ours):
            raise InputError(
                f"holds {name!r}, which Slotwise did not write there",
                where=f"{flag} {folder}",
                remedy="give another folder, or move it away",
            )


def _listed(folder: Path) -> set[str]:
    try:
        return set((folder / MARKER).read_text("utf-8").splitlines()[1:])
    except (OSError, UnicodeDecodeError):
        return set()


@contextmanager
def filled(folder: Path, flag: str = "--out") -> Iterator[Path]:
    """Make a folder to write results to, whose files move to `folder` when the block ends well.

    Files of an earlier filling that are not written again are removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder))
    except OSError as problem:
        raise _not_written(folder, problem) from problem
    try:
        with told(folder):
            yield staging
            names = sorted(str(path.relative_to(staging)) for path in staging.rglob("*") if path.is_file())
            _refuse_others(folder, names, flag)
            before = _listed(folder)
            write_text(folder / MARKER, "\n".join(["written by slotwise:", *sorted({*names, *before})]) + "\n")
            for name in names:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (staging / name).replace(folder / name)
            for name in before - set(names):
                (folder / name).unlink(missing_ok=True)
            write_text(folder / MARKER, "\n".join(["written by slotwise:", *names]) + "\n")
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        with suppress(OSError):
            folder.rmdir()  # only where nothing was written
