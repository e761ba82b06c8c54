"""Dead letters: what failed again and again, kept with its reason and its history until somebody looks."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from qdo.client import Client, Message, NewMessage
from qdo.job import Failed
from queuey.errors import ConfigurationError, QueueNotFound

__all__ = ["DEFAULT_DEAD_LETTERS", "DeadLetter", "DeadLetters"]

TTL_SECONDS = 30 * 86_400
"""Of a dead letter, as qdo 0.1 had it."""
DEFAULT_DEAD_LETTERS = "{queue}.dead"
_MOST_NAME = 50

log = logging.getLogger(__name__)


class DeadLetters:
    """Where a group's dead letters go."""

    def __init__(self, name: str, group: str) -> None:
        """:param name: of the queue; ``{queue}`` stands for the one that a message came from.
        :raises ConfigurationError: another word stands in braces.
        """
        try:
            name.format(queue="q")
        except (KeyError, IndexError, ValueError) as error:
            raise ConfigurationError(f"dead letters' queue {name!r}: only {{queue}} may stand in braces") from error
        self._name = name
        self._group = group
        self._made: set[str] = set()

    def queue_for(self, queue: str) -> str:
        """:raises ConfigurationError: the name would be too long for a queue."""
        name = self._name.format(queue=queue)
        if len(name) > _MOST_NAME:
            raise ConfigurationError(
                f"the dead letters of {queue} cannot be kept in {name}: over {_MOST_NAME} characters"
            )
        return name

    def is_one(self, name: str) -> bool:
        """Whether a queue of this name is for dead letters."""
        before, _, after = self._name.partition("{queue}")
        return name == self._name or ("{queue}" in self._name and name.startswith(before) and name.endswith(after))

    def write(self, client: Client, failed: Failed) -> None:
        """Store a letter for each message; a repeat stores nothing twice (G7).

        :raises QueueyError: it is not known to be stored; try again.
        """
        name = self.queue_for(failed.queue)
        if name not in self._made:
            client.create_queue(name)
            self._made.add(name)
        for message in failed.messages:
            letter = DeadLetter.of(message, failed, self._group)
            once = f"dead-{message.id.hex}-{message.partition}-{self._group}"
            new = NewMessage(
                json.dumps(letter.to_wire()),
                ttl_seconds=TTL_SECONDS,
                content_type="application/json",
                idempotency_key=once[:128],
            )
            try:
                client.append(name, new)
            except QueueNotFound:  # it was deleted, with what was in it
                self._made.discard(name)
                raise


@dataclass(frozen=True)
class DeadLetter:
    """A message with the story of its end."""

    queue: str
    partition: int
    message_id: str
    group: str
    attempts: int
    reason: str
    body: bytes
    content_type: str | None = None
    key: str | None = None

    @classmethod
    def of(cls, message: Message, failed: Failed, group: str) -> DeadLetter:
        return cls(
            failed.queue,
            message.partition,
            message.id.hex,
            group,
            failed.attempts,
            failed.reason,
            message.body,
            message.content_type,
            message.key,
        )

    def to_wire(self) -> dict[str, Any]:
        """As JSON has it: bytes that are not UTF-8 travel as base64."""
        entry = {
            "queue": self.queue,
            "partition": self.partition,
            "message_id": self.message_id,
            "group": self.group,
            "attempts": self.attempts,
            "reason": self.reason,
            "content_type": self.content_type,
            "key": self.key,
        }
        try:
            return entry | {"body": self.body.decode()}
        except UnicodeDecodeError:
            return entry | {"body": base64.b64encode(self.body).decode(), "encoding": "base64"}

    @classmethod
    def from_message(cls, message: Message) -> DeadLetter:
        """:raises ValueError, KeyError: the message is no dead letter."""
        entry = json.loads(message.body)
        coded = entry.pop("encoding", None) == "base64"
        body = base64.b64decode(entry["body"]) if coded else entry["body"].encode()
        return cls(**{**entry, "body": body})

    def retry(self, client: Client, letter: Message) -> None:
        """Append the message to its queue again, as a new one in the same partition; whoever calls removes the letter.

        :param letter: the message that this was read from; a repeat for the same one stores nothing twice (G7).
        """
        new = NewMessage(
            self.body,
            partition=self.partition,
            content_type=self.content_type,
            idempotency_key=f"retry-{letter.id.hex}-{letter.partition}",
        )
        client.append(self.queue, new)


def letters(client: Client, queue: str) -> Iterator[tuple[Message, DeadLetter]]:
    """All dead letters in a queue, oldest first in each partition; none if there is no such queue."""
    try:
        for message in client.iterate(queue):
            try:
                letter = DeadLetter.from_message(message)
            except (ValueError, KeyError, TypeError, AttributeError):
                log.warning("%s in %s is no dead letter: passed over", message.id.hex, queue)
                continue
            yield message, letter
    except QueueNotFound:
        return
