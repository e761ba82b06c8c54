"""The server about itself."""

from __future__ import annotations

import hmac
from functools import cache
from ipaddress import IPv6Address, ip_address
from math import nan

from queuey._version import __version__
from queuey.errors import ClockUnsafe, Forbidden, StorageUnavailable
from queuey.http.exchange import JSON, Answer, Call, Target, json_answer
from queuey.model import Consistency
from queuey.monitor.loading import exposed
from queuey.monitor.metrics import CLOCK_SKEW, STORAGE_PROBLEMS, STORAGE_WARNINGS, WATERMARK_AGE
from queuey.packaged import packaged
from queuey.service import Service

_TEXT = "text/plain; charset=utf-8"
_OF_PROXIES = ("x-forwarded-for", "forwarded", "x-real-ip", "via")
"""Headers by which a proxy says that it passes a request on."""


async def heartbeat(service: Service, call: Call, target: Target) -> Answer:
    """``OK`` if the server is ready, or 503 with the problems.

    Warnings stand in a header: they do not make the server unready.
    """
    problems = service.problems()
    if problems:
        raise StorageUnavailable("; ".join(problems))
    warnings = [("queuey-warnings", "; ".join(found))] if (found := service.warnings()) else []
    return Answer(200, b"OK", [("content-type", _TEXT), *warnings])


async def alive(service: Service, call: Call, target: Target) -> Answer:
    """Show that the process answers, whatever its store does."""
    return Answer(200, b"OK", [("content-type", _TEXT)])


async def version(service: Service, call: Call, target: Target) -> Answer:
    """The version that runs here."""
    return json_answer({"name": "queuey", "version": __version__, "storage": service.settings.storage.backend})


async def metrics(service: Service, call: Call, target: Target) -> Answer:
    """Counters in the Prometheus text form.

    They name applications and show their load.

    :raises Forbidden: the caller lacks the token; or, if none is set, is not on this machine.
    """
    token: str = service.settings.metrics.token
    if token and not _has_token(call, token):
        raise Forbidden("This server gives its metrics only with Authorization: Bearer and its [metrics] token.")
    if not token and not _is_from_here(call):
        raise Forbidden(
            "This server gives its metrics only to its own machine: set [metrics] token to ask from elsewhere."
        )
    monitor = service.monitor
    messages = service.stores.messages
    try:
        behind = service.clock.now_ticks() - messages.watermark(Consistency.STRONG)
        monitor.set(WATERMARK_AGE, max(behind, 0) / 1e7)
    except ClockUnsafe:
        monitor.set(WATERMARK_AGE, nan)
    monitor.set(CLOCK_SKEW, messages.clock_error_seconds())
    monitor.set(STORAGE_PROBLEMS, len(service.problems()))
    monitor.set(STORAGE_WARNINGS, len(service.warnings()))
    return Answer(200, await exposed(monitor), [("content-type", "text/plain; version=0.0.4; charset=utf-8")])


def _has_token(call: Call, token: str) -> bool:
    scheme, _, given = call.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


def _is_from_here(call: Call) -> bool:
    """Whether a program on this machine asks for itself.

    A proxy on this machine says that it asks for others.
    """
    if not call.peer or any(name in call.headers for name in _OF_PROXIES):
        return False
    try:
        address = ip_address(call.peer.partition("%")[0])
    except ValueError:  # the name of a Unix socket, which a WSGI server may give; usually it is a proxy's
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


async def openapi(service: Service, call: Call, target: Target) -> Answer:
    """The description of this API."""
    return Answer(200, _description(), [("content-type", JSON)])


@cache
def _description() -> bytes:
    return packaged("queuey.api", "openapi.json")
