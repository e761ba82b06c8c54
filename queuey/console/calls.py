"""Which calls are for the console.

This module loads nothing of the console: it is asked about each call of the server.
"""

from __future__ import annotations

from queuey.http.exchange import Call

__all__ = ["ROOT", "is_console"]

ROOT = "/console"


def is_console(call: Call) -> bool:
    """By the path; ``/`` only for a browser, which names HTML in its Accept header."""
    path = call.path
    if path.startswith(ROOT):
        return len(path) == len(ROOT) or path[len(ROOT)] == "/"
    return path == "/" and call.method in ("GET", "HEAD") and "text/html" in call.headers.get("accept", "").lower()
