"""Docstrings as Markdown: fields become a list, roles become links."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator

__all__ = ["Links", "markdown"]

Links = Callable[[str], str | None]
"""Where a name of the API is described, if it is."""

_FIELD = re.compile(r":(param|returns|raises|source)(?: ([^:]+))?: ?(.*)")
_ROLE = re.compile(r":(?:class|meth|func|mod|data|attr|exc):`(~?)([^`]+)`")
_CODE = re.compile(r"(`[^`]+`)")


def markdown(text: str, links: Links) -> str:
    """A docstring as Markdown.

    :param links: of the names in its roles, and of errors.
    """
    said, fields = _divided(inspect.cleandoc(text))
    return "\n\n".join(part for part in (_body(said, links), "\n".join(_entries(fields, links))) if part)


def _divided(text: str) -> tuple[list[str], list[list[str]]]:
    """The lines before the first field, and those of each field."""
    said: list[str] = []
    fields: list[list[str]] = []
    for line in text.splitlines():
        if _FIELD.match(line):
            fields.append([line])
        elif fields and (line.startswith(" ") or not line):
            fields[-1].append(line)
        else:
            said.append(line)
    return said, fields


def _entries(fields: list[list[str]], links: Links) -> Iterator[str]:
    for first, *more in fields:
        kind, names, begin = _FIELD.findall(first)[0]
        text = "\n".join("  " + line.strip() for line in more if line.strip())
        text = _inline(f"{begin}\n{text}".strip(), links)
        if kind == "param":
            label = ", ".join(f"**`{name.strip()}`**" for name in names.split(","))
        elif kind == "raises":
            label = "**raises** " + ", ".join(_linked(name.strip(), links) for name in names.split(","))
        else:
            label = f"**{kind}**"
        yield f"- {label}: {text}"


def _body(lines: list[str], links: Links) -> str:
    """Paragraphs; what is indented below ``::`` is code, and so are examples with ``>>>``."""
    parts: list[str] = []
    for block in re.split(r"\n{2,}(?!\s)", "\n".join(lines).strip()):
        before, colons, code = block.partition("::\n")
        if colons:
            said = before.rstrip() + (":" if before.strip() else "")
            parts += [_inline(said, links), f"```python\n{inspect.cleandoc(code)}\n```"]
        elif block.startswith(">>>"):
            parts.append(f"```pycon\n{block}\n```")
        else:
            parts.append(_inline(block, links))
    return "\n\n".join(part for part in parts if part)


def _inline(text: str, links: Links) -> str:
    """Roles, code, and what Markdown would take for its own."""
    text = text.replace("``", "`")
    text = _ROLE.sub(lambda found: _linked(found[2].rpartition(".")[2] if found[1] else found[2], links), text)
    pieces = _CODE.split(text)
    return "".join(piece if piece.startswith("`") else re.sub(r"([<>*])", r"\\\1", piece) for piece in pieces)


def _linked(name: str, links: Links) -> str:
    place = links(name)
    return f"[`{name}`]({place})" if place else f"`{name}`"
