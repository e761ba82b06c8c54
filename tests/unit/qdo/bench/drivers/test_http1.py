"""Answers in pieces, and lines that break off."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from qdo.bench.drivers.http1 import MOST_HEAD, AnswerReader, HttpAnswer, LoopLine
from queuey.errors import OutcomeUnknown, ServerUnreachable

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-One: a\r\n\r\nabc"

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.mark.parametrize("size", [1, 7, len(ANSWER), 1000])
def test_answers_come_in_pieces_of_any_size(size: int) -> None:
    reader, text = AnswerReader(), ANSWER + b"HTTP/1.1 204 None\r\n\r\n"

    found = [reader.feed(text[at : at + size]) for at in range(0, len(text), size)]
    # What came with the end of another answer is looked at with the next piece.
    found.append(reader.feed(b""))

    whole = [one for one in found if one is not None]
    assert whole == [HttpAnswer(200, {b"content-length": b"3", b"x-one": b"a"}, b"abc"), HttpAnswer(204, {}, b"")]


@pytest.mark.parametrize("text", [b"HTTP/1.1 200 OK\r\n\r\n", b"x" * (MOST_HEAD + 1), b"HTTP/1.1 abc\r\n\r\n"])
def test_what_is_no_answer_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"how long|no end|invalid literal"):
        AnswerReader().feed(text)


def asked(talk: Talk, times: int, timeout_seconds: float = 20) -> list[object]:
    """What one line gets from a server that talks so, whose every answer is of a new connection."""

    over = list[asyncio.Event]()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        over.append(asyncio.Event())
        with suppress(OSError):
            await reader.readuntil(b"\r\n\r\n")
            await talk(reader, writer)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        over[-1].set()

    async def all_of_it() -> list[object]:
        found: list[object] = []
        async with await asyncio.start_server(served, "127.0.0.1", 0) as server:
            line = LoopLine(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout_seconds)
            for _ in range(times):
                try:
                    found.append((await line.ask(b"GET", b"/", b"", b"")).body)
                except OutcomeUnknown as error:
                    found.append(str(error))
            line.close()
            for one in over:
                await one.wait()
        return found

    return asyncio.run(all_of_it())


async def answers(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(ANSWER.replace(b"X-One: a", b"Connection: close"))


async def says_nothing(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    return


async def says_half(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(ANSWER[:-1])


async def says_what_is_no_answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")


async def waits(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


def test_a_line_of_an_event_loop_opens_a_connection_again() -> None:
    assert asked(answers, 3) == [b"abc"] * 3


@pytest.mark.parametrize(
    ("talk", "said"),
    [
        (says_nothing, "the server closed the connection"),
        (says_half, "the server closed the connection"),
        (says_what_is_no_answer, "the answer does not say how long it is"),
    ],
)
def test_a_line_that_breaks_off_leaves_the_outcome_unknown_and_is_opened_again(talk: Talk, said: str) -> None:
    assert asked(talk, 2) == [f"no answer: {said}"] * 2


def test_an_answer_that_does_not_come_in_time_is_not_waited_for() -> None:
    assert asked(waits, 1, 0.01) == ["no answer: none came in time"]


def test_where_nobody_listens_nothing_was_sent() -> None:
    async def ask() -> HttpAnswer:
        return await LoopLine("http://127.0.0.1:1", 1).ask(b"GET", b"/", b"", b"")

    with pytest.raises(ServerUnreachable, match=r"127\.0\.0\.1:1: "):
        asyncio.run(ask())
