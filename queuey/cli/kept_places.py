"""How far ``queuey get`` has got: in a file, or as the offsets of a group in Queuey."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from queuey.errors import ConfigurationError, CursorLost, OffsetMovesBack, StaleGeneration
from queuey.ids import ZERO_ID, MessageId, parse_timestamp
from queuey.whole_files import write_whole

if TYPE_CHECKING:
    from qdo.client import Client

__all__ = ["CursorFile", "GroupOffsets", "KeptPlaces", "ReadQueue"]


@dataclass
class ReadQueue:
    """A queue that is read, and how far."""

    name: str
    incarnation: str
    end: str
    """The watermark when the command began, or the end that was asked for."""
    numbers: Sequence[int]
    """The partitions that are read."""
    since: str | None = None
    """Where partitions without a place begin, in the form of the wire."""
    places: dict[int, MessageId] = field(default_factory=dict)
    """The last message that was taken, by partition."""

    def place(self, number: int) -> MessageId:
        """Behind this id the reading of a partition goes on."""
        return self.places.get(number) or self._before_since()

    def _before_since(self) -> MessageId:
        if self.since is None:
            return ZERO_ID
        if "." in self.since:
            return MessageId.first_of(parse_timestamp(self.since)).before()
        return MessageId.parse(self.since).before()


class KeptPlaces(ABC):
    """Where another run goes on."""

    @abstractmethod
    def begin(self, queue: ReadQueue) -> None:
        """Set the places of a queue to those that are kept. A queue without any keeps its own.

        :raises CursorLost: the queue was removed since.
        """

    @abstractmethod
    def keep(self, queues: Sequence[ReadQueue]) -> None:
        """Everything up to the places of these queues was taken."""


class CursorFile(KeptPlaces):
    """Places in a file. They are written after the lines: a run that is killed between the two repeats these lines."""

    def __init__(self, file: Path) -> None:
        """:raises ConfigurationError: the file is something else."""
        self._file = file
        self._queues: dict[str, Any] = {}
        try:
            found = json.loads(file.read_text(encoding="utf-8"))["queues"]
            self._queues = {str(name): _checked(entry) for name, entry in found.items()}
        except FileNotFoundError:
            pass
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise ConfigurationError(f"{file} is no file of --cursor: name another one") from error

    def begin(self, queue: ReadQueue) -> None:
        entry = self._queues.get(queue.name)
        if entry is None:
            return
        if entry["incarnation"] != queue.incarnation:
            raise CursorLost(
                f"queue {queue.name} was removed since {self._file} was written, and made anew: remove the file, and begin again"
            )
        queue.since = entry["since"]
        queue.places = {int(number): MessageId.parse(text) for number, text in entry["places"].items()}

    def keep(self, queues: Sequence[ReadQueue]) -> None:
        for queue in queues:
            places = {str(number): place.hex for number, place in sorted(queue.places.items())}
            self._queues[queue.name] = {"incarnation": queue.incarnation, "since": queue.since, "places": places}
        try:
            write_whole(self._file, f"{json.dumps({'queues': self._queues}, indent=1)}\n".encode())
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"cannot keep the place in {self._file}") from error


def _checked(entry: Any) -> Any:
    """:raises ValueError, TypeError, LookupError, AttributeError: it is no entry of such a file."""
    queue = ReadQueue("", entry["incarnation"], "", (), entry["since"])
    queue.place(1)
    for number, text in entry["places"].items():
        queue.places[int(number)] = MessageId.parse(text)
    return entry


class GroupOffsets(KeptPlaces):
    """Places as the offsets of a group. Each run claims the partitions, so a run that began earlier ends."""

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group
        self._generations: dict[str, int] = {}
        self._committed: dict[str, dict[int, MessageId]] = {}

    def begin(self, queue: ReadQueue) -> None:
        found = self._client.offsets(queue.name, self._group)
        new = [offset.partition for offset in found if offset.partition in queue.numbers and offset.timestamp is None]
        if queue.since is not None and new:
            since = queue.since if "." in queue.since else MessageId.parse(queue.since).timestamp
            self._client.reset_offsets(queue.name, self._group, since, partitions=new)
            found = self._client.offsets(queue.name, self._group)
        queue.since = None
        generation = max(offset.generation for offset in found) + 1
        claimed = self._client.take_over(queue.name, self._group, queue.numbers, generation)
        self._generations[queue.name] = generation
        queue.places = {offset.partition: offset.id for offset in claimed if offset.id is not None}
        self._committed[queue.name] = dict(queue.places)

    def keep(self, queues: Sequence[ReadQueue]) -> None:
        for queue in queues:
            before = self._committed[queue.name]
            new = {number: place for number, place in queue.places.items() if before.get(number) != place}
            if not new:
                continue
            try:
                self._client.commit_offsets(queue.name, self._group, new, self._generations[queue.name])
            except (StaleGeneration, OffsetMovesBack) as error:  # OffsetMovesBack if both began at once
                raise StaleGeneration(
                    f"another reader of group {self._group} has begun on queue {queue.name}, or it was reset: this one ends, "
                    "and its last lines come again there"
                ) from error
            before |= new
