"""Calls between servers on a machine that gives no thread more, for a while."""

from __future__ import annotations

import threading
from contextlib import closing
from uuid import uuid4

import pytest

from queuey.future import Future
from queuey.storage.cassandra.links import Link, Links, NotTaken
from queuey.storage.cassandra.socket_loop import SocketLoop

PATIENCE = 30.0


def test_a_call_is_not_taken_and_later_ones_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server that was called took no call any more, and the caller's step had an error of the system."""
    links, home, lacking = Links("127.0.0.1"), SocketLoop("links"), {"link"}
    links.start(lambda server, payload: Future.of(payload), home)
    starts = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name in lacking:
            raise RuntimeError("can't start new thread")
        starts(thread)

    def call() -> bytes:
        link = Link(links.contact, uuid4(), PATIENCE, home)
        try:
            return link.call(b"a").wait(PATIENCE)
        finally:
            link.end()

    monkeypatch.setattr(threading.Thread, "start", start)
    with closing(home):
        for name in ("link", "link-calls"):
            lacking.clear()
            lacking.add(name)
            with pytest.raises(NotTaken):
                call()
        lacking.clear()
        assert call() == b"a"
        links.stop(0.0)
