"""From an ini file, ``QUEUEY_*`` variables and options to settings.

The weakest source is read first: default, ini file, environment, command line. An unknown section, key or
``QUEUEY_*`` variable is refused, never ignored. ``[server]`` keys are ``QUEUEY_<KEY>``, all others
``QUEUEY_<SECTION>_<KEY>``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from queuey.errors import ConfigurationError
from queuey.settings.checks import MIN_KEY_CHARACTERS, check, is_key
from queuey.settings.first_queuey import OLD_BACKENDS, OLD_KEYS, OLD_SECTIONS, Moved, moved_to_cassandra
from queuey.settings.ini import Entry, read_ini
from queuey.settings.issuers import Issuer, is_issuer, read_issuers
from queuey.settings.sections import SECTIONS, SETTINGS, Settings
from queuey.settings.setting import Setting

__all__ = ["CLIENT_VARIABLES", "load_settings"]

CLIENT_VARIABLES = frozenset(
    {"QUEUEY_URL", "QUEUEY_APPLICATION", "QUEUEY_KEY", "QUEUEY_TOKEN", "QUEUEY_CONTEXT", "QUEUEY_CONTEXTS"}
    | {"QUEUEY_CONFIG", "QUEUEY_OUTPUT"}
)
"""``QUEUEY_*`` variables that are not settings: the client commands', the first key, the ini file's path."""
_COMMAND_VARIABLE = re.compile(
    r"QUEUEY_(SERVE|PUT|GET|SHOW|RM|IMPORT|GROUP|CONTEXT|RECEIVE|POP|ACK|RELEASE|REJECT|LEASE|REDRIVE|PURGE|QUEUE|KEY|TOKEN"
    r"|INIT|BACKUP|RESTORE|VERIFY|TOP|CHECK|DOCTOR|AUDIT|CONFIG|ERRORS|VERSION|COMPLETION|APPLICATION|SCHEDULE|BENCH)_.+"
)
"""Every option of a command can be set by a variable; a server is not to stumble over them."""
_BY_NAME = {setting.name: setting for setting in SETTINGS}
_BY_VARIABLE = {setting.variable: setting for setting in SETTINGS}
_APPLICATION = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]{1,50}")
_PASTE = re.compile(
    r"(app|application|composite|filter|pipeline|server|host):.+|loggers|handlers|formatters|(logger|handler|formatter)_.+"
)
_PASTE_SERVER = " [server:main]"
"""Ends the origin of what a file of pserve says."""


def load_settings(
    path: str | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
) -> Settings:
    """Read, check and freeze all settings.

    :param path: the ini file, None for none.
    :param environ: a server passes ``os.environ``; None means empty.
    :param overrides: values of command line options by section and key; None is an option not given.
    :raises ConfigurationError: the first thing that is wrong: where, which key, what was expected.
    """
    loader = _Loader(environ or {})
    if path is not None:
        loader.take_file(Path(path))
    loader.take_environment()
    loader.take_options(overrides or {})
    return loader.freeze()


class _Loader:
    """Gathers values, the weakest source first."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._values: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
        """What is not the default, by section and key."""
        self._origins: dict[str, str] = {}
        self._keys: dict[str, tuple[str, ...]] = {}
        self._issuers: tuple[Issuer, ...] = ()
        self._notices: list[str] = []
        self._had_no_read_delay = False
        """The file is one of the first Queuey's, for messages in Cassandra."""

    def take_file(self, path: Path) -> None:
        sections = read_ini(path, self._environ)
        self._take_paste_server(sections.get("server:main", {}))
        moved = self._take_moved(moved_to_cassandra(sections, self._environ))
        for section, entries in sections.items():
            if section == "DEFAULT":
                continue
            if section == "application_keys":
                self._keys = dict(self._take_keys(entries))
            elif section in OLD_SECTIONS:
                self._notices.append(f"[{section}] has no meaning any more: {OLD_SECTIONS[section]}")
            elif section in SECTIONS:
                for key, entry in entries.items():
                    if (section, key) not in moved:
                        self._take_entry(section, key, entry)
            elif not is_issuer(section) and not _PASTE.fullmatch(section):
                near = _near(section, (*SECTIONS, "application_keys"))
                raise ConfigurationError(f"{path}: section [{section}] is unknown{near}")
        self._issuers = read_issuers(sections, self._environ)

    def take_environment(self) -> None:
        for name in sorted(self._environ):
            if name in _BY_VARIABLE:
                self._take(_BY_VARIABLE[name], self._environ[name], name)
            elif name.startswith("QUEUEY_") and name not in CLIENT_VARIABLES and not _COMMAND_VARIABLE.fullmatch(name):
                near = _near(name, (*_BY_VARIABLE, *sorted(CLIENT_VARIABLES)))
                raise ConfigurationError(
                    f"environment: {name} is unknown{near}; 'queuey config doc' lists all settings"
                )

    def take_options(self, overrides: Mapping[str, Mapping[str, Any]]) -> None:
        for section, values in overrides.items():
            for key, value in values.items():
                if value is not None:
                    setting = _BY_NAME[f"{section}.{key}"]
                    self._take(setting, setting.to_text(value), "command line")

    def freeze(self) -> Settings:
        from_paste = [key for key in ("host", "port") if self._origins.get(f"server.{key}", "").endswith(_PASTE_SERVER)]
        if from_paste:
            self._notices.append(f"[server:main] gives {' and '.join(from_paste)}: better say so in [server]")
        sections = {section: declared(**self._values[section]) for section, declared in SECTIONS.items()}
        settings = Settings(**sections, origins=self._origins, application_keys=self._keys, issuers=self._issuers)
        check(settings)
        return replace(settings, notices=(*self._notices, *self._read_delay_notice(settings)))

    def _take(self, setting: Setting, text: str, origin: str) -> None:
        self._values[setting.section][setting.key] = setting.parse(text, origin)
        self._origins[setting.name] = origin

    def _take_paste_server(self, entries: Mapping[str, Entry]) -> None:
        """Take the address that a file of pserve says to listen on.

        ``[server]`` may say otherwise.
        """
        for key in ("host", "port"):
            if key in entries:
                text = entries[key].text(self._environ, f"[server:main] {key}")
                self._take(_BY_NAME[f"server.{key}"], text, f"{entries[key].path}{_PASTE_SERVER}")

    def _read_delay_notice(self, settings: Settings) -> Iterator[str]:
        if self._had_no_read_delay and "cassandra.read_delay_ms" not in self._origins:
            yield (
                f"messages are read {settings.cassandra.read_delay_ms} ms after they were stored, [cassandra] "
                "read_delay_ms; the first Queuey had no delay on one host. For one server write_budget_ms = 300, "
                "clock_error_ms = 50, read_delay_ms = 400 will do"
            )

    def _take_moved(self, found: Iterable[Moved]) -> set[tuple[str, str]]:
        """Take old keys that ``[cassandra]`` has today, with a notice of each.

        The file's own ``[cassandra]`` may say otherwise.
        """
        moved = set()
        for section, old, key, text, path in found:
            setting = _BY_NAME[f"cassandra.{key}"]
            self._take(setting, text, f"{path} [{section}] {old}")
            shown = f" = {text}" if not setting.secret else ""
            self._notices.append(f"[{section}] {old} means [cassandra] {key}{shown} now")
            moved.add((section, old))
        return moved

    def _take_entry(self, section: str, key: str, entry: Entry) -> None:
        setting = _BY_NAME.get(f"{section}.{key}")
        if setting is None:
            if section not in {"storage", "metadata"} or key not in OLD_KEYS:
                raise ConfigurationError(f"{entry.path}: [{section}] {key} is unknown{_near_key(section, key)}")
            self._notices.append(f"[{section}] {key} has no meaning any more: {OLD_KEYS[key]}")
            return
        lines = setting.kind is tuple
        text = "\n".join(entry.lines(self._environ)) if lines else entry.text(self._environ, f"[{section}] {key}")
        self._take(setting, self._backend(text, section, entry) if key == "backend" else text, str(entry.path))

    def _backend(self, text: str, section: str, entry: Entry) -> str:
        """The backend's name of today, if ``text`` is a class name of the first Queuey."""
        name = OLD_BACKENDS.get(text, text)
        if name != text:
            self._notices.append(f"[{section}] backend = {text} means {name} now")
            self._had_no_read_delay |= (section, name) == ("storage", "cassandra")
        return name

    def _take_keys(self, entries: Mapping[str, Entry]) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Applications and their keys; no key is ever in an error text."""
        owners: dict[str, str] = {}
        for application, entry in entries.items():
            where = f"{entry.path}: [application_keys] {application}"
            if not _APPLICATION.fullmatch(application):
                raise ConfigurationError(f"{where}: expected a name of 1 to 50 letters, digits, '_', '-' or '.'")
            keys = tuple(dict.fromkeys(entry.lines(self._environ)))
            if not keys:
                raise ConfigurationError(f"{where}: expected a key, or one key on each following line")
            for number, key in enumerate(keys, 1):
                if not is_key(key):
                    raise ConfigurationError(
                        f"{where}: key {number} of {len(keys)}: expected at least {MIN_KEY_CHARACTERS} "
                        f"visible ASCII characters without ';'; 'queuey key new' makes good ones"
                    )
                if owners.setdefault(key, application) != application:
                    raise ConfigurationError(f"{where}: key {number} is also a key of {owners[key]}: expected its own")
            yield application, keys


def _near(name: str, known: Iterable[str]) -> str:
    """A suggestion to end an error text with, empty if nothing is close."""
    import difflib  # only a refusal needs it

    by_lower = {word.lower(): word for word in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f": did you mean {by_lower[found[0]]}?" if found else f": expected one of {', '.join(by_lower.values())}"


def _near_key(section: str, key: str) -> str:
    elsewhere = [row.section for row in SETTINGS if row.key == key]
    if elsewhere:
        return f": it belongs in [{elsewhere[0]}]"
    return _near(key, [row.key for row in SETTINGS if row.section == section])
