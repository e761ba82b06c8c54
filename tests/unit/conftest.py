"""What several unit tests use."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from tests.support.scripted_server import Script, scripted_server

_outgoing: list[str] = []
_NETWORK = frozenset({"socket.connect", "socket.getaddrinfo", "socket.sendto"})


def _note(event: str, _: object) -> None:
    if event in _NETWORK and "py4j" not in sys._getframe(1).f_code.co_filename:
        _outgoing.append(event)


sys.addaudithook(_note)


@pytest.fixture
def outgoing() -> Iterator[list[str]]:
    """Every connection that this process begins, and every name that it looks up, but for those to a Spark.

    The garbage collector rests meanwhile: what an earlier test has left of a Spark that is gone would connect to it. Threads
    of that Spark may do so all the same.
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
