"""What the client sends as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from queuey.errors import InvalidParameter

__all__ = ["to_json"]

_encode = json.JSONEncoder(allow_nan=False).encode
_WRONG = (TypeError, ValueError, RecursionError)


def to_json(members: Mapping[str, Any]) -> bytes:
    """An object of JSON.

    >>> to_json({"visibility": 60})
    b'{"visibility": 60}'

    :raises InvalidParameter: JSON has no form for a value, such as ``nan``. The error names the member.
    """
    try:
        return _encode(members).encode()
    except _WRONG as error:
        raise InvalidParameter(
            problems={_culprit(members): f"cannot be written as JSON: {str(error).rstrip('.')}"}
        ) from error


def _culprit(members: Mapping[str, Any], above: str = "") -> str:
    """The first member that has no form in JSON, by the names that lead to it: ``backoff.first``."""
    for name, value in members.items():
        where = f"{above}{name}"
        try:
            _encode(value)
        except _WRONG:
            return _culprit(value, f"{where}.") if isinstance(value, Mapping) else where
    return above.rstrip(".") or "body"
