"""The seed of cloud-init (data source NoCloud): an ISO 9660 image with the label `cidata` and the files `meta-data` and `user-data`.

Only as much of ISO 9660 as this takes: one folder, names in capitals (which Linux shows in small letters), no extensions.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

SECTOR = 2048  # bytes, of ISO 9660
FIRST = 19  # sector of the folder; 16 to 18 are the volume's description, its end and the path table
TIME = bytes([126, 1, 1, 0, 0, 0, 0])  # 2026-01-01: the same seed for the same job


def seed(instance: str, user_data: str) -> bytes:
    """Return the image for an instance of cloud-init."""
    files = {"META-DATA": f"instance-id: {instance}\nlocal-hostname: {instance}\n", "USER-DATA": user_data}
    return image("cidata", {name: text.encode() for name, text in files.items()})


def image(label: str, files: Mapping[str, bytes]) -> bytes:
    """Return an image with these files."""
    at, places = FIRST + 1, []
    for data in files.values():
        places.append(at)
        at += sectors(len(data))
    own = entry(b"\0", FIRST, SECTOR, folder=True)
    folder = own + entry(b"\1", FIRST, SECTOR, folder=True)
    for place, (name, data) in sorted(zip(places, files.items(), strict=True), key=lambda one: one[1][0]):
        folder += entry(f"{name};1".encode(), place, len(data))
    paths = struct.pack("<BBIH", 1, 0, FIRST, 1) + b"\0\0"
    parts = [
        bytes(16 * SECTOR),
        volume(label, at, len(paths), own),
        padded(b"\xffCD001\1"),
        padded(paths),
        padded(folder),
    ]
    return b"".join(parts + [padded(data) for data in files.values()])


def volume(label: str, size: int, paths: int, root: bytes) -> bytes:
    """Return the primary volume descriptor."""
    head = b"\1CD001\1\0" + b" " * 32 + label.encode().ljust(32) + bytes(8) + both32(size) + bytes(32)
    head += both16(1) + both16(1) + both16(SECTOR) + both32(paths)
    head += struct.pack("<II", 18, 0) + struct.pack(">II", 0, 0) + root
    head += b" " * (128 * 4 + 37 * 3)
    head += (b"2026010100000000" + b"\0") * 2 + (b"0" * 16 + b"\0") * 2 + b"\1\0"
    return padded(head)


def entry(name: bytes, at: int, size: int, *, folder: bool = False) -> bytes:
    """Return the record of a file or folder."""
    body = b"\0" + both32(at) + both32(size) + TIME + bytes([2 if folder else 0, 0, 0]) + both16(1)
    body += bytes([len(name)]) + name
    body += b"\0" * (len(body) % 2 == 0)  # with its length, an even number of bytes
    return bytes([len(body) + 1]) + body


def both16(number: int) -> bytes:
    """Return a number in both orders of bytes."""
    return struct.pack("<H", number) + struct.pack(">H", number)


def both32(number: int) -> bytes:
    """Return a number in both orders of bytes."""
    return struct.pack("<I", number) + struct.pack(">I", number)


def sectors(size: int) -> int:
    """Return how many sectors a file takes."""
    return max(1, -(-size // SECTOR))


def padded(data: bytes) -> bytes:
    """Return whole sectors."""
    return data.ljust(sectors(len(data)) * SECTOR, b"\0")
