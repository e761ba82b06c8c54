r"""The form of a line that is a message: ``{key}\t{body}``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from queuey.cli.sending import InputLine

if TYPE_CHECKING:
    from qdo.client import NewMessage

__all__ = ["ESCAPES", "FIELD", "HEADER", "InputForm", "line_form"]

FIELD = re.compile(r"\{(\w+|header:[^{}]+)\}|\\([nt0\\])")
"""A field, or an escaped character."""
ESCAPES = {"n": b"\n", "t": b"\t", "0": b"\0", "\\": b"\\"}
HEADER = "header:"
_READ = ("body", "key", "content_type")
_SKIPPED = ("id", "message_id", "partition", "timestamp", "time", "queue")
"""What a message gets anew when it is stored."""


class InputForm:
    """Reads the lines that ``queuey get --format`` writes with the same form."""

    def __init__(self, text: str) -> None:
        """:raises click.BadParameter: no line can be read with it."""
        self._fields: list[str] = []
        parts: list[bytes] = []
        end, after_field = 0, False
        for found in FIELD.finditer(text):
            between = text[end : found.start()].encode()
            end = found.end()
            if between or not found[1]:
                parts.append(re.escape(between + (b"" if found[1] else ESCAPES[found[2]])))
                after_field = False
            if found[1]:
                self._add(found[1], after_field=after_field)
                parts.append(b"(.*?)")
                after_field = True
        parts.append(re.escape(text[end:].encode()))
        if "body" not in self._fields:
            raise click.BadParameter("it has no {body}")
        self._text = text
        self._pattern = re.compile(b"".join(parts), re.DOTALL)

    def _add(self, name: str, *, after_field: bool) -> None:
        if not name.startswith(HEADER) and name not in (*_READ, *_SKIPPED):
            raise click.BadParameter(
                f"{{{name}}} is not one of {', '.join(_READ)}, header:NAME, or {', '.join(_SKIPPED)}"
            )
        if name in self._fields:
            raise click.BadParameter(f"{{{name}}} stands twice")
        if after_field:
            raise click.BadParameter(f"nothing stands between {{{self._fields[-1]}}} and {{{name}}}")
        self._fields.append(name)

    @property
    def fields(self) -> Sequence[str]:
        return self._fields

    def message(self, line: InputLine, like: NewMessage) -> NewMessage:
        """The message of a line. A field that is empty there is that of ``like``.

        :raises click.UsageError: the line has another form.
        """
        found = self._pattern.fullmatch(line.text)
        if found is None:
            raise line.refuse(f"it has not the form {self._text}")
        changed: dict[str, Any] = {}
        headers: dict[str, bytes | str] = dict(like.headers)
        for name, value in zip(self._fields, found.groups(), strict=True):
            if name == "body":
                changed["body"] = value
            elif name.startswith(HEADER) and value:
                headers[name.removeprefix(HEADER)] = value
            elif name in _READ and value:
                changed[name] = _text(line, name, value)
        if not changed["body"]:
            raise line.refuse("its body is empty, and a message cannot be empty")
        return replace(like, headers=headers, **changed)


def _text(line: InputLine, name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise line.refuse(f"its {name} is not UTF-8") from None


def line_form(_ctx: click.Context, _param: click.Parameter, text: str | None) -> InputForm | None:
    """``--format`` of a command that reads lines."""
    return None if text is None else InputForm(text)
