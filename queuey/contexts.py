"""Contexts: servers with an application and a credential, by name.

They are in one file of the user, which no other user may read. Commands and clients that are given no server ask that of the
environment, or else that of the current context.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO

from queuey.errors import ConfigurationError

__all__ = [
    "DEFAULT_APPLICATION",
    "DEFAULT_URL",
    "Contexts",
    "ServerContext",
    "changed_contexts",
    "context_in_force",
    "contexts_file",
    "named_by_environment",
    "read_contexts",
]

DEFAULT_URL, DEFAULT_APPLICATION = "http://127.0.0.1:5000", "demo"

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_NAMES_A_SERVER = ("QUEUEY_URL", "QUEUEY_KEY", "QUEUEY_TOKEN")


@dataclass(frozen=True, slots=True)
class ServerContext:
    """A server, an application, and the credential to ask with."""

    url: str = DEFAULT_URL
    application: str = DEFAULT_APPLICATION
    key: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    """Takes the place of the key."""


@dataclass
class Contexts:
    """All contexts of a user."""

    current: str | None = None
    """The name of the one in force if nothing else is named."""
    by_name: dict[str, ServerContext] = field(default_factory=dict)

    def get(self, name: str) -> ServerContext:
        """:raises ConfigurationError: there is none of this name."""
        if name not in self.by_name:
            known = f"there are {', '.join(sorted(self.by_name))}" if self.by_name else "there are none"
            raise ConfigurationError(f"there is no context {name}: {known}; 'queuey context add {name}' makes it")
        return self.by_name[name]

    def add(self, name: str, context: ServerContext) -> None:
        """Keep a context, in the place of one of this name. The first one becomes the current one.

        :raises ConfigurationError: the name cannot be one.
        """
        if not _NAME.fullmatch(name):
            raise ConfigurationError(f"context {name!r}: expected 1 to 100 letters, digits, _ . -")
        self.by_name[name] = context
        self.current = self.current or name

    def remove(self, name: str) -> None:
        """Forget a context. If it was the current one there is none any more.

        :raises ConfigurationError: there is none of this name.
        """
        self.get(name)
        del self.by_name[name]
        self.current = None if self.current == name else self.current


def contexts_file() -> Path:
    """``QUEUEY_CONTEXTS``, or ``queuey/contexts.json`` in the user's folder of settings."""
    if named := os.environ.get("QUEUEY_CONTEXTS"):
        return Path(named)
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 - a user may have no home
    return Path(folder, "queuey", "contexts.json")


def context_in_force(name: str | None = None, *, environment_only: bool = False) -> ServerContext:
    """The server that commands and clients ask if they are given none.

    It is that of the environment if ``QUEUEY_URL``, ``QUEUEY_KEY`` or ``QUEUEY_TOKEN`` is set: no key of the environment
    goes to the server of a context, and no key of a context to another server. Else it is that of ``QUEUEY_CONTEXT``, or of
    the current context. ``QUEUEY_APPLICATION`` takes the place of their application.

    :param name: of a context. The environment does not count then.
    :param environment_only: no context counts.
    :raises ConfigurationError: there is no such context; the file cannot be used; the environment names a server and a
        context.
    """
    if name is not None:
        return read_contexts().get(name)
    get = os.environ.get
    named, asked = named_by_environment(), get("QUEUEY_CONTEXT")
    if named and asked and not environment_only:
        raise ConfigurationError(f"QUEUEY_CONTEXT and {named[0]} both name a server: unset one of them")
    if named or environment_only:
        found = ServerContext(
            get("QUEUEY_URL") or DEFAULT_URL, key=get("QUEUEY_KEY") or None, token=get("QUEUEY_TOKEN") or None
        )
    else:
        contexts = read_contexts()
        chosen = asked or contexts.current
        found = contexts.get(chosen) if chosen else ServerContext()
    return replace(found, application=get("QUEUEY_APPLICATION") or found.application)


def named_by_environment() -> list[str]:
    """The variables that name a server or a credential, so that no current context counts."""
    return [variable for variable in _NAMES_A_SERVER if os.environ.get(variable)]


def read_contexts() -> Contexts:
    """The contexts of the user; none if there is no file.

    :raises ConfigurationError: other users can read the file, or it holds no contexts.
    """
    file = contexts_file()
    try:
        with file.open(encoding="utf-8") as opened:
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            text = opened.read()
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}") from error
    if mode & 0o077:
        raise ConfigurationError(f"other users may read the keys in {file}: say 'chmod 600 {file}'")
    try:
        return _from_json(json.loads(text))
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise ConfigurationError(
            f"{file} holds no contexts: mend it, or remove it and add them again ({error})"
        ) from error


@contextmanager
def changed_contexts() -> Iterator[Contexts]:
    """The contexts, which are written at the end of the block. Another process that changes them waits meanwhile.

    A reader finds the file as it was or as it is after the change. If the block raises, nothing is changed.

    :raises ConfigurationError: as :func:`read_contexts`, or the file cannot be written.
    """
    file = contexts_file()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _open(file.with_name(f"{file.name}.lock"), os.O_CREAT | os.O_WRONLY) as lock:
            fcntl.flock(lock.fileno(), fcntl.LOCK_EX)
            contexts = read_contexts()
            yield contexts
            new = file.with_name(f"{file.name}.new")
            new.unlink(missing_ok=True)
            try:
                with _open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY) as opened:
                    json.dump(asdict(contexts), opened, indent=2, ensure_ascii=False)
                    opened.flush()
                    os.fsync(opened.fileno())
                new.replace(file)
            finally:
                new.unlink(missing_ok=True)  # it has keys, and is there only if it could not be written whole
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error}") from error


def _open(file: Path, flags: int) -> IO[str]:
    """A file that only its user may read, also if it is new."""
    return os.fdopen(os.open(file, flags | os.O_CLOEXEC, 0o600), "w", encoding="utf-8")


def _from_json(found: Mapping[str, object]) -> Contexts:
    current, by_name = found["current"], found["by_name"]
    if not isinstance(by_name, dict) or not (current is None or current in by_name):
        raise ValueError("'by_name' or 'current' is wrong")
    contexts = {str(name): ServerContext(**entry) for name, entry in by_name.items()}
    for context in contexts.values():
        if not all(isinstance(value, str | None) for value in asdict(context).values()) or not context.url:
            raise ValueError("a value is no text")
    return Contexts(None if current is None else str(current), contexts)
