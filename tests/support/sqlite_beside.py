"""An embedded store's file, looked at and changed behind its back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw


@contextmanager
def beside(path: Path) -> Iterator[apsw.Connection]:
    """A store may have the file open, and be waited for while it writes."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(30_000)
    try:
        yield connection
    finally:
        connection.close()
