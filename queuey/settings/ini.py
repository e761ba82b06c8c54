"""How an ini file is read: the value rules of the first Queuey, typed.

They are in queuey-api-v1 section 9.

``%(here)s`` is the folder of the file that says it and ``${NAME}`` comes from the environment; a
quoted text loses its quotes; a value over several lines is a list, its blank lines dropped; the key
``extends`` in ``[DEFAULT]`` names further files whose values fill in what this one leaves out.
Values stay text here: only the row of a setting knows its type.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from queuey.errors import ConfigurationError

__all__ = ["Entry", "read_ini"]

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NO_DEFAULTS = "\0"
"""configparser would mix [DEFAULT] into every section; under this name it has no section to mix in."""


class Entry(NamedTuple):
    """One value as it is written, and the file it stands in."""

    raw: str
    path: Path

    def lines(self, environ: Mapping[str, str]) -> list[str]:
        """Its lines that are not blank, quotes taken off and names replaced.

        :raises ConfigurationError: a ``${NAME}`` is not in the environment.
        """
        return [self._expand(_unquote(line.strip()), environ) for line in self.raw.splitlines() if line.strip()]

    def text(self, environ: Mapping[str, str], where: str) -> str:
        """Its one line, empty if it has none.

        :param where: names the value in the error.
        :raises ConfigurationError: several lines; or as :meth:`lines`.
        """
        lines = self.lines(environ)
        if len(lines) > 1:
            raise ConfigurationError(f"{self.path}: {where} has {len(lines)} lines: expected one")
        return lines[0] if lines else ""

    def _expand(self, text: str, environ: Mapping[str, str]) -> str:
        def value(found: re.Match[str]) -> str:
            try:
                return environ[found[1]]
            except KeyError:
                raise ConfigurationError(
                    f"{self.path}: ${{{found[1]}}} is not in the environment: set {found[1]} or write the value itself"
                ) from None

        return _VARIABLE.sub(value, text.replace("%(here)s", str(self.path.parent)))


Sections = dict[str, dict[str, Entry]]


def read_ini(path: Path, environ: Mapping[str, str]) -> Sections:
    """All sections of a file and of those it extends.

    ``[DEFAULT]`` is a section like any other.

    Of two files in ``extends`` the first one counts where both say something.

    :raises ConfigurationError: a file is missing, unreadable, malformed, or extends itself.
    """
    return _read(path.absolute(), environ, ())


def _read(path: Path, environ: Mapping[str, str], extended_by: tuple[str, ...]) -> Sections:
    real = os.path.realpath(path)  # a/../a/x.ini is x.ini as well
    if real in extended_by:
        raise ConfigurationError(f"{path}: this file extends itself")
    sections = _parse(path)
    extends = sections.get("DEFAULT", {}).get("extends")
    for name in extends.lines(environ) if extends else ():
        for section, entries in _read(path.parent / name, environ, (*extended_by, real)).items():
            sections[section] = entries | sections.get(section, {})
    return sections


def _parse(path: Path) -> Sections:
    """One file. Errors name the line, never what it says: it may be a key."""
    parser = configparser.ConfigParser(interpolation=None, default_section=_NO_DEFAULTS)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case: names of applications do
    try:
        parser.read_string(path.read_text(encoding="utf-8-sig"), str(path))
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: not UTF-8") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    except configparser.DuplicateSectionError as error:
        raise ConfigurationError(f"{path}, line {error.lineno}: section [{error.section}] is given twice") from None
    except configparser.DuplicateOptionError as error:
        raise ConfigurationError(
            f"{path}, line {error.lineno}: [{error.section}] {error.option} is given twice"
        ) from None
    except configparser.MissingSectionHeaderError as error:
        raise ConfigurationError(f"{path}, line {error.lineno}: expected a [section] first") from None
    except configparser.ParsingError as error:
        lines = ", ".join(str(number) for number, _ in error.errors)
        raise ConfigurationError(f"{path}, line {lines}: expected key = value") from None
    return {section: {key: Entry(value, path) for key, value in parser.items(section)} for section in parser.sections()}


def _unquote(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text
