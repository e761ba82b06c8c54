"""Offsets of groups in a queue: read, commit, reset, list and forget them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from queuey.api.batches import json_object
from queuey.api.cursors import Cursor, format_cursor
from queuey.api.fields import check_nothing, check_query
from queuey.api.groups import group_of, groups_page
from queuey.api.params import Problems, in_range, moment
from queuey.http.exchange import Answer, Call, Target, json_answer
from queuey.ids import ZERO_ID, MessageId, format_timestamp
from queuey.model import MAX_GENERATION, Offset, OffsetChange, Queue
from queuey.service import Service
from queuey.service.offsets import End
from queuey.service.offsets import Target as Place


async def list_groups(service: Service, call: Call, target: Target) -> Answer:
    """The groups of a queue, by name."""
    groups, queue = service.offsets.groups, target.queue
    return await groups_page(call, lambda start, limit: groups(queue, start=start, limit=limit))


async def show(service: Service, call: Call, target: Target) -> Answer:
    """A group's offset in each partition."""
    group = group_of(call)
    offsets = await service.offsets.of(target.queue, group)
    return json_answer({"status": "ok", "group": group, "offsets": _entries(target.queue, offsets)})


async def change(service: Service, call: Call, target: Target) -> Answer:
    """Commit, take over, or reset: all the partitions of a request, or none."""
    queue, group = target.queue, group_of(call)
    asked = _asked(call, queue)
    ids = asked.ids
    if asked.to is not None:
        ids = await service.offsets.places(queue, list(ids), asked.to)
    wanted = OffsetChange(ids, asked.generation, asked.resets)
    offsets = service.offsets
    moves = await (offsets.preview if asked.preview else offsets.change)(queue, group, wanted)
    entries = _entries(queue, {number: move.after for number, move in moves.items()})
    answer: dict[str, Any] = {"status": "ok", "group": group, "offsets": entries}
    if asked.resets:
        answer["preview"] = asked.preview
        for entry, move in zip(entries, moves.values(), strict=True):
            entry["old_message_id"] = _hex(move.before.id)
    return json_answer(answer)


async def forget(service: Service, call: Call, target: Target) -> Answer:
    """Forget a group, whether it exists or not."""
    check_nothing(call, "this forgets the group in all partitions; PUT sets the offset of one")
    await service.offsets.forget(target.queue, group_of(call))
    return json_answer({"status": "ok"})


def _entries(queue: Queue, offsets: Mapping[int, Offset]) -> list[dict[str, Any]]:
    return [
        {
            "partition": number,
            "message_id": _hex(offset.id),
            "cursor": format_cursor(queue, Cursor({number: offset.id or ZERO_ID})),
            "generation": offset.generation,
            "timestamp": None if offset.set_ticks is None else format_timestamp(offset.set_ticks),
        }
        for number, offset in offsets.items()
    ]


def _hex(message_id: MessageId | None) -> str | None:
    return None if message_id is None else message_id.hex


def _place(text: str) -> Place:
    try:
        return End(text) if text in _ENDS else moment(text)
    except ValueError as error:
        raise ValueError(f"{error}, nor one of {', '.join(_ENDS)}") from error


_ENDS = tuple(str(end.value) for end in End)


MEMBERS = ("offsets", "generation", "reset", "to", "partitions", "preview")
"""Members of a body."""
ENTRY_MEMBERS = ("partition", "message_id")


class _Asked(NamedTuple):
    """The request in a body."""

    ids: dict[int, MessageId | None]
    """Ids by partition; with ``to`` only the partitions count."""
    generation: int
    resets: bool
    preview: bool
    to: Place | None


def _asked(call: Call, queue: Queue) -> _Asked:
    """:raises InvalidParameter: it names every wrong member; those of an entry as ``<index>.<member>``."""
    members = _Members(json_object(call.body), queue, Problems())
    check_query(call, MEMBERS, members.problems, "member of the body")
    resets, preview = members.flag("reset"), members.flag("preview")
    generation, to = members.generation(resets=resets), members.to()
    if not resets:
        members.only_with_reset("to", "partitions", "preview")
    ids = members.entries() if to is None else members.partitions()
    members.problems.check()
    return _Asked(ids, generation, resets, preview, to)


class _Members:
    """The members of a body.

    An absent member has a default. An unknown member, or null, is refused, since the request moves offsets.
    """

    def __init__(self, document: Mapping[str, Any], queue: Queue, problems: Problems) -> None:
        self._document = document
        self._queue = queue
        self.problems = problems
        self._check_names("", document, MEMBERS)
        for name, value in document.items():
            if value is None:
                problems.add(name, "must not be null: leave it out")

    def _check_names(self, prefix: str, document: Mapping[str, Any], known: Sequence[str]) -> None:
        for name in document:  # in their order, which a set would lose
            if name not in known:
                self.problems.add(prefix + name[:40], f"unknown: expected {', '.join(known)}")

    def flag(self, name: str) -> bool:
        value = self._document.get(name, False)
        if not isinstance(value, bool):
            self.problems.add(name, "must be true or false")
        return value is True

    def only_with_reset(self, *names: str) -> None:
        for name in names:
            if name in self._document:
                self.problems.add(name, 'is for a reset: send "reset": true with it')

    def generation(self, *, resets: bool) -> int:
        value = self._document.get("generation", 0)
        if resets and "generation" in self._document:
            self.problems.add("generation", "a reset takes none: it raises the stored one")
        return self._number("generation", value, 0, MAX_GENERATION)

    def to(self) -> Place | None:
        value = self._document.get("to")
        if value is None:
            return None
        if "offsets" in self._document:
            self.problems.add("offsets", "give offsets or to, not both")
        if not isinstance(value, str):
            self.problems.add("to", "must be a text: beginning, end, decimal seconds since 1970, or a message id")
            return End.END
        elsewhere: Place = End.END
        return self.problems.take("to", _place, value, elsewhere)

    def partitions(self) -> dict[int, MessageId | None]:
        """The partitions named, each once; all of them if none is named."""
        value = self._document.get("partitions")
        if value is None:
            return dict.fromkeys(range(1, self._queue.partitions + 1))
        return dict.fromkeys(self._numbers("partitions", self._list("partitions", value)))

    def entries(self) -> dict[int, MessageId | None]:
        if "partitions" in self._document:
            self.problems.add("partitions", "is for a reset with to")
        entries = self._list("offsets", self._document.get("offsets"))
        objects = [entry if isinstance(entry, dict) else {} for entry in entries]
        for index, entry in enumerate(entries):
            if not isinstance(entry, dict):
                self.problems.add(str(index), "must be an object with a partition")
            else:
                self._check_names(f"{index}.", entry, ENTRY_MEMBERS)
        numbers = self._numbers("partition", [entry.get("partition") for entry in objects], each=True)
        ids = [self._id(f"{index}.message_id", entry.get("message_id")) for index, entry in enumerate(objects)]
        return dict(zip(numbers, ids, strict=True))

    def _list(self, name: str, value: Any) -> Sequence[Any]:
        if value is None:
            self.problems.add(name, "Required")
        elif not isinstance(value, list) or not 1 <= len(value) <= self._queue.partitions:
            self.problems.add(name, f"must be a list of 1 to {self._queue.partitions} entries, one a partition")
        else:
            return value
        return []

    def _numbers(self, name: str, values: Sequence[Any], *, each: bool = False) -> list[int]:
        """Partition numbers, none of them twice.

        :param each: each number stands in an entry of its own.
        """
        numbers: list[int] = []
        for index, value in enumerate(values):
            field = f"{index}.{name}" if each else name
            number = self._number(field, value, 1, self._queue.partitions)
            if number and number in numbers:
                self.problems.add(field, f"partition {number} is named twice")
            numbers.append(number)
        return numbers

    def _number(self, field: str, value: Any, low: int, high: int) -> int:
        """The number; 0 in place of a refused one."""
        if type(value) is not int:
            self.problems.add(field, "Required" if value is None else "must be a whole number")
            return 0
        try:
            return in_range(value, low, high)
        except ValueError as error:
            self.problems.add(field, str(error))
            return 0

    def _id(self, field: str, value: Any) -> MessageId | None:
        if value is None:
            return None
        if not isinstance(value, str):
            self.problems.add(field, "must be a text")
            return None
        return self.problems.take(field, MessageId.parse, value, None)
