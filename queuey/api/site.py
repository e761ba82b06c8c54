"""The server about itself."""

from __future__ import annotations

from importlib.resources import files
from math import nan

from queuey import __version__
from queuey.api.calls import JSON, Answer, Call, Target, json_answer
from queuey.errors import ClockUnsafe, StorageUnavailable
from queuey.model import Consistency
from queuey.service import Service

_TEXT = "text/plain; charset=utf-8"


async def heartbeat(service: Service, call: Call, target: Target) -> Answer:
    """Ready to serve: ``OK``, or 503 with the problems. Warnings are in a header: they keep nobody from serving."""
    problems = service.problems()
    if problems:
        raise StorageUnavailable("; ".join(problems))
    warnings = [("queuey-warnings", "; ".join(found))] if (found := service.warnings()) else []
    return Answer(200, b"OK", [("content-type", _TEXT), *warnings])


async def alive(service: Service, call: Call, target: Target) -> Answer:
    """The process answers, whatever its store does."""
    return Answer(200, b"OK", [("content-type", _TEXT)])


async def version(service: Service, call: Call, target: Target) -> Answer:
    """What runs here."""
    return json_answer({"name": "queuey", "version": __version__, "storage": service.settings.storage_backend})


async def metrics(service: Service, call: Call, target: Target) -> Answer:
    """Counters in the Prometheus text form."""
    monitor = service.monitor
    messages = service.stores.messages
    try:
        behind = service.clock.now_ticks() - messages.watermark(Consistency.STRONG)
        monitor.watermark_age.set(max(behind, 0) / 1e7)
    except ClockUnsafe:
        monitor.watermark_age.set(nan)
    monitor.clock_skew.set(messages.clock_error_seconds())
    monitor.storage_problems.set(len(service.problems()))
    monitor.storage_warnings.set(len(service.warnings()))
    return Answer(200, monitor.exposition(), [("content-type", "text/plain; version=0.0.4; charset=utf-8")])


async def openapi(service: Service, call: Call, target: Target) -> Answer:
    """This API's description."""
    return Answer(200, (files("queuey.api") / "openapi.json").read_bytes(), [("content-type", JSON)])
