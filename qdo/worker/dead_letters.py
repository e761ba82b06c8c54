r"""Dead letters: messages that failed again and again, with their story.

They are kept until somebody looks.

A letter is one line of JSON, the story, then a line end, then the message's body, byte for byte. If both together are
larger than the server takes, only the story is stored. It has the size and the digest of the body, and the message
itself stays in its queue until its TTL.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from qdo.client import Client, Message, NewMessage
from qdo.worker.job import FailedMessages
from queuey.errors import KeyReused, MessageNotFound, MessageTooLarge, QueueNotFound

__all__ = ["CONTENT_TYPE", "TTL_SECONDS", "DeadLetter", "letters", "once_of", "write_letters"]

CONTENT_TYPE = "application/vnd.queuey.dead-letter"
TTL_SECONDS = 30 * 86_400
"""Of a dead letter, as in qdo 0.1."""

log = logging.getLogger(__name__)


def write_letters(client: Client, failed: FailedMessages, *, queue: str, group: str) -> None:
    """Store a letter for each message that failed.

    A repeat stores nothing twice (G7).

    :param queue: the one for dead letters. It is made if it does not exist.
    :param group: of the worker that gave the messages up.
    :raises QueueyError: nobody knows whether all letters are stored.
    """
    for message in failed.messages:
        _store(client, queue, DeadLetter.of(message, failed, group))


def _store(client: Client, queue: str, letter: DeadLetter) -> None:
    """Store as much of a letter as the server takes.

    :raises MessageTooLarge: it does not even take the shortest story.
    """
    forms = [letter, replace(letter, body=None), replace(letter, body=None, traceback="")]
    for number, form in enumerate(forms, 1):
        try:
            _append(client, queue, form)
        except KeyReused:
            return  # the letter is stored already; this attempt failed in other words than the one before
        except MessageTooLarge:
            if number == len(forms):
                raise
        else:
            return


def _append(client: Client, queue: str, letter: DeadLetter) -> None:
    """Append a letter to its queue, and make the queue if it does not exist."""
    new = NewMessage(
        letter.to_body(),
        ttl_seconds=TTL_SECONDS,
        content_type=CONTENT_TYPE,
        idempotency_key=letter.idempotency_key,
        headers=letter.headers,
    )
    try:
        client.append(queue, new)
    except QueueNotFound:
        client.create_queue(queue)
        client.append(queue, new)


def once_of(purpose: str, *parts: Any) -> str:
    """An idempotency key for what these parts name.

    Its length does not depend on theirs.
    """
    return f"{purpose}-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()}"


@dataclass(frozen=True)
class DeadLetter:
    """A message with the story of its failure."""

    queue: str
    partition: int
    message_id: str
    group: str
    attempts: int
    reason: str
    size: int
    """Bytes of the body."""
    sha256: str
    """Of the body, hexadecimal."""
    traceback: str = ""
    content_type: str | None = None
    key: str | None = None
    body: bytes | None = None
    """None if it was too large for the letter."""
    headers: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    """Of the message; the letter carries them as its own."""

    @classmethod
    def of(cls, message: Message, failed: FailedMessages, group: str) -> DeadLetter:
        return cls(
            failed.queue,
            message.partition,
            message.id.hex,
            group,
            failed.attempts,
            failed.reason,
            len(message.body),
            hashlib.sha256(message.body).hexdigest(),
            failed.traceback,
            message.content_type,
            message.key,
            message.body,
            message.headers,
        )

    @property
    def idempotency_key(self) -> str:
        """Each message has one letter from each group."""
        return once_of("dead", self.queue, self.partition, self.message_id, self.group)

    def to_body(self) -> bytes:
        """The story in one line, then the message's body if the letter has it."""
        story = {name: value for name in _STORY if (value := getattr(self, name)) not in (None, "")}
        line = json.dumps(story, ensure_ascii=False).encode()
        return line if self.body is None else line + b"\n" + self.body

    @classmethod
    def from_message(cls, message: Message) -> DeadLetter:
        """:raises ValueError, KeyError, TypeError: the message is no dead letter."""
        line, end, body = message.body.partition(b"\n")
        story = json.loads(line)
        return cls(
            **{name: story[name] for name in _STORY if name in story},
            body=body if end else None,
            headers=message.headers,
        )

    def retry(self, client: Client, letter: Message, dead_letters: str) -> None:
        """Append the message to its queue again, as a new one in the same partition.

        The caller removes the letter.

        :param letter: the message that this was read from. A repeat for the same letter stores nothing twice (G7).
        :param dead_letters: the queue of the letter.
        :raises MessageNotFound: the letter has no body, and the message is gone from its queue.
        """
        new = NewMessage(
            self.whole_body(client),
            partition=None if self.key is not None else self.partition,
            key=self.key,
            content_type=self.content_type,
            headers=self.headers,
            idempotency_key=once_of("retry", dead_letters, letter.partition, letter.id.hex),
        )
        client.append(self.queue, new)

    def whole_body(self, client: Client) -> bytes:
        """The message's body; from its queue if it was too large for the letter.

        :raises MessageNotFound: neither has it.
        """
        if self.body is not None:
            return self.body
        found = client.get_raw(self.queue, f"{self.partition}:{self.message_id}").body
        if hashlib.sha256(found).hexdigest() != self.sha256:
            raise MessageNotFound(f"message {self.message_id} in {self.queue} was overwritten since its job failed")
        return found


_STORY = tuple(field.name for field in fields(DeadLetter) if field.name not in ("body", "headers"))


def letters(client: Client, queue: str) -> Iterator[tuple[Message, DeadLetter]]:
    """All dead letters in a queue, oldest first in each partition.

    There are none if the queue does not exist.
    """
    try:
        for message in client.iterate(queue):
            try:
                letter = DeadLetter.from_message(message)
            except (ValueError, KeyError, TypeError, AttributeError):
                log.warning("%s in %s is no dead letter: skipped", message.id.hex, queue)
                continue
            yield message, letter
    except QueueNotFound:
        return
