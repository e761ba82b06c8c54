"""The faces of a server, in the order they are asked.

Only this module knows all of them.
"""

from __future__ import annotations

from queuey.api.face import V1
from queuey.http.pipeline import Pipeline
from queuey.service import Service

__all__ = ["open_pipeline"]


def open_pipeline(service: Service) -> Pipeline:
    """The pipeline of a service, with all its faces."""
    return Pipeline(service, [V1()])
