"""Loads what writes metrics, when somebody reads them for the first time.

That takes longer than a turn of an event loop may, and metrics are answered while all threads of a server are busy. So
it has a thread of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from queuey.future import Future
from queuey.monitor.declared import MetricSet

__all__ = ["exposed"]

_loaded: list[Callable[[MetricSet], bytes]] = []


def exposed(metrics: MetricSet) -> Future[bytes]:
    """The text form of all that was counted, at once or after a tenth of a second."""
    if _loaded:
        return Future.of(_loaded[0](metrics))
    text: Future[bytes] = Future()

    def load() -> None:
        try:
            from queuey.monitor.exposition import text_of

            found = text_of(metrics)
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            text.set_error(error)
        else:
            _loaded[:] = [text_of]
            text.set_result(found)

    threading.Thread(target=load, name="metrics", daemon=True).start()
    return text
