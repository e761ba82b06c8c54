"""Results that are kept as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from queuey.errors import ConfigurationError
from queuey.whole_files import write_whole

__all__ = ["read_json", "write_json"]


def write_json(document: Any, path: Path) -> None:
    """Write it, whole or not at all."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


def read_json(path: Path) -> dict[str, Any]:
    """The document in a file; empty if it is JSON, and no document.

    :raises ConfigurationError: it is no JSON.
    """
    try:
        found = msgspec.json.decode(path.read_bytes())
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{path}: this is no JSON: {error}") from error
    return found if isinstance(found, dict) else {}
