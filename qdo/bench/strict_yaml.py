"""YAML with the line of each key: what is wrong in a file is said with its place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from queuey.errors import ConfigurationError

T = TypeVar("T")

_AT = re.compile(r"^(?P<what>.*) - at `\$(?P<where>[^`]*)`$", re.DOTALL)
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<name>[^`]*)`")
_MISSING = re.compile(r"^Object missing required field `(?P<name>[^`]*)`")


class Parsed(NamedTuple):
    """A document, and the line of each place in it; the document's own place is the empty text."""

    value: Any
    lines: dict[str, int]


def parse(text: str, name: str) -> Parsed:
    """A document of mappings, lists and plain values.

    :param name: of the file, for errors.
    :raises ConfigurationError: it is no YAML, says a key twice, or has anchors or tags.
    """
    import yaml

    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if getattr(event, "anchor", None) is not None:
                raise ConfigurationError(f"{name}:{_line(event.start_mark)}: anchors and aliases are not taken")
            if getattr(event, "tag", None) is not None:
                raise ConfigurationError(f"{name}:{_line(event.start_mark)}: tags are not taken")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is None:
            raise ConfigurationError(f"{name}: the file is empty")
        lines: dict[str, int] = {}
        return Parsed(_value_of(root, "", name, lines), lines)
    except yaml.MarkedYAMLError as error:
        raise ConfigurationError(f"{name}:{_line(error.problem_mark)}: this is no YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{name}: this is no YAML: {error}") from error
    except RecursionError as error:
        raise ConfigurationError(f"{name}: too many values lie inside each other") from error


def _line(mark: Any) -> int:
    """Of a mark of PyYAML, from 1."""
    return mark.line + 1 if mark else 1


def _value_of(node: Any, place: str, name: str, lines: dict[str, int]) -> Any:
    import yaml

    lines.setdefault(place, _line(node.start_mark))
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        for key, value in node.value:
            line = _line(key.start_mark)
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigurationError(f"{name}:{line}: a key must be plain text")
            if key.value in found:
                raise ConfigurationError(f"{name}:{line}: {key.value} stands twice")
            lines[f"{place}.{key.value}"] = line
            found[key.value] = _value_of(value, f"{place}.{key.value}", name, lines)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_value_of(value, f"{place}[{at}]", name, lines) for at, value in enumerate(node.value)]
    try:
        plain = yaml.SafeLoader("").construct_object(node)
        if isinstance(plain, str):
            plain.encode()  # half a character cannot be written down
        return plain
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigurationError(f"{name}:{_line(node.start_mark)}: {node.value!r} is no value") from error


def convert(parsed: Parsed, kind: type[T], name: str) -> T:
    """The document as a value of this type.

    :raises ConfigurationError: it does not fit; the line of the key is said.
    """
    try:
        return msgspec.convert(parsed.value, kind)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{name}:{_explained(str(error), parsed.lines)}") from error


def _explained(said: str, lines: dict[str, int]) -> str:
    """The line, and what is wrong there.

    >>> lines = {"": 1, ".queuey": 3, ".queuey.bath": 4}
    >>> _explained("Object contains unknown field `bath` - at `$.queuey`", lines)
    '4: unknown key bath in queuey'
    >>> _explained("Expected `int` >= 1", lines)
    '1: expected `int` >= 1'
    """
    found = _AT.match(said)
    what, place = (found["what"], found["where"]) if found else (said, "")
    shown = place.lstrip(".")
    if unknown := _UNKNOWN.match(what):
        place = f"{place}.{unknown['name']}"
        what = f"unknown key {unknown['name']}" + (f" in {shown}" if shown else "")
    elif missing := _MISSING.match(what):
        what = f"the key {missing['name']} is missing" + (f" in {shown}" if shown else "")
    else:
        what = (f"{shown}: " if shown else "") + what[:1].lower() + what[1:]
    return f"{_line_of(place, lines)}: {what}"


def _line_of(place: str, lines: dict[str, int]) -> int:
    """Of the place, or of the nearest one around it that is known."""
    while place and place not in lines:
        place = place[: max(place.rfind("."), place.rfind("["), 0)]
    return lines.get(place, 1)


def read(path: Path, kind: type[T]) -> T:
    """The value in a file.

    :raises ConfigurationError: the file cannot be read, or does not fit.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: this is no text in UTF-8") from error
    return convert(parse(text, str(path)), kind, str(path))
