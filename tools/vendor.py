"""Fetch the libraries of the dashboard from npm, check them, and keep the files that are shipped: python tools/vendor.py

Needs `npm` on the path. Users and the build of the wheel do not: the files are part of the repository. `--check` compares the
files that are there with the packages and changes nothing.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SHIPPED = ROOT / "src" / "slotwise" / "live" / "dashboard" / "static" / "vendor"
FOR_TESTS = ROOT / "build" / "vendor"


class Package(NamedTuple):
    """A package of npm: its checksum as npm publishes it, and the files to keep, each with its name here."""

    name: str
    integrity: str
    files: dict[str, str]
    folder: Path = SHIPPED


PACKAGES = (
    Package(
        "preact@11.2.0",
        "sha512-/HfHI/7N84e6GrWBJ3J280z3mLaRJiDcSvj/A+y/4AbLnND/1UlGHe1sR6oYuTGwId0nP7dqDU9OnLxMPZ7xBg==",
        {"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "hooks.js", "LICENSE": "preact.LICENSE"},
    ),
    Package(
        "htm@3.1.1",
        "sha512-983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ==",
        {"dist/htm.module.js": "htm.js", "LICENSE": "htm.LICENSE"},
    ),
    Package(
        "uplot@1.6.32",
        "sha512-KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        {"dist/uPlot.esm.js": "uplot.js", "dist/uPlot.min.css": "uplot.css", "LICENSE": "uplot.LICENSE"},
    ),
    Package(
        "axe-core@4.14.0",
        "sha512-9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ==",
        {"axe.min.js": "axe.js"},
        FOR_TESTS,
    ),
)


def fetch(package: Package, folder: Path) -> dict[str, bytes]:
    """Download a package, check it and return the contents of its files by their names here."""
    called = ["npm", "pack", "--silent", package.name]
    packed = folder / subprocess.run(called, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()
    found = "sha512-" + base64.b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode()
    if found != package.integrity:
        sys.exit(f"{package.name}: the checksum is {found}, not {package.integrity}")
    contents = {}
    with tarfile.open(packed) as archive:
        for inside, name in package.files.items():
            member = archive.extractfile(f"package/{inside}")
            assert member is not None, f"{package.name} has no {inside}"
            contents[name] = without_map(member.read())
    return contents


def without_map(content: bytes) -> bytes:
    """Drop the line that names a source map: it is not shipped, and browsers would ask for it."""
    return b"\n".join(line for line in content.split(b"\n") if not line.startswith(b"//# sourceMappingURL="))


def main(arguments: list[str]) -> None:
    """Fetch the packages that are named, or all."""
    check, names = "--check" in arguments, [one for one in arguments if not one.startswith("-")]
    with tempfile.TemporaryDirectory() as folder:
        for package in PACKAGES:
            if names and package.name.split("@")[0] not in names:
                continue
            package.folder.mkdir(parents=True, exist_ok=True)
            for name, content in fetch(package, Path(folder)).items():
                path = package.folder / name
                if not check:
                    path.write_bytes(content)
                elif not path.exists() or path.read_bytes() != content:
                    sys.exit(f"{path.relative_to(ROOT)} differs from {package.name}; run python tools/vendor.py")
            print(package.name, "is as published" if check else f"-> {package.folder.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
