"""Where connections live: what such a loop does on the side."""

from __future__ import annotations

from queuey.storage.cassandra.socket_loop import SocketLoop


def test_what_is_due_later_is_done_when_the_loop_ends() -> None:
    """What waits for it would wait for ever."""
    home, done = SocketLoop("links"), list[str]()
    home.later(1000.0, lambda: done.append("later"))
    home.close()
    assert done == ["later"]
    home.later(1000.0, lambda: done.append("too late"))
    assert done == ["later", "too late"]
    home.close()
