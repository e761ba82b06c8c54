"""Drafts of messages from a JSON batch."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Sequence
from itertools import chain
from types import NoneType
from typing import Any

import msgspec
import orjson

from queuey.api.drafts import (
    CHECK_TTL,
    MAX_BATCH_PROBLEMS,
    check_content_type,
    check_key,
    check_size,
)
from queuey.api.headers import headers_of_entry
from queuey.api.params import Problems, due, integer, once_key, quoted
from queuey.errors import InvalidParameter
from queuey.future import others_turn, run
from queuey.http.exchange import JSON, Call
from queuey.http.face import LARGE_BYTES
from queuey.model import DEFAULT_TTL_SECONDS, MAX_TTL_SECONDS, Alike, Draft, Drafts, IdempotencyKey, Queue
from queuey.service.log import partition_for
from queuey.settings import Settings

__all__ = ["batch_drafts", "batch_entries", "check_json", "is_batch", "json_object", "large_object"]

_TOGETHER = 500
"""Messages of a batch that are checked before others have their turn, in one or two milliseconds."""
_MAX_DEPTH = 32


def is_batch(body: bytes) -> bool:
    """Whether JSON starts like a batch.

    A batch is an object whose first member is the list ``messages``.
    """
    return _BEFORE.match(body) is not None


_CHECKER = msgspec.json.Decoder(msgspec.Raw)
"""It parses JSON and makes no objects of it, which could take many times the memory."""


def check_json(body: bytes) -> None:
    """Refuse a body that says it is JSON, and is none.

    The clients of 2012 are told so. Of other JSON than a batch nothing is looked at but its grammar.

    :raises InvalidParameter: it is not JSON in UTF-8, or nested too deeply to be looked at.
    """
    try:
        _CHECKER.decode(body)
        body.decode()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidParameter(f"the body is not JSON: {error}: send another Content-Type with it") from error
    except RecursionError as error:
        raise InvalidParameter("the JSON is nested too deeply: send another Content-Type with it") from error


async def batch_entries(call: Call, settings: Settings) -> list[Any] | None:
    """The entries of a JSON batch; others have their turn between the steps.

    :returns: None if the object has other members beside ``messages`` and only its first member made it look like a
        batch. Then it is one message, which may be any JSON.
    :raises InvalidParameter: no JSON object with a list ``messages``, or more entries than one request may have.
    """
    raw, limit = call.body, settings.limits.max_batch_messages
    most = min(max(limit, _FEW) * PARTS_PER_MESSAGE, _FEW + len(raw) // BYTES_PER_PART)
    is_small = len(raw) <= _SMALL_BYTES and b"\\" not in raw
    structure = b"" if is_small else await _structure(raw, most)
    document = await _parsed_in_pieces(raw) if len(raw) > LARGE_BYTES else _parsed(raw)
    messages = document.get("messages") if isinstance(document, dict) else None
    if not isinstance(messages, list):
        raise InvalidParameter('the body must be a JSON object with a list "messages"')
    if len(document) > 1 and call.media_type == JSON:
        return None
    if len(messages) > limit:
        raise InvalidParameter(f"{len(messages)} messages in one request; this server takes {limit}")
    if is_small:
        if _has_all_members(document, messages, raw.count(b'"')):
            return messages
        structure = await _structure(raw, most)
    if (
        structure.count(b"[") == 1
        and structure.count(b"{") == 1 + len(messages)
        and _OBJECTS.issuperset(map(type, messages))
    ):
        _check_members(structure, len(document) + sum(map(len, messages)))  # nothing is nested: count at once
    else:
        _check_tree(structure, document)
    return messages


def _has_all_members(document: dict[str, Any], messages: list[Any], quotes: int) -> bool:
    """Whether the texts that were parsed account for all quotes of the body, so that no member replaced another.

    False also if this is not certain: something is nested, or there are members beside ``messages``.

    :param quotes: of a body in which each quote begins or ends a text.
    """
    if len(document) > 1 or not _OBJECTS.issuperset(map(type, messages)):
        return False
    kinds = [*map(type, chain.from_iterable(map(dict.values, messages)))]
    if dict in kinds or list in kinds:
        return False
    return quotes == 2 * (1 + len(kinds) + kinds.count(str))  # "messages", names of members, and their texts


async def batch_drafts(entries: Sequence[Any], queue: Queue, settings: Settings, now_ticks: int) -> Sequence[Draft]:
    """The drafts of a batch; others have their turn between the steps.

    :raises InvalidParameter: some entries are wrong; it names the first 20 problems, and nothing is stored.
    """
    problems = Problems(MAX_BATCH_PROBLEMS)
    parts: list[Drafts] = []
    for start in range(0, len(entries), _TOGETHER):
        if start:
            await others_turn()
        some = entries[start : start + _TOGETHER]
        parts.append(_plain_drafts(some, queue) or _checked_drafts(some, start, queue, now_ticks, problems))
    problems.check()
    if not parts:
        return ()
    drafts = Drafts.joined(parts)
    if drafts.size > settings.limits.max_body_bytes:
        for body, headers in zip(drafts.bodies, drafts.headers, strict=True):
            check_size(body, headers, settings)
    return drafts


def _plain_drafts(entries: Sequence[Any], queue: Queue) -> Drafts | None:
    """Drafts of entries that have only a text, a TTL and a partition, as most have.

    :returns: None if an entry has more, or something is wrong.
    """
    if not (_OBJECTS.issuperset(map(type, entries)) and _COMMON.issuperset(chain.from_iterable(entries))):
        return None
    bodies, ttls, numbers = ([entry.get(name) for entry in entries] for name in ("body", "ttl", "partition"))
    if not (_TEXTS.issuperset(map(type, bodies)) and all(bodies)):
        return None
    if not (_are_within(ttls, MAX_TTL_SECONDS) and _are_within(numbers, queue.partitions)):
        return None
    partitions = [partition_for(queue, None) if number is None else number for number in numbers]
    ttls = [DEFAULT_TTL_SECONDS if ttl is None else ttl for ttl in ttls]
    none = Alike(None, len(entries))
    return Drafts(partitions, [body.encode() for body in bodies], ttls, none, none, none, none, none)


def _are_within(numbers: Sequence[Any], most: int) -> bool:
    """Whether all are whole numbers from 1 on, or None."""
    kinds = set(map(type, numbers))
    if kinds == {NoneType}:
        return True
    if not _NUMBERS.issuperset(kinds):
        return False
    given = [number for number in numbers if number is not None]
    return bool(min(given) >= 1 and max(given) <= most)


_TEXTS = frozenset({str})
_NUMBERS = frozenset({int, NoneType})


def _checked_drafts(entries: Sequence[Any], first: int, queue: Queue, now_ticks: int, problems: Problems) -> Drafts:
    """Drafts of entries of any kind.

    :param first: the index of the first entry in its batch.
    """
    return Drafts.of([_entry_draft(entry, at, queue, now_ticks, problems) for at, entry in enumerate(entries, first)])


PARTS_PER_MESSAGE = 32
"""Texts, objects, lists and commas that a batch may have for each message. An entry with all members has 28.
Each header adds four, so a batch whose messages have many headers holds fewer messages."""
BYTES_PER_PART = 3
"""The fewest bytes of a part: in the shortest entry each part has three."""
_FEW = 1000
"""Messages, or parts, that every batch may have."""
_SMALL_BYTES = 32 << 10
"""A body of this size is parsed at once: whatever its parts are, they take about a megabyte."""
_OBJECTS = frozenset({dict})


async def _structure(raw: bytes, most: int) -> bytes:
    """The JSON without its texts.

    Others have their turn between the passes over a large body; one pass takes up to 40 ms for 8 MiB. A body with far
    more parts than a batch of messages has is refused before the parts become objects: as an object some
    bytes take a hundred times as much memory, and a body of 8 MiB can hold three million empty objects.

    :raises InvalidParameter: more than ``most`` texts, objects, lists and commas, not counting those inside texts.
    """
    pause = others_turn if len(raw) > LARGE_BYTES else _no_pause
    if b"\\" in raw:
        for escaped in (rb"\\", rb"\""):
            raw = raw.replace(escaped, b"")  # now every quote begins or ends a text
            await pause()
    parts = raw.count(b'"') // 2
    if parts <= most:
        await pause()
        raw = b"".join(raw.split(b'"')[::2])
    for mark in (b"{", b"[", b","):
        if parts > most:
            break
        await pause()
        parts += raw.count(mark)
    if parts > most:
        raise InvalidParameter(
            f"the body has more than {most} texts, objects and lists: more than its messages can have"
        )
    return raw


async def _no_pause() -> None:
    """Do nothing: a step of a few microseconds needs no pause."""


async def large_object(raw: bytes, settings: Settings) -> dict[str, Any]:
    """A body that is one JSON object and may have messages in it; others have their turn between the steps.

    :raises InvalidParameter: it is not, it has more parts than its messages can have, or a key stands twice.
    """
    if len(raw) <= _SMALL_BYTES:
        return json_object(raw)
    limit = settings.limits.max_batch_messages
    structure = await _structure(raw, min(limit * PARTS_PER_MESSAGE, _FEW + len(raw) // BYTES_PER_PART))
    document = _parsed(raw)
    await others_turn()
    if not isinstance(document, dict):
        raise InvalidParameter("the body must be a JSON object")
    _check_tree(structure, document)
    return document


def plain_object(raw: bytes) -> dict[str, Any] | None:
    """A short body that is one flat JSON object without escapes; None for any other, which :func:`large_object` takes.

    A member may have replaced another: the caller has to compare the number of quotes.
    """
    if len(raw) > _SMALL_BYTES or b"\\" in raw or raw.count(b"{") + raw.count(b"[") > _MAX_DEPTH:
        return None
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return document if type(document) is dict else None


def json_object(raw: bytes) -> dict[str, Any]:
    """A body that is one JSON object, and no message: at most 64 KiB.

    :raises InvalidParameter: it is not, a key stands twice, or the nesting is too deep.
    """
    if not raw:
        raise InvalidParameter(problems={"body": "Required"})
    document = _parsed(raw)
    if not isinstance(document, dict):
        raise InvalidParameter("the body must be a JSON object")
    if not _is_plain(raw, document):
        _check_tree(run(_structure(raw, len(raw))), document)
    return document


def _is_plain(raw: bytes, document: dict[str, Any]) -> bool:
    """Whether it is certain that no member replaced another, and that the nesting is not too deep.

    A member that was replaced has quotes in the body, and none in the document.
    """
    if b"\\" in raw or raw.count(b"{") + raw.count(b"[") > _MAX_DEPTH:
        return False
    return raw.count(b'"') == orjson.dumps(document).count(b'"')


def _parsed(raw: bytes, size: int | None = None) -> Any:
    """:param size: bytes of the whole body, if ``raw`` is only its end."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        size = size or len(raw)
        where = f", at byte {size - len(error.doc[error.pos :].encode())} of {size}" if error.doc else ""
        raise InvalidParameter(f"the body is not JSON: {error.msg}{where}") from error


_PIECE = 1 << 20
"""Bytes of JSON. Parsing them takes some milliseconds."""
_BEFORE = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"messages"[ \t\r\n]*:[ \t\r\n]*\[')
_JOINT = re.compile(rb'\}[ \t\r\n]*(,)[ \t\r\n]*\{[ \t\r\n]*"')
"""Where one message ends and the next begins. Inside a text that is itself JSON, a backslash stands before the
quote."""
_WINDOW = 256 << 10
"""Bytes that are searched for a joint at a time."""


async def _parsed_in_pieces(raw: bytes) -> Any:
    """The same as :func:`_parsed`; others have their turn between pieces of a batch.

    Each piece begins and ends between two messages. What looks like a joint between messages may lie inside a text.
    Then the piece before it ends in the middle of that text, and is no valid JSON. So if a piece is valid, the next one
    begins at a true joint. After an invalid piece the rest is parsed in one step.
    """
    before = _BEFORE.match(raw)
    start = begin = before.end() if before else 0
    messages: list[Any] = []
    while before and (joint := await _next_joint(raw, start + _PIECE)):
        try:
            messages += orjson.loads(b"[%b]" % raw[start : joint.start(1)])
        except orjson.JSONDecodeError:
            break
        start = joint.end(1)
        await others_turn()
    document = _parsed(raw[:begin] + raw[start:], len(raw))
    await others_turn()
    if messages and isinstance(document["messages"], list):
        document["messages"][:0] = messages
    return document


async def _next_joint(raw: bytes, start: int) -> re.Match[bytes] | None:
    """The next thing that looks like a joint of two messages.

    One that crosses the edge of two windows is missed.
    """
    for begin in range(start, len(raw), _WINDOW):
        joint = _JOINT.search(raw, begin, begin + _WINDOW)
        if joint:
            return joint
        await others_turn()
    return None


def _check_tree(structure: bytes, document: Any) -> None:
    """:raises InvalidParameter: a key stands twice in one object, or the nesting is too deep."""
    members, depth, level = 0, 0, [document]
    while level:
        if depth == _MAX_DEPTH:
            raise InvalidParameter(f"the JSON is nested more than {_MAX_DEPTH} deep")
        members += sum([len(item) for item in level if isinstance(item, dict)])
        level = [child for item in level for child in _children(item)]
        depth += 1
    _check_members(structure, members)


def _check_members(structure: bytes, parsed: int) -> None:
    """Refuse JSON in which a member replaced an earlier one of the same name.

    Outside of texts each member has one colon, so the two counts differ then.

    :param parsed: members of all objects together.
    :raises InvalidParameter: a key stands twice in one object.
    """
    if parsed != structure.count(b":"):
        raise InvalidParameter("a JSON object has the same key twice")


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _entry_draft(entry: Any, index: int, queue: Queue, now_ticks: int, problems: Problems) -> Draft:
    if type(entry) is not dict:
        problems.add(f"{index}", "must be a JSON object")
        return _NO_DRAFT
    ttl, partition = entry.get("ttl"), entry.get("partition")
    if ttl is not None and not (type(ttl) is int and 1 <= ttl <= MAX_TTL_SECONDS):
        ttl = problems.take(f"{index}.ttl", CHECK_TTL, _number_text(ttl), DEFAULT_TTL_SECONDS)
    if partition is not None and not (type(partition) is int and 1 <= partition <= queue.partitions):
        partition = problems.take(f"{index}.partition", integer(1, queue.partitions), _number_text(partition), 1)
    body = _entry_body(entry, index, problems)
    if entry.keys() <= _COMMON:
        return Draft(partition or partition_for(queue, None), body, DEFAULT_TTL_SECONDS if ttl is None else ttl)
    text = _Texts(entry, index, problems)
    key = problems.take(f"{index}.key", check_key, text("key"), None)
    if key is not None and partition is not None:
        problems.add(f"{index}.key", "give a partition or a key, not both")
    once = problems.take(f"{index}.idempotency_key", once_key, text("idempotency_key"), None)
    return Draft(
        partition or partition_for(queue, key),
        body,
        DEFAULT_TTL_SECONDS if ttl is None else ttl,
        problems.take(f"{index}.content_type", check_content_type, text("content_type"), None),
        key,
        due(text("delay"), text("deliver_at"), now_ticks, problems, f"{index}."),
        None
        if once is None
        else IdempotencyKey(once, hashlib.sha256(orjson.dumps(entry, option=orjson.OPT_SORT_KEYS)).digest()),
        headers_of_entry(entry.get("headers"), f"{index}.headers", problems),
    )


_COMMON = frozenset({"body", "ttl", "partition"})
_NO_DRAFT = Draft(1, b"", DEFAULT_TTL_SECONDS)


class _Texts:
    """Members of an entry that are texts, or numbers in place of texts.

    Null counts as absent.
    """

    def __init__(self, entry: dict[str, Any], index: int, problems: Problems) -> None:
        self._entry, self._index, self._problems = entry, index, problems

    def __call__(self, name: str) -> str | None:
        value = self._entry.get(name)
        if value is None or (value == "" and name != "idempotency_key"):
            return None
        if isinstance(value, str):
            return value
        if name in ("delay", "deliver_at") and type(value) in (int, float):
            return f"{value:.7f}" if isinstance(value, float) else str(value)
        self._problems.add(f"{self._index}.{name}", "must be a text")
        return None


def _number_text(value: Any) -> str | None:
    """A member as text: v1 also takes numbers, and an empty text counts as absent."""
    return None if value == "" else value if isinstance(value, str) else json.dumps(value)[:40]


def _entry_body(entry: dict[str, Any], index: int, problems: Problems) -> bytes:
    body = entry.get("body")
    if body is None or body == "":
        problems.add(f"{index}.body", "Required")
        return b""
    if type(body) is not str:
        problems.add(f"{index}.body", "must be a text: encode other JSON as text first")
        return b""
    encoding = entry.get("encoding")
    if encoding is None:
        return body.encode()
    if encoding != "base64":
        problems.add(f"{index}.encoding", f"{quoted(str(encoding))} is not base64")
        return b""
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        problems.add(f"{index}.body", "is not base64")
        return b""
