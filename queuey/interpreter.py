"""How the interpreter that runs was built. ``scripts/env.sh`` runs this file with interpreters that have no Queuey.

One that was built with PGO (profile-guided optimization) takes a sixth less time for an append (docs/operations.md).
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

_DEBIAN = Path("/etc/debian_version")
"""Debian and those that follow it build their own interpreter with PGO, and its configuration does not say so."""


def has_pgo() -> bool:
    """Whether this interpreter was built with PGO."""
    said = sysconfig.get_config_var("CONFIG_ARGS") or ""
    return "--enable-optimizations" in said or (sys.base_prefix == "/usr" and _DEBIAN.exists())


def how_built() -> str:
    """With PGO or without it, as people read it."""
    return "built with PGO" if has_pgo() else "built without PGO"


if __name__ == "__main__":
    sys.exit(not has_pgo())
