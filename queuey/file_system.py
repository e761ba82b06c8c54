"""The file system that a folder lies on.

On one of the network, locks and shared memory are not reliable.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["file_system_of", "network_file_system_of"]

MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")
"""Blanks and backslashes of a path; the kernel leaves all other characters as they are."""
_NETWORK = frozenset(
    [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "orangefs",
        "smb3",
        "smbfs",
    ]
    + [f"fuse.{name}" for name in ("ceph-fuse", "gcsfuse", "glusterfs", "juicefs", "rclone", "s3fs", "sshfs")]
)


def network_file_system_of(path: Path) -> str | None:
    """The type of the file system that ``path`` lies on; None if it is local.

    On one of the network SQLite could lose what it stored.
    """
    kind = file_system_of(path)
    return kind if kind in _NETWORK else None


def file_system_of(path: Path) -> str:
    """The kernel's name of the file system that ``path`` lies on.

    Empty if the kernel does not say.
    """
    target = os.path.realpath(path)
    best, kind = "", ""
    try:
        lines = os.fsdecode(MOUNTS.read_bytes()).split("\n")
    except OSError:
        return ""
    for line in filter(None, lines):
        left, _, right = line.partition(" - ")
        mount = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), left.split(" ")[4])
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, right.split(" ")[0]
    return kind
