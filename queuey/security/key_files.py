"""Public keys of issuers, from a file or an address.

They are read at start, and then again and again in the background.

No request causes a look (G20): a thread of its own takes one at most once a minute, with bounds on
time and size, at the very address that stands in the settings. When a look fails the keys of the last
one stay; a day after it they count no longer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from queuey.clock import Clock
from queuey.errors import ConfigurationError
from queuey.security.outgoing import OutgoingError, ask
from queuey.settings.issuers import Issuer

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_BYTES = 256 << 10
WHOLE_SECONDS = 10.0
LEAST_PAUSE_SECONDS = 60.0
KEPT_SECONDS = 24 * 3600.0


class KeyFileError(Exception):
    """Why keys could not be read; a sentence."""


class KeySource(Generic[T]):
    """The keys of one issuer, as ``parse`` makes them of its file."""

    def __init__(self, issuer: Issuer, parse: Callable[[bytes], T], clock: Clock) -> None:
        """:param parse: raises any exception for what is no file of keys."""
        self.issuer = issuer
        self._parse = parse
        self._clock = clock
        self._content = b""
        self._keys: T | None = None
        self._read_at = 0.0
        self._has_lapsed = False

    def keys(self) -> T | None:
        """The keys in force; None if they are not known.

        That is so before the first look, and after a day out of reach.
        """
        if self._clock.elapsed() - self._read_at > KEPT_SECONDS:
            return None
        return self._keys

    @property
    def age_seconds(self) -> float | None:
        """How long ago the keys were read; None if they never were."""
        return None if self._keys is None else self._clock.elapsed() - self._read_at

    def read(self) -> bool:
        """Read the keys anew.

        :returns: whether other keys are in force now.
        :raises KeyFileError: it failed; the keys of the last look stay.
        """
        content = fetch(self.issuer.keys) if self.issuer.fetches else _from_disk(Path(self.issuer.keys))
        try:
            keys = self._parse(content)
        except Exception as error:
            raise KeyFileError(f"{self.issuer.keys} holds no keys for it: {error}") from error
        changed = content != self._content
        self._content, self._keys, self._read_at = content, keys, self._clock.elapsed()
        self._has_lapsed = False
        return changed

    def lapse(self) -> bool:
        """Whether its keys have lapsed since they were last read, or since the last call."""
        if self._has_lapsed or self._keys is None or self.keys() is not None:
            return False
        self._has_lapsed = True
        return True


class Refresher:
    """Reads each source at its own interval and in its own thread.

    So a slow one delays no other.
    """

    def __init__(self, sources: Sequence[KeySource[Any]], changed: Callable[[], None]) -> None:
        """:param changed: called when other keys are in force, or none any more."""
        self._sources = sources
        self._changed = changed
        self._stop = threading.Event()

    def start(self) -> None:
        """Read all keys once, then go on in the background.

        :raises ConfigurationError: keys are in a file that cannot be read. An address may be out of reach for now.
        """
        self.read_files()
        looked = []
        for source in self._sources:
            first = threading.Event()
            looked.append(first)
            name = f"keys-{source.issuer.name}"
            threading.Thread(target=self._go_on, args=(source, first), name=name, daemon=True).start()
        for first in looked:
            first.wait(WHOLE_SECONDS)

    def read_files(self) -> None:
        """Read the keys that are in files.

        :raises ConfigurationError: one cannot be read.
        """
        for source in self._sources:
            if not source.issuer.fetches:
                try:
                    source.read()
                except KeyFileError as error:
                    raise ConfigurationError(f"[issuer:{source.issuer.name}] keys: {error}") from error

    def stop(self) -> None:
        """Stop. A fetch under way ends by itself."""
        self._stop.set()

    def _go_on(self, source: KeySource[Any], first: threading.Event) -> None:
        if source.issuer.fetches:
            self.look(source)
        first.set()
        while not self._stop.wait(_pause(source)):
            self.look(source)

    def look(self, source: KeySource[Any]) -> None:
        """Read one source anew, and log a failure."""
        try:
            if source.read():
                self._changed()
        except KeyFileError as error:
            log.warning("[issuer:%s] keys: %s", source.issuer.name, error)
            if source.lapse():  # what they proved before counts no longer, either
                self._changed()
        except Exception:  # a thread that ended here would never look again
            log.exception("[issuer:%s] keys cannot be looked at", source.issuer.name)


def _pause(source: KeySource[Any]) -> float:
    """Seconds until the next look: one comes soon after the keys lapse, so that this is noticed."""
    pause = max(source.issuer.refresh_seconds, LEAST_PAUSE_SECONDS)
    age = source.age_seconds
    if age is None or age > KEPT_SECONDS:
        return pause
    return min(pause, max(KEPT_SECONDS - age + 1, LEAST_PAUSE_SECONDS))


def _from_disk(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise KeyFileError(f"{path} is longer than {MAX_BYTES} bytes")
    return content


def fetch(address: str) -> bytes:
    """The content at an address, bounded in time and size.

    :raises KeyFileError: it could not be had.
    """
    try:
        found = ask(address, most_bytes=MAX_BYTES, seconds=WHOLE_SECONDS)
    except OutgoingError as error:
        raise KeyFileError(str(error)) from error
    if found.status != 200:
        raise KeyFileError(f"{address} answered {found.status}: expected 200, redirects are not followed")
    return found.content
