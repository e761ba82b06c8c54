"""The faces of a server, in the order they are asked.

Only this module knows all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from queuey.api.face import V1
from queuey.api.routes import ROUTES
from queuey.http.pipeline import Pipeline
from queuey.http.routing import Route
from queuey.service import Service
from queuey.sqs.face import Sqs

__all__ = ["open_pipeline", "routes"]


def open_pipeline(service: Service) -> Pipeline:
    """The pipeline of a service, with all its faces."""
    return Pipeline(service, [Sqs(service), V1()])


def routes() -> Sequence[Route]:
    """The routes of every face, for a server that maps paths to views by itself."""
    return ROUTES.table
