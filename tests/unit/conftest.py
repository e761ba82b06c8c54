"""What several unit tests use."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.support.scripted_server import Script, scripted_server

_outgoing: list[str] = []
_earlier: set[int | None] = set()
"""Threads that earlier tests have left."""
_NETWORK = frozenset({"socket.connect", "socket.getaddrinfo", "socket.sendto"})


def _note(event: str, _: object) -> None:
    if event in _NETWORK and threading.get_ident() not in _earlier:
        _outgoing.append(event)


sys.addaudithook(_note)


@pytest.fixture
def outgoing() -> Iterator[list[str]]:
    """Every connection that this process begins, and every name that it looks up, but for those of earlier tests.

    What they have left may have threads that connect. The garbage collector rests meanwhile: it would let objects of theirs
    connect.
    """
    gc.collect()
    gc.disable()
    _earlier.update(one.ident for one in threading.enumerate() if one is not threading.current_thread())
    _outgoing.clear()
    try:
        yield _outgoing
    finally:
        gc.enable()
        _earlier.clear()
        _outgoing.clear()


@pytest.fixture
def script() -> Iterator[Script]:
    """A server that answers what the test says."""
    with scripted_server() as script:
        yield script
