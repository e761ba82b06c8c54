"""The Query protocol, which older SDKs, shell scripts and signed links speak: forms in, XML out."""

from __future__ import annotations

import re
from base64 import b64encode
from binascii import a2b_base64, a2b_qp
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from queuey.sqs.errors import SqsError, invalid_parameter, missing_parameter, shown
from queuey.sqs.shapes import Field, SqsAction, Structure, complete

__all__ = [
    "MAX_OF_LINK",
    "MAX_PARAMETERS",
    "MEDIA_TYPE",
    "answer",
    "of_link",
    "parameters",
    "parse",
    "refusal",
    "without_forbidden",
]

MEDIA_TYPE = "text/xml"
MAX_PARAMETERS = 2000
"""In one request. The largest batch has some 400: ten entries of ten message attributes each."""
MAX_OF_LINK = 500
"""In a query string. The event loop parses it, and builds what was signed of it, before the caller is known."""
NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"

_NO_MEMBERS = frozenset(
    [
        "AWSAccessKeyId",
        "Action",
        "Expires",
        "SecurityToken",
        "Signature",
        "SignatureMethod",
        "SignatureVersion",
        "Timestamp",
        "Version",
    ]
)
"""Parameters that are about the request itself; so are those that begin with ``X-Amz-``."""

_MOST_PARTS = 8
_INDEX = re.compile(r"[1-9][0-9]{0,5}", re.ASCII)
_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)

Tree = dict[str, Any]
"""Parameters by the parts of their names: ``{"Attribute": {"1": {"Name": "Policy", "Value": ""}}}``."""


def parameters(form: bytes | str) -> list[tuple[str, str]]:
    """The parameters of a form or a query string, in their order; empty ones between ``&`` are skipped.

    :raises SqsError: more than :data:`MAX_PARAMETERS`, a broken escape, or bytes that are not UTF-8
        (MalformedQueryString).
    """
    try:
        form = form.encode() if isinstance(form, str) else form
        if form.count(b"&") >= MAX_PARAMETERS:
            raise _malformed(f"The request has more than {MAX_PARAMETERS} parameters.")
        if _BROKEN_ESCAPE.search(form):
            raise _malformed("A percent sign is not followed by two hexadecimal digits.")
        pairs = [pair.partition(b"=") for pair in form.split(b"&") if pair]
        return [(_unescaped(name), _unescaped(value)) for name, _, value in pairs]
    except UnicodeError as error:
        raise _malformed("The parameters are not UTF-8.") from error


@lru_cache(8)
def of_link(query_string: str) -> Sequence[tuple[str, str]]:
    """The parameters of a query string. Those of the last few are kept, since each is asked for several times.

    They are few, since their callers are not known yet.

    :raises SqsError: more than :data:`MAX_OF_LINK`; and as :func:`parameters`.
    """
    if query_string.count("&") >= MAX_OF_LINK:
        raise _malformed(f"The query string has more than {MAX_OF_LINK} parameters: send them as a form.")
    return tuple(parameters(query_string))


def _malformed(text: str) -> SqsError:
    return SqsError("MalformedQueryString", text)


_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def _unescaped(part: bytes) -> str:
    """A name or a value of a form.

    Whole escapes are those of quoted-printable with another sign, for which there is a decoder in C.
    :mod:`urllib.parse` makes an object of each escape: ten times the time and the memory.
    """
    if b"%" in part or b"+" in part:
        part = a2b_qp(part.replace(b"+", b" ").replace(b"=", b"=3D").replace(b"%", b"="))
    return part.decode()


def parse(action: SqsAction, parameters: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The members of a request, as :func:`queuey.sqs.json.parse` gives them.

    Of equal parameters the last counts. A queue that the path names is for the caller to add, as ``QueueUrl``.

    :raises SqsError: more than :data:`MAX_PARAMETERS`, an unknown or missing parameter, a value of another type, a
        number out of its bounds.
    """
    if len(parameters) > MAX_PARAMETERS:
        raise _malformed(f"The request has more than {MAX_PARAMETERS} parameters.")
    return complete(action, _members(action.members, _tree(parameters), ""))


def _tree(parameters: Sequence[tuple[str, str]]) -> Tree:
    tree: Tree = {}
    for name, value in parameters:
        if name in _NO_MEMBERS or name.startswith("X-Amz-"):
            continue
        *above, last = name.split(".", _MOST_PARTS)
        inner = tree
        for part in above:
            inner = inner.setdefault(part, {})
            if type(inner) is not dict:
                raise _unknown(name)
        if type(inner.get(last)) is dict:
            raise _unknown(name)
        inner[last] = value
    return tree


def _unknown(name: str) -> SqsError:
    return invalid_parameter(f"{shown(name)} is no parameter of this action.")


def _members(structure: Structure, tree: Tree, path: str) -> dict[str, Any]:
    """An empty list is left out, as in JSON: SDKs write it by the name that it has there."""
    values: dict[str, Any] = {}
    by_query = {field.query: field for field in structure.values()}
    for name, given in tree.items():
        field = by_query.get(name)
        if field is None and given == "" and name in structure.containers:
            continue
        if field is None:
            raise _unknown(path + name)
        values[field.name] = _READERS.get(field.kind, _one)(field, given, path + name)
    return values


def _one(field: Field, given: Any, path: str) -> Any:
    return _simple(field.kind, given, path)


def _list(field: Field, given: Any, path: str) -> list[Any]:
    if type(given) is str:  # AttributeName=All, as older examples have it
        given = {"1": given}
    return [_item(field, each, where) for where, each in _numbered(given, path)]


def _map(field: Field, given: Any, path: str) -> dict[str, Any]:
    if type(given) is not dict:
        raise _unknown(path)
    if given.keys() <= {field.key, field.value}:  # Attribute.Name=, Attribute.Value=, as older examples have it
        given = {"1": given}
    values = {}
    for where, each in _numbered(given, path):
        if type(each) is not dict or not each.keys() <= {field.key, field.value}:
            raise _unknown(where)
        for part in (field.key, field.value):
            if part not in each:
                raise missing_parameter(f"{where}.{part}")
        key = _simple("string", each[field.key], f"{where}.{field.key}")
        if key in values:
            raise invalid_parameter(f"{shown(where)} names {shown(key)} again: each name may stand once.")
        values[key] = _item(field, each[field.value], f"{where}.{field.value}")
    return values


def _numbered(given: Tree, path: str) -> Iterable[tuple[str, Any]]:
    """The items of a list or map by their numbers, which begin with 1 and may have gaps."""
    for number in given:
        if not _INDEX.fullmatch(number):
            raise _unknown(f"{path}.{number}")
    return [(f"{path}.{number}", given[number]) for number in sorted(given, key=int)]


def _item(field: Field, given: Any, path: str) -> Any:
    if field.structure is None:
        return _simple(field.item, given, path)
    if type(given) is not dict:
        raise _unknown(path)
    values = _members(field.structure, given, f"{path}.")
    for name in field.structure.required:
        if name not in values:
            raise missing_parameter(f"{path}.{field.structure[name].query}")
    return values


def _simple(kind: str, given: Any, path: str) -> Any:
    if type(given) is not str:
        raise _unknown(f"{path}.{next(iter(given))}")
    if kind == "string":
        return given
    if kind == "blob":
        try:
            return a2b_base64(given, strict_mode=True)
        except ValueError as error:
            raise invalid_parameter(f"Value for parameter {path} is invalid. Reason: Must be base64.") from error
    if not _INTEGER.fullmatch(given):
        raise invalid_parameter(f"Value {shown(given)} for parameter {path} is invalid. Reason: Must be an integer.")
    return int(given)


_READERS: Mapping[str, Callable[[Field, Any, str], Any]] = {"list": _list, "map": _map}


def answer(action: SqsAction, result: Mapping[str, Any], request_id: str) -> bytes:
    """The XML of an answer.

    Members that are None are left out; an empty list has no elements by itself.
    """
    inside = _element(f"{action.name}Result", _fields(action.output, result)) if action.output else ""
    metadata = _element("ResponseMetadata", _element("RequestId", _text(request_id)))
    return _document(f"{action.name}Response", inside + metadata)


def refusal(error: SqsError, request_id: str) -> bytes:
    """The XML of a refusal."""
    said = {"Type": error.fault, "Code": error.query_code, "Message": error.query_text}
    inside = "".join(_element(name, _text(text)) for name, text in said.items())
    return _document(
        "ErrorResponse", _element("Error", f"{inside}<Detail/>") + _element("RequestId", _text(request_id))
    )


def _document(name: str, inside: str) -> bytes:
    return f'<?xml version="1.0"?><{name} xmlns="{NAMESPACE}">{inside}</{name}>'.encode()


def _element(name: str, inside: str) -> str:
    return f"<{name}>{inside}</{name}>"


def _fields(structure: Structure, values: Mapping[str, Any]) -> str:
    return "".join([_field(structure[name], value) for name, value in values.items() if value is not None])


def _field(field: Field, value: Any) -> str:
    if field.kind == "list":
        return "".join([_element(field.query, _content(field, each)) for each in value])
    if field.kind == "map":
        return "".join(
            [
                _element(field.query, _element(field.key, _text(key)) + _element(field.value, _content(field, each)))
                for key, each in value.items()
            ]
        )
    return _element(field.query, _scalar(value))


def _content(field: Field, value: Any) -> str:
    return _scalar(value) if field.structure is None else _fields(field.structure, value)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return str(value).lower()


_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def without_forbidden(text: str) -> str:
    """Text with U+FFFD in place of each character that XML, and so SQS, has no place for."""
    return _FORBIDDEN.sub("\ufffd", text)


def _text(text: str) -> str:
    """Text as XML carries it: a reader would turn a plain CR into LF."""
    text = without_forbidden(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;").replace("\r", "&#xD;")
