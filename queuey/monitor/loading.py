"""Loads what writes metrics, when somebody reads them for the first time.

That takes longer than a turn of an event loop may, and metrics are answered while all threads of a server are busy. So
it has a thread of its own.
"""

from __future__ import annotations

import threading
from typing import Protocol

from queuey.future import Future
from queuey.monitor.declared import MetricSet

__all__ = ["exposed"]


class _TextOf(Protocol):
    def __call__(self, metrics: MetricSet, *, openmetrics: bool) -> bytes:
        """See :func:`queuey.monitor.exposition.text_of`."""


_loaded: list[_TextOf] = []


def exposed(metrics: MetricSet, *, openmetrics: bool) -> Future[bytes]:
    """The text form of all that was counted, at once or after a tenth of a second.

    :param openmetrics: as of :func:`queuey.monitor.exposition.text_of`.
    """
    if _loaded:
        return Future.of(_loaded[0](metrics, openmetrics=openmetrics))
    text: Future[bytes] = Future()

    def load() -> None:
        try:
            from queuey.monitor.exposition import text_of

            found = text_of(metrics, openmetrics=openmetrics)
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            text.set_error(error)
        else:
            _loaded[:] = [text_of]
            text.set_result(found)

    threading.Thread(target=load, name="metrics", daemon=True).start()
    return text
