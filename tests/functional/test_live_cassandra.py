"""Two servers over one Cassandra: a reader at one hears of what the other took, before it would look by itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from tests.support.client import Server
from tests.support.live import LINES, LiveAnswer, read_live


class LookedByItself(Exception):
    """A keepalive came, with which a server looks by itself: what comes after it may have been found so."""


def next_unasked(stream: LiveAnswer) -> str:
    """The next message, if nothing else comes before it."""
    event = next(stream)
    if event.name == "keepalive":
        raise LookedByItself
    assert event.name == "message", event
    return event.body


def unasked(try_it: Callable[[], None]) -> None:
    """Whatever a busy machine does: a server that hears of nothing would look by itself each time."""
    for _ in range(4):
        with contextlib.suppress(LookedByItself):
            return try_it()
    return try_it()


def test_a_reader_hears_of_an_append_at_another_server(first: Server, second: Server) -> None:
    @unasked
    def hears() -> None:
        name = first.queue()
        with read_live(second, name) as stream:
            stream.next("open")
            for number in range(2):
                first.fill(name, str(number))
                assert next_unasked(stream) == str(number)


def test_a_message_that_falls_due_is_heard_of_as_well(first: Server, second: Server) -> None:
    @unasked
    def hears() -> None:
        name = first.queue(partitions=3)
        with read_live(second, name, partitions="all") as stream:
            stream.next("open")
            first.add(name, "later", x_delay="3")
            first.add(name, "now")
            assert [next_unasked(stream) for _ in range(2)] == ["now", "later"]


def test_a_reader_of_several_queues_hears_of_each(first: Server, second: Server) -> None:
    @unasked
    def hears() -> None:
        names = [first.queue() for _ in range(7)]
        with read_live(second, accept=LINES, queues=",".join(names)) as stream:
            stream.next("open")
            for name in names:
                first.fill(name, f"in {name}")
            assert sorted(next_unasked(stream) for _ in names) == sorted(f"in {name}" for name in names)


def test_a_reader_goes_on_at_another_server(first: Server, second: Server) -> None:
    name = first.queue(partitions=4)
    cursor: str | None = None
    seen: list[str] = []

    for number in range(4):
        (first, second)[number % 2].fill(name, str(number), partition=number + 1)
        reader = (second, first)[number // 2 % 2]
        given = {"Last-Event-ID": cursor} if cursor else {}
        with read_live(reader, name, partitions="all", headers=given) as stream:
            stream.next("open")
            event = stream.next()
        cursor = event.cursor
        seen.append(event.body)

    assert seen == [str(number) for number in range(4)]


def test_a_long_poll_at_one_server_ends_with_an_append_at_the_other(first: Server, second: Server) -> None:
    name = first.queue()
    first.fill(name, "before the poll")

    assert second.bodies(name, wait=20) == ["before the poll"]
