"""Bytes that a call holds beside its body and its answer, counted before they are there (G17)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from queuey.errors import Throttled
from queuey.http.exchange import Call
from queuey.monitor.metrics import THROTTLED
from queuey.security.principals import payers
from queuey.service import Service


def hold(service: Service, call: Call, size: int, *, owed: bool = False) -> None:
    """Count bytes that the call holds until it leaves.

    :param owed: count them whether or not there is room: the call has been carried out.
    :raises Throttled: there is no room for them.
    """
    if call.ticket is not None and not call.ticket.hold(size, payers(call.identity.principals), owed=owed):
        service.monitor.count(THROTTLED, 1, "in_flight")
        raise Throttled


@contextmanager
def holding(service: Service, call: Call, size: int) -> Iterator[None]:
    """Count bytes for as long as the block takes.

    :raises Throttled: there is no room for them.
    """
    hold(service, call, size)
    try:
        yield
    finally:
        if call.ticket is not None:
            call.ticket.give_back(size)
