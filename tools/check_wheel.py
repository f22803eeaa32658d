"""Installs the packages into clean environments and uses them: `make check-wheel`, or `python tools/check_wheel.py [PYTHON]...`.

For each Python the wheel goes into a new virtual environment in a temporary folder. The commands, the library and the live service (slotwise[serve])
are used there, away from the source tree. The core tests of the unpacked sdist run against the installed package. The sdist is installed, too, with the
first of the Pythons. Takes minutes (downloads, and every kernel is compiled anew), so it is no part of `make test`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMANDS = (
    ("slotwise", "--version"),
    ("slotwise", "--help"),
    ("slotwise", "scenarios"),
    ("slotwise", "policies"),
    ("slotwise", "simulate", "example1"),
    ("slotwise", "compare", "table1", "--policy", "algorithm1,best-fit", "--set", "run.events=20000", "--out", "page"),
    ("slotwise", "capacity", "best-fit-trap"),
    ("slotwise", "trace", "generate", "google-like", "-o", "jobs.parquet", "--jobs", "2000"),
    ("python", "-m", "slotwise", "--version"),
    ("python", "-c", "import slotwise; print(slotwise.simulate('example1', overrides=['run.events=2000']).mean_queue)"),
    ("mypy", "--strict", "typed.py"),
)  # fmt: skip
# what an sdist must hold, so that `make test` works in it
SHIPPED = (
    "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "mkdocs.yml", "pyproject.toml", "requirements.lock",
    "docs/index.md", "docs/figures/policies.svg", "examples/own_policy.py",
    "src/slotwise/py.typed", "tests/test_layers.py", "tools/check_wheel.py",
)  # fmt: skip
SERVED = """
import subprocess, sys
command = ["slotwise", "serve", "--local", "--port", "0", "--store", "sqlite:///x.db"]
service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
try:
    line = service.stdout.readline()
    assert line.startswith("listening on "), line
    job = ["slotwise", "submit", "--server", line.split()[-1], "--wait", "--", "sh", "-c", "echo from the wheel; exit 3"]
    done = subprocess.run(job, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "from the wheel\\n"), done
    print(done.stdout)
finally:
    service.terminate()
    service.wait()
"""
TYPED = "import slotwise\n\nqueue: float = slotwise.simulate('example1').mean_queue.mean\n"


def call(command: tuple[str | Path, ...], where: Path, environment: dict[str, str]) -> None:
    """Do it, and show what it said where it fails."""
    begun = time.perf_counter()
    done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False)
    words = " ".join([Path(command[0]).name, *map(str, command[1:])])
    if done.returncode != 0 or not (done.stdout or done.stderr):
        sys.exit(f"FAILED ({done.returncode}): {words}\n{done.stdout}{done.stderr}")
    print(f"  {time.perf_counter() - begun:6.1f} s  {words[:110]}", flush=True)


def environment_in(folder: Path, python: str) -> tuple[Path, dict[str, str]]:
    """A new virtual environment, and variables that lead nowhere else."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NUMBA", "VIRTUAL_ENV"))}
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    return programs, clean | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}


def check(python: str, package: Path, tests: Path | None) -> None:
    """Install `package` for `python`, use it, and run the core tests that stand in `tests`."""
    version = subprocess.run([python, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    print(f"{version}, {package.name}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs, environment = environment_in(folder / "venv", python)
        pip = (programs / "python", "-m", "pip", "install", "--disable-pip-version-check")
        call((*pip, str(package)), folder, environment)
        call((*pip, "mypy", "pytest", "hypothesis"), folder, environment)
        (folder / "typed.py").write_text(TYPED)
        for command in COMMANDS:
            call((programs / command[0], *command[1:]), folder, environment)
        call((*pip, f"{package}[serve]"), folder, environment)
        if sys.platform == "linux":
            own = environment | {"XDG_STATE_HOME": str(folder / "state")}
            call((programs / "python", "-c", SERVED), folder, own)
        if tests is not None:
            call((programs / "python", "-m", "pytest", "-m", "core", "-p", "no:cacheprovider"), tests, environment)


def main() -> None:
    """Check the packages in dist/."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("python", nargs="*", default=[sys.executable], help="interpreters (default: this one)")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="where the packages are")
    asked = parser.parse_args()
    wheels, sdists = sorted(asked.dist.glob("*.whl")), sorted(asked.dist.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        sys.exit(f"{asked.dist}: needs one wheel and one sdist; run make clean dist")
    with tempfile.TemporaryDirectory() as name:
        with tarfile.open(sdists[0]) as archive:
            archive.extractall(name, filter="data")
        source = next(Path(name).iterdir())
        missing = [path for path in SHIPPED if not (source / path).is_file()]
        if missing:
            sys.exit(f"{sdists[0].name} lacks {', '.join(missing)}")
        # the tests shall meet the installed package only
        (source / "src").rename(source / "src-not-to-be-found")
        for python in asked.python:
            check(python, wheels[0], source)
        check(asked.python[0], sdists[0], None)
    print("all of it works")


if __name__ == "__main__":
    main()
