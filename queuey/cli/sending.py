"""Messages on their way to queues: read from files, in portions, with a bar on a terminal."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import click

from queuey.errors import QueueNotFound, QueueyError
from queuey.terminal.output import ProgressBar, many, say

if TYPE_CHECKING:
    from qdo.client import Appended, Client, NewMessage

__all__ = [
    "MAX_BODY_BYTES",
    "InputLine",
    "QueueSender",
    "Streams",
    "lines_of",
    "opened",
    "portions",
    "said_if_broken_off",
    "size_of",
]

BATCH_MESSAGES = 500
BATCH_BYTES = 1 << 20
"""Of bodies: even if every byte needs six in JSON, that is below what a server takes."""
MAX_BODY_BYTES = 64 << 20
"""No server can be set to take more, so no more is read."""


Streams = Sequence[tuple[str, BinaryIO]]
"""Each with its name for people."""


class QueueSender:
    """Appends to queues, and makes a queue that is missing."""

    def __init__(self, client: Client, *, create: bool) -> None:
        self._client = client
        self._create = create
        self.sent = 0

    def send(self, queue: str, messages: Sequence[NewMessage], *, partitions: int | None = None) -> list[Appended]:
        """Append one request's messages.

        :param partitions: of a queue that is made.
        :raises QueueNotFound: there is no such queue, and none is to be made.
        """
        try:
            placed = self._append(queue, messages)
        except QueueNotFound:
            if not self._create:
                raise
            made = self._client.create_queue(queue, partitions=partitions)
            say(f"made queue {made.name}, {many(made.partitions, 'partition')}")
            placed = self._append(queue, messages)
        self.sent += len(messages)
        return placed

    def _append(self, queue: str, messages: Sequence[NewMessage]) -> list[Appended]:
        if len(messages) == 1:
            return [self._client.append(queue, messages[0])]
        return self._client.append_batch(queue, messages)


@contextmanager
def said_if_broken_off(sender: QueueSender) -> Iterator[None]:
    """Say how many messages are stored if the block fails."""
    try:
        yield
    except BrokenPipeError:
        say(f"stored {many(sender.sent, 'message')} until nobody took the output any more")
        raise
    except (QueueyError, OSError, KeyboardInterrupt, click.ClickException):
        if sender.sent:
            say(f"stored {many(sender.sent, 'message')} before this:")
        raise


def portions(messages: Iterable[NewMessage]) -> Iterator[list[NewMessage]]:
    """As many together as one request should have."""
    batch: list[NewMessage] = []
    size = 0
    for message in messages:
        length = len(message.body)
        if batch and (len(batch) == BATCH_MESSAGES or size + length > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += length
    if batch:
        yield batch


class InputLine(NamedTuple):
    """A line of a file."""

    file: str
    number: int
    text: bytes
    """Without its end."""

    def refuse(self, why: str) -> click.UsageError:
        """What is wrong with it."""
        return click.UsageError(f"line {self.number} of {self.file}: {why}")


@contextmanager
def opened(files: Sequence[Path]) -> Iterator[Streams]:
    """These files, or the input, each with its name for people.

    :raises OSError: a file cannot be read. Nothing was read of the others.
    """
    with ExitStack() as stack:
        if files:
            yield [(str(file), stack.enter_context(file.open("rb"))) for file in files]
        else:
            yield [("the input", sys.stdin.buffer)]


def lines_of(streams: Streams, label: str) -> Iterator[list[InputLine]]:
    """Lines that are not blank. What has come so far is given before more is waited for.

    :param streams: each is buffered, and has ``read1``.
    :param label: of the bar.
    """
    sizes = [size_of(stream) for _, stream in streams]
    with ProgressBar(label, sum(sizes) if all(sizes) else 0) as progress:
        before = 0
        for (name, stream), size in zip(streams, sizes, strict=True):
            reach = _from(before, progress.reach)
            yield from _lines(name, stream, reach)
            before += size


def _from(before: int, reach: Callable[[int], None]) -> Callable[[int], None]:
    return lambda done: reach(before + done)


def _lines(name: str, stream: BinaryIO, reach: Callable[[int], None]) -> Iterator[list[InputLine]]:
    done, rest, number = 0, b"", 0
    while chunk := stream.read1(BATCH_BYTES):  # type: ignore[attr-defined]  # a buffered one has it
        done += len(chunk)
        *whole, rest = (rest + chunk).split(b"\n")
        found = [InputLine(name, number + index, text.removesuffix(b"\r")) for index, text in enumerate(whole, 1)]
        number += len(whole)
        yield [line for line in found if line.text]
        if len(rest) > MAX_BODY_BYTES:
            raise InputLine(name, number + 1, b"").refuse(f"no server takes more than {MAX_BODY_BYTES} bytes")
        reach(done)
    if rest.removesuffix(b"\r"):
        yield [InputLine(name, number + 1, rest.removesuffix(b"\r"))]


def size_of(stream: BinaryIO) -> int:
    """Bytes to come, 0 if that cannot be known."""
    try:
        status = os.fstat(stream.fileno())
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
