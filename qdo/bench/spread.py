"""A driver for several Queuey servers over one store: senders and receivers are spread over them.

It is a driver by the entry point ``queuey.bench.drivers``, as those of other distributions are.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from qdo.bench.drivers import MeasuredSystem
from qdo.bench.drivers.queuey_v1 import QueueyDriver

__all__ = ["SpreadQueueyDriver"]


class SpreadQueueyDriver(QueueyDriver):
    """Each connection is to the next one of the servers."""

    option_names: ClassVar[Mapping[str, str]] = {
        **QueueyDriver.option_names,
        "url": "the servers, with commas between; default QUEUEY_URL",
    }

    def __init__(self, target: MeasuredSystem) -> None:
        urls = [one for one in target.options.get("url", "").split(",") if one]
        super().__init__(replace(target, options={**target.options, "url": urls[0]} if urls else target.options))
        self._urls = itertools.cycle(urls or [self.server.url])

    def url(self) -> str:
        return next(self._urls)
