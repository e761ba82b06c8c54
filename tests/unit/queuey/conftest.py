"""What the unit tests of the server share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def ini(tmp_path: Path) -> Callable[..., str]:
    """Writes an ini file and gives its path."""

    def write(text: str, name: str = "queuey.ini") -> str:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write
