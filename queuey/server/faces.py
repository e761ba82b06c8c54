"""The faces of a server, in the order in which they are asked: the one place that knows them all."""

from __future__ import annotations

from collections.abc import Sequence

from queuey.api.face import V1
from queuey.api.routes import ROUTES
from queuey.http.pipeline import Pipeline
from queuey.http.routing import Route
from queuey.service import Service

__all__ = ["open_pipeline", "routes"]


def open_pipeline(service: Service) -> Pipeline:
    """The pipeline of a service, with every face that it has."""
    return Pipeline(service, [V1()])


def routes() -> Sequence[Route]:
    """The routes of every face, for a server that maps paths to views by itself."""
    return ROUTES.table
