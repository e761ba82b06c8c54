"""The faces of a server, in the order they are asked.

Only this module knows all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from queuey.api.face import V1
from queuey.api.routes import ROUTES
from queuey.console.face import Console
from queuey.http.face import Face
from queuey.http.pipeline import Pipeline
from queuey.http.routing import Route
from queuey.service import Service
from queuey.sqs.face import Sqs

__all__ = ["open_pipeline", "routes"]


def open_pipeline(service: Service) -> Pipeline:
    """The pipeline of a service, with all its faces."""
    v1 = V1()
    faces: list[Face] = [Sqs(service)]
    if service.settings.console.enabled:
        faces.append(Console(service, v1))
    return Pipeline(service, [*faces, v1])


def routes() -> Sequence[Route]:
    """The routes of every face, for a server that maps paths to views by itself."""
    return ROUTES.table
