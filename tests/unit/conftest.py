"""What several unit tests use."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from tests.support.scripted_server import Script, scripted_server

_outgoing: list[str] = []
_NETWORK = frozenset({"socket.connect", "socket.getaddrinfo", "socket.sendto"})
sys.addaudithook(lambda event, _: _outgoing.append(event) if event in _NETWORK else None)


@pytest.fixture
def outgoing() -> Iterator[list[str]]:
    """Every connection that this process begins, and every name that it looks up.

    The garbage collector rests meanwhile: what an earlier test has left of a Spark that is gone would connect to it.
    """
    gc.collect()
    gc.disable()
    _outgoing.clear()
    try:
        yield _outgoing
    finally:
        gc.enable()
        _outgoing.clear()


@pytest.fixture
def script() -> Iterator[Script]:
    """A server that answers what the test says."""
    with scripted_server() as script:
        yield script
