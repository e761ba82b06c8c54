"""The faces of a server, in the order they are asked.

Only this module knows all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from queuey.api.face import V1
from queuey.api.routes import ROUTES
from queuey.console.calls import is_console
from queuey.http.face import Face
from queuey.http.late import LateFace
from queuey.http.pipeline import Pipeline
from queuey.http.routing import Route
from queuey.service import Service
from queuey.sqs.calls import is_sqs

__all__ = ["open_pipeline", "routes"]


def open_pipeline(service: Service) -> Pipeline:
    """The pipeline of a service, with all its faces."""
    v1 = V1()
    faces: list[Face] = [LateFace(is_sqs, lambda: _sqs(service))]
    if service.settings.console.enabled:
        faces.append(LateFace(is_console, lambda: _console(service, v1)))
    return Pipeline(service, [*faces, v1])


def _sqs(service: Service) -> Face:
    from queuey.sqs.face import Sqs

    return Sqs(service)


def _console(service: Service, v1: Face) -> Face:
    from queuey.console.face import Console

    return Console(service, v1)


def routes() -> Sequence[Route]:
    """The routes of every face, for a server that maps paths to views by itself."""
    return ROUTES.table
