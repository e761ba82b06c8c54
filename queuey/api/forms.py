"""Messages as JSON and NDJSON. Arrow is :mod:`queuey.api.arrow.answers`.

UTF-8 bodies travel in JSON as text. All others travel as base64, and the message says ``"encoding": "base64"``. Raw
answers and Arrow carry the bytes unchanged.

A stream can break where the server did not mean to end it, and some servers close a broken answer as neatly as a whole
one. So every stream ends with a mark: the number of rows, the cursor to continue from, and whether there is more. An
answer without the mark is broken.
"""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice, pairwise
from operator import add
from typing import Any, NamedTuple

import orjson

from queuey.api.headers import shown_headers
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND, format_timestamp, hex_after
from queuey.locks import new_lock
from queuey.model import Bodies, Columns, Location, Message

PLAIN_COLUMNS = ("queue", "partition", "message_id", "timestamp", "content_type", "key", "body", "headers")
"""Members of a message in NDJSON and events, unless ``columns`` names others."""
COLUMNS = (*PLAIN_COLUMNS, "expires")
"""Members that ``columns`` may name."""


_FEW = 5
"""From this number of ids on, it pays to make their texts together."""
_FIRST_SECOND = EPOCH_TICKS + TICKS_PER_SECOND


class EndMark(NamedTuple):
    """The mark that ends a whole stream."""

    rows: int
    cursor: str
    more: bool
    watermark: str


def id_texts(ticks: Sequence[int], tails: Sequence[int], before: str = "", after: str = "") -> list[str]:
    """The wire form of ids, at least one.

    For many ids this is faster than :class:`~queuey.ids.MessageId`.

    :param before: stands before each, without a ``-``.
    :param after: stands after each, without a ``-``.

    >>> from queuey.ids import MessageId
    >>> id_texts(*zip(MessageId.parse("1f9f6640e56711f189bf02fc00000001")), after=";")
    ['1f9f6640e56711f189bf02fc00000001;']
    """
    if len(ticks) < _FEW:
        return [
            f"{before}{tick & 0xFFFFFFFF:08x}{hex_after(tick >> 32, tail)}{after}"
            for tick, tail in zip(ticks, tails, strict=True)
        ]
    raw, servers = _big_endian(ticks), array("q", tails).tobytes()
    texts, high = raw.hex("-", 8), raw[:4].hex()
    if texts.count("-" + high) == len(ticks) - 1 and servers == servers[:8] * len(tails):  # usual; needs no loop
        suffix = hex_after(ticks[0] >> 32, tails[0]) + after
        return (before + texts[8:].replace("-" + high, f"{suffix}-{before}") + suffix).split("-")
    lows = raw.hex("-", 4).split("-")[1::2]
    highs = map(hex_after, [tick >> 32 for tick in ticks], tails)
    return [f"{before}{low}{high}{after}" for low, high in zip(lows, highs, strict=True)]


def _big_endian(ticks: Sequence[int]) -> bytes:
    numbers = array("q", ticks)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()


def timestamps(ticks: Sequence[int], after: str = "") -> list[str]:
    """:func:`~queuey.ids.format_timestamp` of many.

    :param after: stands after each, without a space.

    >>> timestamps([EPOCH_TICKS + 17952366500128320, EPOCH_TICKS - 1], after=";")
    ['1795236650.0128320;', '-0.0000001;']
    """
    ticks = list(ticks)
    first, last = min(ticks, default=0), max(ticks, default=0)
    if len(ticks) < _FEW or first < _FIRST_SECOND:
        return [format_timestamp(tick) + after for tick in ticks]
    second = (first - EPOCH_TICKS) // TICKS_PER_SECOND
    if (last - EPOCH_TICKS) // TICKS_PER_SECOND == second:  # usually so, and then no loop over texts is needed
        before = EPOCH_TICKS + (second - 1) * TICKS_PER_SECOND  # so each number has a 1 before its seven digits
        whole = f"{second}."
        numbers = orjson.dumps([tick - before for tick in ticks]).decode()
        return (whole + numbers[2:-1].replace(",1", f"{after} {whole}") + after).split(" ")
    return [f"{since[:-7]}.{since[-7:]}{after}" for since in [str(tick - EPOCH_TICKS) for tick in ticks]]


def entries(messages: Sequence[Message], partition: int) -> list[dict[str, Any]]:
    """Messages as JSON: v1's four members, and any others that are set."""
    if not messages:
        return []
    columns = Columns.of(messages)
    texts, encodings = _texts(columns.bodies)
    found: list[dict[str, Any]] = [
        {"message_id": message_id, "timestamp": timestamp, "partition": partition, "body": text}
        for message_id, timestamp, text in zip(
            id_texts(columns.ticks, columns.tails), timestamps(columns.ticks), texts, strict=True
        )
    ]
    rare: list[tuple[str, Sequence[Any]]] = [
        ("encoding", encodings),
        ("content_type", columns.content_types),
        ("key", columns.keys),
    ]
    if columns.headers.count(None) < len(columns):
        rare.append(("headers", [None if found is None else shown_headers(found) for found in columns.headers]))
    for name, values in rare:
        if values.count(None) < len(values):
            for shown, value in zip(found, values, strict=True):
                if value is not None:
                    shown[name] = value
    return found


def _texts(bodies: Sequence[bytes]) -> tuple[Sequence[str], Sequence[str | None]]:
    """Bodies as JSON carries them, and the encoding of each that is no text."""
    try:
        return bodies.texts() if isinstance(bodies, Bodies) else list(map(bytes.decode, bodies)), ()
    except UnicodeDecodeError:
        texts, encodings = zip(*map(_text, bodies), strict=True)
        return texts, encodings


def _text(body: bytes) -> tuple[str, str | None]:
    try:
        return body.decode(), None
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


Presenter = Callable[[Sequence[Message], int], list[dict[str, Any]]]


def entries_of(columns: Sequence[str] | None, queue: str) -> Presenter:
    """How to present messages when a reader wants only some members."""
    if columns is None:
        return entries
    wanted = frozenset(columns) | ({"encoding"} if "body" in columns else frozenset())

    def chosen(messages: Sequence[Message], partition: int) -> list[dict[str, Any]]:
        found = [
            {name: value for name, value in {"queue": queue, **whole}.items() if name in wanted}
            for whole in entries(messages, partition)
        ]
        if "expires" in wanted and found:
            for shown, expires in zip(found, timestamps(Columns.of(messages).expires_ticks), strict=True):
                shown["expires"] = expires
        return found

    return chosen


def json_page(shown: Sequence[dict[str, Any]]) -> bytes:
    """v1's answer to a read."""
    return orjson.dumps({"status": "ok", "messages": shown})


_OFTEN_ESCAPED = (b'"', b"\n", b"\\")
"""What JSON escapes most often. A search finds it fast; only if it finds nothing is the whole text tried."""


NEXT_MESSAGE = '},{"message_id":"'
"""The end of one message and the beginning of the next."""
_NEXT = f'"{NEXT_MESSAGE}'
_FIRST = '{"status":"ok","messages":[{"message_id":"'
_AFTER_ID = '","timestamp":"'


def plain_page(messages: Sequence[Message], partition: int, behind: Sequence[str] = ()) -> bytes | None:
    """The answer of :func:`json_page`, for messages with v1's four members only.

    Most pages have only such messages. Joining a hundred messages of a pack from their columns takes a fifth less time.

    :param behind: what stands behind each body, from its last quote up to the next message; nothing for no more members.
    :returns: None if a message has another member, or a body that is no text. Also, of many messages without ``behind``,
        if JSON has to escape a body.

    >>> from queuey.ids import MessageId
    >>> page = [Message(*MessageId.parse("1f9f6640e56711f189bf02fc00000001"), 0, None, None, b"two chairs")] * 2
    >>> plain_page(page, 1) == json_page(entries(page, 1))
    True
    """
    columns = Columns.of(messages)
    count = len(columns)
    if columns.content_types.count(None) + columns.keys.count(None) + columns.headers.count(None) < 3 * count:
        return None
    texts = None if count < _FEW else _unescaped(columns.bodies)
    if texts is None and (behind or count < _FEW):  # else the dictionaries of entries take no longer
        texts = _escaped(columns.bodies)
    if texts is None:
        return None
    ids = id_texts(columns.ticks, columns.tails, "" if behind else _NEXT, _AFTER_ID)
    parts = [""] * (3 * count)
    parts[0::3] = map(add, ("", *behind[:-1]), ids) if behind else ids
    parts[1::3] = timestamps(columns.ticks, f'","partition":{partition},"body":"')
    parts[2::3] = texts
    parts[0] = _FIRST + parts[0].removeprefix(_NEXT)
    parts.append(behind[-1].removesuffix(NEXT_MESSAGE) + "}]}" if behind else '"}]}')
    return "".join(parts).encode()


def plain_answer(message: Message, partition: int, behind: str = '"', beside: str = "") -> bytes | None:
    """:func:`plain_page` of one message, in a quarter of the time: most requests for leases get one.

    :param behind: what stands behind its body, from its last quote on.
    :param beside: members of the answer beside ``status`` and ``messages``, as JSON, with a comma before each.

    >>> from queuey.ids import MessageId
    >>> message = Message(*MessageId.parse("1f9f6640e56711f189bf02fc00000001"), 0, None, None, b"2 chairs")
    >>> plain_answer(message, 1) == plain_page([message], 1)
    True
    """
    tick, tail, _, content_type, key, body, headers = message
    if not (content_type is None and key is None and headers is None):
        return None
    try:
        text = orjson.dumps(body.decode())
    except UnicodeDecodeError:
        return None
    message_id = f"{tick & 0xFFFFFFFF:08x}{hex_after(tick >> 32, tail)}"
    before = f'{_FIRST}{message_id}{_AFTER_ID}{format_timestamp(tick)}","partition":{partition},"body":'
    return b"%b%b%b" % (before.encode(), text[:-1], f"{behind}}}]{beside}}}".encode())


def _unescaped(bodies: Sequence[bytes]) -> Sequence[str] | None:
    """Bodies that JSON carries unchanged; None if one needs escapes, or is not ASCII."""
    whole = bytes(bodies.whole()) if isinstance(bodies, Bodies) else b"".join(bodies)
    if any(often in whole for often in _OFTEN_ESCAPED) or not whole.isascii():
        return None
    text = whole.decode("ascii")
    if len(orjson.dumps(text)) > len(text) + 2:
        return None
    ends = bodies.places() if isinstance(bodies, Bodies) else accumulate(map(len, bodies), initial=0)
    return [text[begin:end] for begin, end in pairwise(ends)]


def _escaped(bodies: Sequence[bytes]) -> Sequence[str] | None:
    """Bodies as JSON carries them, without their quotes; None if one is no text."""
    try:
        return [orjson.dumps(body.decode())[1:-1].decode() for body in bodies]
    except UnicodeDecodeError:
        return None


LINES_BYTES = 3 << 19
"""Bytes of one piece of a stream of lines. A page whose bodies need no escapes takes less."""
_TEXT_AT_ONCE = 128 << 10
"""Characters of a body that become JSON in one step: in a millisecond at worst."""


def _line(shown: dict[str, Any]) -> Iterable[bytes]:
    """A message as one line; a large body comes in several pieces."""
    text = shown.get("body", "")
    if len(text) <= _TEXT_AT_ONCE:
        return (orjson.dumps(shown, option=orjson.OPT_APPEND_NEWLINE),)
    before, begin, after = orjson.dumps({**shown, "body": ""}, option=orjson.OPT_APPEND_NEWLINE).partition(b'"body":"')
    return chain((before + begin,), text_pieces(text, _TEXT_AT_ONCE), (after,))


def text_pieces(text: str, size: int) -> Iterator[bytes]:
    """A text as JSON without its quotes, in pieces of ``size`` characters."""
    return (orjson.dumps(text[begin : begin + size])[1:-1] for begin in range(0, len(text), size))


_making_lines = new_lock()


def _taken(made: list[bytes]) -> bytes:
    """All parts as one piece; the list is empty afterwards."""
    piece = b"".join(made)
    made.clear()
    return piece


class NdjsonForm:
    """One JSON object on each line; the last line is the end mark."""

    media_type = "application/x-ndjson"

    def __init__(self, columns: Sequence[str] | None, queue: str) -> None:
        self._entries = entries_of(columns or PLAIN_COLUMNS, queue)

    def start(self) -> bytes:
        return b""

    def rows(self, messages: Sequence[Message], partition: int) -> Iterator[bytes]:
        """Lines, in pieces of at most 1.5 MiB.

        As JSON a body can take six times its bytes.

        One thread of the process makes a piece at a time. Three threads at once kept the event loop from the
        interpreter for 142 ms, one for 27 ms (``python -m tests.bench --only worst``). A piece is referenced here only
        until the client has taken it.
        """
        pieces = self._pieces(messages, partition)
        del messages
        while True:
            with _making_lines:
                made = [*islice(pieces, 1)]
            if not made:
                return
            yield made.pop()

    def _pieces(self, messages: Sequence[Message], partition: int) -> Iterator[bytes]:
        shown, made, size = self._entries(messages, partition), list[bytes](), 0
        del messages
        for line in chain.from_iterable(map(_line, shown)):
            if size + len(line) > LINES_BYTES:
                yield _taken(made)
                size = 0
            made.append(line)
            size += len(line)
        del shown
        yield _taken(made)

    def end(self, mark: EndMark) -> bytes:
        return orjson.dumps({"end": mark._asdict()}, option=orjson.OPT_APPEND_NEWLINE)


def append_answer(placed: Sequence[Location]) -> bytes:
    """v1's answer to an append, in which an id is called ``key``."""
    if len(placed) == 1:
        ((partition, message_id),) = placed
        key, timestamp = message_id.hex, message_id.timestamp
        return f'{{"status":"ok","messages":[{{"key":"{key}","timestamp":"{timestamp}","partition":{partition}}}]}}'.encode()
    shown: Iterable[tuple[str, str, int]]
    if len(placed) < _FEW:
        shown = [(message_id.hex, message_id.timestamp, partition) for partition, message_id in placed]
    else:
        partitions, ids = zip(*placed, strict=True)
        ticks, tails = zip(*ids, strict=True)
        shown = zip(id_texts(ticks, tails), timestamps(ticks), partitions, strict=True)
    return json_page(
        [{"key": key, "timestamp": timestamp, "partition": partition} for key, timestamp, partition in shown]
    )
