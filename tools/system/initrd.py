"""Write the initrd of a small guest to standard output: initrd.py FOLDER, where Debian's kernel and busybox-static are unpacked.

The guest executes the user data of its seed (the disk with the label `cidata`) with a shell, writes the exit status to the serial console as
`slotwise-exit: N`, and powers off.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

# in the order in which they need each other: disks, then the file system of the seed
MODULES = (
    "virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk", "cdrom", "isofs",
)  # fmt: skip
INIT = f"""#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for one in {" ".join(MODULES)}; do insmod /modules/$one.ko; done
echo the guest is up
mount -t iso9660 -o ro /dev/vdb /seed && sh /seed/user-data
echo "slotwise-exit: $?"
poweroff -f
"""


def entry(name: str, mode: int, data: bytes = b"") -> bytes:
    """Return a file or folder as an archive of cpio (newc) holds it."""
    path = name.encode() + b"\0"
    fields = [0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0]
    head = b"070701" + b"".join(b"%08x" % one for one in fields) + path
    return padded(head) + padded(data)


def padded(data: bytes) -> bytes:
    """Return whole words of 4 bytes."""
    return data + bytes(-len(data) % 4)


def main() -> None:
    """Write the archive."""
    root = Path(sys.argv[1])
    found = {path.stem: path for path in root.glob("lib/modules/*/kernel/**/*.ko")}
    parts = [entry(name, 0o040755) for name in ("bin", "dev", "proc", "sys", "seed", "modules")]
    parts.append(entry("bin/busybox", 0o100755, (root / "bin/busybox").read_bytes()))
    parts += [entry(f"modules/{one}.ko", 0o100644, found[one].read_bytes()) for one in MODULES]
    parts += [entry("init", 0o100755, INIT.encode()), entry("TRAILER!!!", 0)]
    sys.stdout.buffer.write(gzip.compress(b"".join(parts), mtime=0))


if __name__ == "__main__":
    main()
