"""Messages as SQS shows them, and as the log keeps them.

A message attribute is a header of the message, of the same name and with the value as its bytes. What SQS knows beside
that stands in one header, :data:`OWN_HEADER`, as JSON: the types of attributes that are not plain ``String``, and what
the sender said. A message without any of it has no such header, and a message from another door is shown all the same.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import orjson

from queuey.ids import EPOCH_TICKS, MessageId, hex_after
from queuey.model.dead_letters import STORY_HEADER, Story, story_of
from queuey.model.headers import decode_headers, encode_headers
from queuey.model.trace_context import TRACEPARENT, TRACESTATE
from queuey.sqs.checksums import Attribute
from queuey.sqs.errors import SqsError, invalid_parameter

__all__ = [
    "NO_ATTRIBUTES",
    "OWN_HEADER",
    "MessageParts",
    "encoded",
    "encoded_together",
    "message_id",
    "parse_attributes",
    "parts_of",
    "sequence_number",
    "shown_attributes",
    "shown_bodies",
    "shown_body",
    "stored_headers",
    "unix_ms",
    "value_of",
]

OWN_HEADER = "queuey-sqs"
_OURS = "queuey-"
"""Headers with such names say something to Queuey itself, and are no attributes."""
MAX_ATTRIBUTES = 10
_MAX_TYPE = 256
_MAX_DIGITS = 38
_LEAST, _MOST = Decimal("-1e128"), Decimal("1e126")
"""Of attributes of the type Number."""
_BASES = ("String", "Number", "Binary")
_TICKS_PER_MS = 10_000

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_NUMBER = re.compile(r"[+-]?(?=\.?[0-9])[0-9]*\.?[0-9]*(?:[eE][+-]?[0-9]{1,4})?")
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ALLOWED_ASCII = b"\t\n\r" + bytes(range(32, 128))

NO_ATTRIBUTES: Mapping[str, Attribute] = {}


def encoded(text: str) -> bytes:
    """A text of a message in UTF-8.

    :raises SqsError: it has a character that no message may have.
    """
    if text.isascii():  # for most bodies: a tenth of what the expression takes
        body = text.encode()
        is_good = not body.translate(None, _ALLOWED_ASCII)
    else:
        is_good = text.isprintable() or _FORBIDDEN.search(text) is None
        body = text.encode() if is_good else b""
    if not is_good:
        raise SqsError(
            "InvalidMessageContents",
            "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | "
            "#x10000 to #x10FFFF",
        )
    return body


def encoded_together(texts: Sequence[str]) -> list[bytes] | None:
    """As :func:`encoded`, of several of ASCII alone; None for others, and if a character may not be."""
    whole = "".join(texts)
    if not whole.isascii() or whole.encode().translate(None, _ALLOWED_ASCII):
        return None
    return [text.encode() for text in texts]


def parse_attributes(given: Mapping[str, Mapping[str, Any]], kind: str = "user") -> dict[str, Attribute]:
    """Message attributes of a request, each checked.

    :raises SqsError: one is wrong.
    """
    if len(given) > MAX_ATTRIBUTES:
        raise invalid_parameter(
            f"Number of message attributes [{len(given)}] exceeds the allowed maximum [{MAX_ATTRIBUTES}]."
        )
    return {name: _parsed(name, value, kind) for name, value in given.items()}


def _parsed(name: str, value: Mapping[str, Any], kind: str) -> Attribute:
    where = f"Message ({kind}) attribute '{name[:256]}'"
    if not name or not _NAME.fullmatch(name) or name.startswith(".") or name.endswith(".") or ".." in name:
        raise invalid_parameter(f"{where} has an invalid name: expected 1 to 128 letters, digits, '_', '-' and '.'")
    if name.lower().startswith(("aws.", "amazon.", _OURS)):
        raise invalid_parameter(f"{where} has a name that begins with a reserved prefix.")
    if value.get("StringListValues") or value.get("BinaryListValues"):
        raise invalid_parameter(f"{where}: lists of values are not supported.")
    whole = value.get("DataType", "")
    base = whole.partition(".")[0]
    if base not in _BASES or len(whole) > _MAX_TYPE or not whole.isprintable():
        raise invalid_parameter(
            f"{where} has an invalid message attribute type, the set of supported type prefixes is Binary, Number, and String."
        )
    found, other = value.get("StringValue"), value.get("BinaryValue")
    if base == "Binary":
        found, other = other, found
    if not found:
        raise invalid_parameter(f"{where} must contain a non-empty value of type '{base}'.")
    if other:
        raise invalid_parameter(f"{where} has a StringValue and a BinaryValue: only one can be stored.")
    if isinstance(found, bytes):
        return Attribute(whole, found)
    text = encoded(found)
    if base == "Number" and not _is_number(found):
        raise invalid_parameter(f"Could not cast message attribute '{name}' value to number.")
    return Attribute(whole, text)


def _is_number(text: str) -> bool:
    if len(text) > 2 * _MAX_DIGITS or not _NUMBER.fullmatch(text):
        return False
    value = Decimal(text)
    return len(value.as_tuple().digits) <= _MAX_DIGITS and _LEAST <= value <= _MOST


def stored_headers(attributes: Mapping[str, Attribute], own: Mapping[str, Any]) -> bytes | None:
    """The headers of a message with these attributes.

    :param own: what :data:`OWN_HEADER` has beside the types.
    :raises SqsError: they take more room than headers have.
    """
    if not attributes and not own:
        return None
    headers = {name: attribute.value for name, attribute in attributes.items()}
    types = {name: attribute.type for name, attribute in attributes.items() if attribute.type != "String"}
    if types or own:
        headers[OWN_HEADER] = orjson.dumps({**own, **({"types": types} if types else {})})
    try:
        return encode_headers(headers)
    except ValueError as error:
        raise invalid_parameter(f"The message attributes cannot be stored: {error}.") from error


class MessageParts(NamedTuple):
    """What the headers of a message say."""

    attributes: Mapping[str, Attribute]
    own: Mapping[str, Any]
    story: Story | None
    """If it is a dead letter."""


_NOTHING = MessageParts({}, {}, None)


def parts_of(headers: bytes | None) -> MessageParts:
    """Headers from any door, as attributes. What SQS could not have sent is left out."""
    if headers is None:
        return _NOTHING
    found = decode_headers(headers)
    own, story = _own(found.get(OWN_HEADER)), None
    if STORY_HEADER in found:
        try:
            story = story_of(found)
            MessageId.parse(story.first_message_id)
        except ValueError:
            story = None  # another door wrote it
    types = own.get("types", {})
    if "traced" in own:  # the trace of its request, which SQS gives to no receiver as an attribute
        found = {name: value for name, value in found.items() if name not in (TRACEPARENT, TRACESTATE)}
    attributes = {
        name: Attribute(_type_of(types.get(name), value), value)
        for name, value in found.items()
        if value and not name.lower().startswith(_OURS) and _NAME.fullmatch(name)
    }
    return MessageParts(attributes, own, story)


def _own(text: bytes | None) -> Mapping[str, Any]:
    """What another door wrote there, and is not of its type, says nothing."""
    if text is None:
        return {}
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if type(value) is _OWN_TYPES.get(name)}


_OWN_TYPES = {"dedup": str, "sender": str, "sent": int, "trace": str, "traced": bool, "types": dict}


def _type_of(given: object, value: bytes) -> str:
    """The type that a sender gave, or what the value can be: another door may have changed either."""
    base = given.partition(".")[0] if isinstance(given, str) else ""
    if isinstance(given, str) and (base == "Binary" or (base in _BASES and _text(value) is not None)):
        return given
    return "Binary" if _text(value) is None else "String"


def _text(raw: bytes) -> str | None:
    """Bytes as text; None if no message of SQS may have it."""
    if raw.isascii():
        return None if raw.translate(None, _ALLOWED_ASCII) else raw.decode()
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() or _FORBIDDEN.search(text) is None else None


def shown_attributes(attributes: Mapping[str, Attribute], wanted: Collection[str]) -> dict[str, Attribute]:
    """Those that a receive asks for, by name, by the beginning of a name, or all of them."""
    if not wanted:
        return {}
    if not {"All", ".*", "*"}.isdisjoint(wanted):
        return dict(attributes)
    starts = tuple(name[: -len(".*")] for name in wanted if name.endswith(".*"))
    return {name: one for name, one in attributes.items() if name in wanted or (starts and name.startswith(starts))}


def value_of(attribute: Attribute) -> dict[str, Any]:
    """An attribute in an answer."""
    if attribute.is_binary:
        return {"DataType": attribute.type, "BinaryValue": attribute.value}
    return {"DataType": attribute.type, "StringValue": attribute.value.decode("utf-8", "replace")}


def shown_body(body: bytes) -> tuple[str, bytes]:
    """A body as text, and its bytes. What another door stored and no SQS message may have comes in base64."""
    text = _text(body)
    if text is None:
        body = base64.b64encode(body)
        text = body.decode()
    return text, body


def shown_bodies(bodies: Sequence[bytes]) -> list[tuple[str, bytes]]:
    """As :func:`shown_body`, of several; those of ASCII alone are looked at together."""
    whole = b"".join(bodies)
    if not whole.isascii() or whole.translate(None, _ALLOWED_ASCII):
        return [*map(shown_body, bodies)]
    text = whole.decode()
    texts = [text[begin:end] for begin, end in pairwise(accumulate(map(len, bodies), initial=0))]
    return [*zip(texts, bodies, strict=True)]


def message_id(id_: MessageId) -> str:
    """An id as SQS shows it.

    >>> message_id(MessageId.parse("1f9f6640e56711f189bf02fc00000001"))
    '1f9f6640-e567-11f1-89bf-02fc00000001'
    """
    ticks, tail = id_
    return f"{ticks & 0xFFFFFFFF:08x}{_behind(ticks >> 32, tail)}"


@lru_cache(1024)
def _behind(high: int, tail: int) -> str:
    """All but the first eight digits, which the ids of some minutes have in common."""
    text = hex_after(high, tail)
    return f"-{text[:4]}-{text[4:8]}-{text[8:12]}-{text[12:]}"


def unix_ms(ticks: int) -> int:
    """Milliseconds since 1970."""
    return (ticks - EPOCH_TICKS) // _TICKS_PER_MS


def sequence_number(id_: MessageId) -> str:
    """A number that rises with the ids: 128 bits, in decimal.

    >>> sequence_number(MessageId(1, 0)) < sequence_number(MessageId(1, 5)) < sequence_number(MessageId(2, -9))
    True
    """
    return f"{id_.ticks << 64 | (id_.tail + (1 << 63)):039d}"
