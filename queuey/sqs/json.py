"""The protocol AWS JSON 1.0, which SDKs of today speak."""

from __future__ import annotations

from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import orjson

from queuey.sqs.errors import SqsError, invalid_parameter, missing_parameter, serialization_error, shown
from queuey.sqs.shapes import NO_STRUCTURE, Field, SqsAction, Structure, complete

__all__ = ["MEDIA_TYPE", "answer", "parse", "refusal"]

MEDIA_TYPE = "application/x-amz-json-1.0"

_NAMESPACE = "com.amazonaws.sqs#"
_LEAST = {"integer": -(2**31), "long": -(2**63)}
_MOST = {"integer": 2**31 - 1, "long": 2**63 - 1}
_NAMES = {"blob": "Blob", "boolean": "Boolean", "integer": "Integer", "long": "Long", "string": "String"}


def parse(action: SqsAction, body: bytes) -> dict[str, Any]:
    """The members of a request by their names: text, int, bytes, lists, dicts.

    null means absent, and an empty body means no members. The work grows with the body's length alone.

    :raises SqsError: not one JSON object (SerializationException), a value of another type (likewise), an unknown or
        missing member, a number out of its bounds.
    """
    try:
        given = orjson.loads(body) if body else {}
    except orjson.JSONDecodeError as error:
        raise serialization_error(f"The body is not JSON: {error}") from error
    if type(given) is not dict:
        raise serialization_error(f"{_kind_of(given)} can not be the body: send one JSON object")
    return complete(action, _members(action.members, given, ""))


def _members(structure: Structure, given: dict[str, Any], path: str) -> dict[str, Any]:
    """Members that are absent, null or empty lists are left out.

    :param path: where the structure is: ``Entries.1.``
    """
    if given.keys() <= structure.texts and {*map(type, given.values())} == {str}:  # most are nothing else
        return given
    values: dict[str, Any] = {}
    for name, value in given.items():
        field = structure.get(name)
        if field is None:
            raise invalid_parameter(f"{shown(path + name)} is no parameter of this action.")
        if field.kind == "string" and type(value) is str:
            values[name] = value
            continue
        if value is None:
            continue
        if field.kind not in _CONTAINERS:
            values[name] = _simple(field.kind, value, path, name)
        elif items := _CONTAINERS[field.kind](field, value, path + name):
            values[name] = items
    return values


def _structure(field: Field, given: Any, path: str) -> dict[str, Any]:
    if type(given) is not dict:
        raise _wrong(path, given, "Structure")
    structure = field.structure or NO_STRUCTURE
    values = _members(structure, given, f"{path}.")
    for name in structure.required:
        if name not in values:
            raise missing_parameter(f"{path}.{name}")
    return values


def _list(field: Field, given: Any, path: str) -> list[Any]:
    if type(given) is not list:
        raise _wrong(path, given, "List")
    if field.item == "structure":
        if _are_plain(field.structure or NO_STRUCTURE, given):
            return given
        return [_structure(field, each, f"{path}.{number}") for number, each in enumerate(given, 1)]
    return [_simple(field.item, each, path, "") for each in given]


def _are_plain(structure: Structure, given: list[Any]) -> bool:
    """Whether all are objects of texts alone, and have all that is required: so are most entries of batches."""
    return (
        {*map(type, given)} == {dict}
        and structure.texts.issuperset(chain.from_iterable(given))
        and {*map(type, chain.from_iterable(map(dict.values, given)))} == {str}
        and all(name in each for name in structure.required for each in given)
    )


def _map(field: Field, given: Any, path: str) -> dict[str, Any]:
    if type(given) is not dict:
        raise _wrong(path, given, "Map")
    if field.item == "structure":
        return {key: _structure(field, each, f"{path}.{key}") for key, each in given.items()}
    return {key: _simple(field.item, each, f"{path}.", key) for key, each in given.items()}


_CONTAINERS = {"list": _list, "map": _map}


def _simple(kind: str, given: Any, path: str, name: str) -> Any:
    found = type(given)
    if kind == "string":
        if found is str:
            return given
    elif kind == "blob":
        if found is str:
            return _blob(given, path + name)
    elif kind == "boolean":
        if found is bool:
            return given
    elif found is int:
        if _LEAST[kind] <= given <= _MOST[kind]:
            return given
        raise serialization_error(f"{shown(path + name)}: {given} is out of the range of {_NAMES[kind]}")
    raise _wrong(path + name, given, _NAMES[kind])


def _blob(text: str, path: str) -> bytes:
    try:
        return a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise serialization_error(f"{shown(path)}: the value is not base64") from error


def _wrong(path: str, given: Any, wanted: str) -> SqsError:
    return serialization_error(f"{shown(path)}: {_kind_of(given)} can not be converted to {wanted}")


def _kind_of(given: Any) -> str:
    if given is None:
        return "NULL_VALUE"
    if given is True or given is False:
        return f"{given}_VALUE".upper()
    return _KINDS.get(type(given), "NUMBER_VALUE")


_KINDS: Mapping[type, str] = {str: "STRING_VALUE", list: "LIST_VALUE", dict: "STRUCTURE_VALUE"}


def answer(action: SqsAction, result: Mapping[str, Any]) -> bytes:
    """The body of an answer.

    Blobs become base64. Members that are None, or empty lists and maps that the model does not require, are left out.
    """
    return orjson.dumps(_filled(action.output, result), default=_encoded)


def _filled(structure: Structure, result: Mapping[str, Any]) -> Mapping[str, Any]:
    if _are_whole(structure, [result]):
        return result
    return {
        name: _deeper(structure[name], value)
        for name, value in result.items()
        if value is not None and (value or structure[name].kind not in _CONTAINERS or structure[name].required)
    }


def _are_whole(structure: Structure, results: Sequence[Mapping[str, Any]]) -> bool:
    """Whether nothing is to be left out of these, nor of what they have."""
    names = {*chain.from_iterable(results)}
    if not (names <= structure.keys() and structure.nested.isdisjoint(names)):
        return False
    if None in chain.from_iterable([one.values() for one in results]):
        return False
    return all(one.get(name, True) for name in structure.containers & names for one in results)


def _deeper(field: Field, value: Any) -> Any:
    if field.structure is None:
        return value
    if field.kind == "list":
        return value if _are_whole(field.structure, value) else [_filled(field.structure, each) for each in value]
    return {key: _filled(field.structure, each) for key, each in value.items()}


def _encoded(value: object) -> str:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    raise TypeError(f"a {type(value).__name__} is no value of an answer")


def refusal(error: SqsError) -> bytes:
    """The body of a refusal; the header ``x-amzn-query-error`` is :attr:`SqsError.query_error`."""
    return orjson.dumps({"__type": _NAMESPACE + error.shape, "message": str(error)})
