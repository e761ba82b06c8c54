"""Where connections live: what such a loop does on the side, and when it gives another end up."""

from __future__ import annotations

import socket
from contextlib import closing, suppress

from queuey.storage.cassandra.link_channel import Channel, Entries
from queuey.storage.cassandra.socket_loop import SocketLoop
from tests.support.servers import eventually
from tests.support.turning_loop import in_turn, turning_loop


class _User:
    """Sends all, and notes how it ends."""

    def __init__(self) -> None:
        self.ends: list[Exception] = []

    def sends(self, entries: Entries) -> Entries:
        return entries

    def sent(self, entries: Entries) -> None:
        """Nothing follows from it."""

    def got(self, entries: Entries) -> None:
        """Nothing comes."""

    def ended(self, error: Exception) -> None:
        self.ends.append(error)


def test_what_is_due_later_is_done_when_the_loop_ends() -> None:
    """What waits for it would wait for ever."""
    home, done = SocketLoop("links"), list[str]()
    home.later(1000.0, lambda: done.append("later"))
    home.close()
    assert done == ["later"]
    home.later(1000.0, lambda: done.append("too late"))
    assert done == ["later", "too late"]
    home.close()


def test_an_end_is_given_up_if_it_takes_nothing_and_not_because_this_server_stood_still() -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with closing(SocketLoop("links")) as home, turning_loop() as inbox, theirs:
        in_turn(inbox, lambda: home.use(inbox))
        user, channel = _User(), Channel(ours, b"s" * 32, is_caller=True)
        channel.live(home, user)
        channel.put(1, b"x" * (16 << 20))
        assert eventually(lambda: channel._unsent and channel._sends)

        def stand_still() -> None:
            """The other end takes all that is there, and this one has not seen that it has room."""
            with suppress(BlockingIOError):
                while theirs.recv(1 << 20):
                    pass
            channel._give_up(channel._turns)

        in_turn(inbox, stand_still)
        assert not user.ends
        in_turn(inbox, lambda: channel._give_up(channel._turns))
        assert [type(error) for error in user.ends] == [TimeoutError]
        assert channel.is_closed
