"""The faces of a server, in the order in which they are asked: the one place that knows them all."""

from __future__ import annotations

from queuey.api.face import V1
from queuey.http.pipeline import Pipeline
from queuey.service import Service

__all__ = ["open_pipeline"]


def open_pipeline(service: Service) -> Pipeline:
    """The pipeline of a service, with every face that it has."""
    return Pipeline(service, [V1()])
