"""The server about itself."""

from __future__ import annotations

import hmac
from functools import cache

from queuey._version import __version__
from queuey.errors import Forbidden, StorageUnavailable
from queuey.http.addresses import is_from_here
from queuey.http.exchange import JSON, Answer, Call, Target, json_answer
from queuey.monitor.loading import exposed
from queuey.packaged import packaged
from queuey.service import Service

_TEXT = "text/plain; charset=utf-8"
_OPENMETRICS = "application/openmetrics-text"


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
    """Counters in the Prometheus text form, or as OpenMetrics, which has exemplars, for whoever accepts that.

    They name applications and show their load.

    :raises Forbidden: the caller lacks the token; or, if none is set, is not on this machine.
    """
    token: str = service.settings.metrics.token
    if token and not _has_token(call, token):
        raise Forbidden("This server gives its metrics only with Authorization: Bearer and its [metrics] token.")
    if not token and ("origin" in call.headers or not is_from_here(call)):  # a browser on it shows pages of others
        raise Forbidden(
            "This server gives its metrics only to its own machine: set [metrics] token to ask from elsewhere."
        )
    openmetrics = call.accepts(_OPENMETRICS)
    media_type = f"{_OPENMETRICS}; version=1.0.0" if openmetrics else "text/plain; version=0.0.4"
    headers = [("content-type", f"{media_type}; charset=utf-8"), ("vary", "accept")]
    return Answer(200, await exposed(service.figures(), openmetrics=openmetrics), headers)


def _has_token(call: Call, token: str) -> bool:
    scheme, _, given = call.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


async def openapi(service: Service, call: Call, target: Target) -> Answer:
    """The description of this API."""
    return Answer(200, _description(), [("content-type", JSON)])


@cache
def _description() -> bytes:
    return packaged("queuey.api", "openapi.json")
