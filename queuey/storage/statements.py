"""Named statements of a store.

Each stands in its file below a line ``-- name: what it does``.
"""

from __future__ import annotations

from queuey.packaged import packaged

__all__ = ["load_statements"]


def load_statements(package: str, *names: str) -> dict[str, str]:
    """The statements of these files of a package, by name."""
    found = {}
    for name in names:
        text = packaged(package, name).decode()
        for part in text.split("\n-- ")[1:]:
            head, _, body = part.partition("\n")
            found[head.partition(":")[0]] = body.strip()
    return found
