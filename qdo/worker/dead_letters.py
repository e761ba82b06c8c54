"""Dead letters: messages that failed again and again, with their story.

They are kept until somebody looks. The form is that of the server's lease groups, :mod:`queuey.model.dead_letters`: the
message as it was, and its story in a header.

If the server takes no such message, since it is too large, the letter has no traceback. If that is too large as well,
the letter is only the story. It has the size and the digest of the body, and the message itself stays in its queue
until its TTL.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from qdo.client import Client, Message, NewMessage
from qdo.client.wire import once_of
from qdo.worker.job import FailedMessages
from queuey.errors import (
    HeadersTooLarge,
    InvalidParameter,
    KeyReused,
    MessageNotFound,
    MessageTooLarge,
    QueueNotFound,
    QueueyError,
)
from queuey.model.dead_letters import (
    ALONE_TYPE,
    DEAD_LETTER_SECONDS,
    STORY_HEADER,
    Story,
    story_of,
    story_to_header,
    with_origin,
    without_story,
)

__all__ = ["DeadLetter", "letters", "write_letters"]

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

    :raises MessageTooLarge, HeadersTooLarge, InvalidParameter: it does not even take the shortest story.
    """
    alone = letter.alone()
    forms = [letter, letter.without_traceback(), alone, alone.without_traceback()]
    for number, form in enumerate(forms, 1):
        try:
            _append(client, queue, form)
        except KeyReused:
            return  # the letter is stored already; this attempt failed in other words than the one before
        except (MessageTooLarge, HeadersTooLarge, InvalidParameter) as error:
            if number == len(forms) or not _is_of_size(error):
                raise
        else:
            return


def _is_of_size(error: QueueyError) -> bool:
    """Whether less may be taken. Of what is invalid, only headers can be too many or too large."""
    return not isinstance(error, InvalidParameter) or any("headers" in name for name in error.problems)


def _append(client: Client, queue: str, letter: DeadLetter) -> None:
    """Append a letter to its queue, and make the queue if it does not exist."""
    new = letter.to_message()
    try:
        client.append(queue, new)
    except QueueNotFound:
        client.create_queue(queue)
        client.append(queue, new)


@dataclass(frozen=True)
class DeadLetter:
    """A message with the story of its failure."""

    story: Story
    body: bytes | None = None
    """None if the letter has the story alone. Then it has no content type and no headers of the message either."""
    content_type: str | None = None
    key: str | None = None
    headers: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    """Of the message, without the story."""

    @classmethod
    def of(cls, message: Message, failed: FailedMessages, group: str) -> DeadLetter:
        """The letter of a message that a worker gave up."""
        story = Story(
            failed.queue,
            message.partition,
            message.id.hex,
            group,
            failed.attempts,
            failed.reason,
            traceback=failed.traceback,
        ).after(message.headers)
        return cls(story, message.body, message.content_type, message.key, message.headers)

    @classmethod
    def from_message(cls, message: Message) -> DeadLetter:
        """:raises ValueError: the message is no dead letter."""
        story = story_of(message.headers)
        if story.is_alone:
            return cls(story, key=message.key)
        return cls(story, message.body, message.content_type, message.key, without_story(message.headers))

    @property
    def idempotency_key(self) -> str:
        """Each message has one letter from each group."""
        story = self.story
        return once_of("dead", story.queue, story.partition, story.message_id, story.group)

    @property
    def size(self) -> int:
        """Bytes of the message's body."""
        return len(self.body) if self.body is not None else self.story.size or 0

    @property
    def sha256(self) -> str:
        """Of the message's body, hexadecimal."""
        return hashlib.sha256(self.body).hexdigest() if self.body is not None else self.story.sha256 or ""

    def without_traceback(self) -> DeadLetter:
        return replace(self, story=self.story._replace(traceback=""))

    def alone(self) -> DeadLetter:
        """The letter with only the story."""
        return self if self.body is None else DeadLetter(self.story.alone(self.body), key=self.key)

    def to_message(self) -> NewMessage:
        """:raises InvalidParameter: the message's own headers leave no room for the story."""
        told = story_to_header(self.story)
        return NewMessage(
            told if self.body is None else self.body,
            ttl_seconds=DEAD_LETTER_SECONDS,
            key=self.key,
            content_type=ALONE_TYPE if self.body is None else self.content_type,
            idempotency_key=self.idempotency_key,
            headers={**self.headers, STORY_HEADER: told},
        )

    def retry(self, client: Client, letter: Message, dead_letters: str) -> None:
        """Append the message to its queue again, as a new one in the same partition.

        The caller removes the letter.

        :param letter: the message that this was read from. A repeat for the same letter stores nothing twice (G7).
        :param dead_letters: the queue of the letter.
        :raises MessageNotFound: the letter has no body, and the message is gone from its queue.
        """
        new = self.as_it_was(client)
        if self.body is not None:  # else there may be no room for more
            new = replace(new, headers=with_origin(self.headers, self.story))
        new = replace(
            new,
            partition=None if new.key is not None else self.story.partition,
            idempotency_key=once_of("retry", dead_letters, letter.partition, letter.id.hex),
        )
        client.append(self.story.queue, new)

    def as_it_was(self, client: Client) -> NewMessage:
        """The message itself, from its queue if it was too large for the letter.

        :raises MessageNotFound: it is in neither.
        """
        if self.body is not None:
            return NewMessage(self.body, content_type=self.content_type, key=self.key, headers=self.headers)
        story = self.story
        found = client.get(story.queue, f"{story.partition}:{story.message_id}")
        if not found:
            raise MessageNotFound(f"message {story.message_id} is gone from {story.queue}")
        (message,) = found
        if hashlib.sha256(message.body).hexdigest() != self.sha256:
            raise MessageNotFound(f"message {story.message_id} in {story.queue} was overwritten since its job failed")
        return NewMessage(message.body, content_type=message.content_type, key=message.key, headers=message.headers)


def letters(client: Client, queue: str) -> Iterator[tuple[Message, DeadLetter]]:
    """All dead letters in a queue, oldest first in each partition.

    There are none if the queue does not exist.
    """
    try:
        for message in client.iterate(queue):
            try:
                letter = DeadLetter.from_message(message)
            except ValueError:
                log.warning("%s in %s is no dead letter: skipped", message.id.hex, queue)
                continue
            yield message, letter
    except QueueNotFound:
        return
