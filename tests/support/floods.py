"""Floods of bad credentials."""

from __future__ import annotations

from queuey.errors import Throttled, Unauthenticated
from queuey.http.access import identify
from queuey.http.exchange import Call
from queuey.service import Service


def flood(service: Service, peer: str) -> None:
    """Send bad tokens from an address, until no more of them are looked at."""
    bad = Call("GET", "/v1/shop/jobs", "", {})
    bad.peer = peer
    while _is_looked_at(service, bad):
        pass


def _is_looked_at(service: Service, bad: Call) -> bool:
    try:
        identify(service, "Bearer bad", bad)
    except Unauthenticated:
        return True
    except Throttled:
        return False
    raise AssertionError("it proves nothing")
