"""Settings: one table, read from an ini file and from ``QUEUEY_*`` variables, into frozen values.

Order of precedence: command line, environment, ini file, default. An unknown section, key or
``QUEUEY_*`` variable is refused, never ignored. ``[server]`` keys are ``QUEUEY_<KEY>``, all others
``QUEUEY_<SECTION>_<KEY>``.

Files of the first Queuey load as well (queuey-api-v1 section 9): their sections and class names
are known, and what has no meaning any more is told in :attr:`Settings.notices`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from queuey.errors import ConfigurationError
from queuey.settings.first_queuey import OLD_BACKENDS, OLD_KEYS, OLD_SECTIONS, Moved, moved_to_cassandra
from queuey.settings.ini import Entry, read_ini
from queuey.settings.issuers import Issuer, is_issuer, read_issuers, sample_issuer
from queuey.settings.setting import Setting

__all__ = ["CLIENT_VARIABLES", "SETTINGS", "Row", "Setting", "Settings", "describe", "load_settings", "sample_ini"]

# fmt: off
SETTINGS: tuple[Setting, ...] = (
    Setting("server", "host", str, "127.0.0.1", "Address to listen on."),
    Setting("server", "port", int, 5000, "Port to listen on; 0 takes a free one and prints it.", 0, 65535),
    Setting("server", "data", str, "./queuey-data", "Folder of the embedded store; made if it is missing."),
    Setting("server", "threads", int, 4, "Threads for what the event loop does not serve itself.", 1, 64),
    Setting("server", "connections", int, 25_000, "Connections open at once; more get 503 with Retry-After.", 16, 1_000_000),
    Setting(
        "server",
        "client_timeout_seconds",
        int,
        15,
        "How long a client may take to send its body, or to take the next piece of an answer.",
        1,
        600,
    ),
    Setting("server", "idle_timeout_seconds", int, 75, "How long a connection may rest between two requests.", 1, 3600),
    Setting("server", "cors_origins", tuple, (), "Origins whose pages may ask this server in a browser, such as https://app.example.org, or * for all; none: no such page may."),
    Setting("server", "drain_seconds", int, 15, "How long a stop waits for requests under way.", 0, 600),
    Setting("storage", "backend", str, "sqlite", "Where messages are kept: sqlite (durable, one server), cassandra (any number of servers) or memory (lost at stop).", words=("sqlite", "cassandra", "memory")),
    Setting("storage", "path", str, "", "File of the sqlite store; empty means queuey.db in the data folder."),
    Setting("storage", "synchronous", str, "full", "full: acknowledged survives power loss; normal: it survives kill -9 only.", words=("full", "normal")),
    Setting("storage", "reserve_mb", int, 64, "Free space in MiB below which appends are refused, so that deletes still work. With 0 nothing is kept free, and a full disk refuses deletes and commits as well.", 0, 1_000_000),
    Setting("storage", "cache_mb", int, 4, "SQLite page cache of the writer, MiB; the event loop's reader may take twice as much, each other a quarter.", 1, 65_536),
    Setting("storage", "scrub_percent", int, 5, "Share of one core's time that the search for damage in the sqlite store's indexes may take; 0 turns it off.", 0, 100),
    Setting("storage", "wal_mb", int, 64, "Size in MiB that the write-ahead log is kept under.", 4, 65_536),
    Setting("storage", "segments_mb", int, 1024, "Disk in MiB for copies of what is read in bulk more than once, beside the sqlite store's file; 0 keeps none.", 0, 1_000_000),
    Setting("metadata", "backend", str, "", "Where queues and keys are kept; empty means with the messages.", words=("", "sqlite", "cassandra", "memory")),
    Setting("metadata", "path", str, "", "File of the sqlite metadata store; empty means with the messages."),
    Setting("cassandra", "hosts", str, "127.0.0.1", "Nodes to ask for the others: addresses, or address:port, with commas between."),
    Setting("cassandra", "port", int, 9042, "Their native port, where hosts names none.", 1, 65535),
    Setting("cassandra", "keyspace", str, "queuey", "Keyspace of the messages; 'queuey init' makes it."),
    Setting("cassandra", "metadata_keyspace", str, "", "Keyspace of queues and keys; empty means that of the messages."),
    Setting("cassandra", "replication", str, "3", "Copies 'queuey init' asks for: a number, or one for each data centre as in eu:3,us:3."),
    Setting("cassandra", "data_centre", str, "", "The data centre this server is in; needed where there are several."),
    Setting("cassandra", "multi_dc", bool, False, "Messages need only the local data centre to answer (LOCAL_ONE, LOCAL_QUORUM); very_strong writes to all, and settings of queues need a quorum of all copies."),
    Setting("cassandra", "username", str, "", "Role to log in as; empty means none is asked for."),
    Setting("cassandra", "password", str, "", "Its password.", secret=True),
    Setting("cassandra", "tls_ca", str, "", "File of the CA that signed the nodes' certificates; turns TLS on."),
    Setting("cassandra", "tls_cert", str, "", "File of this server's certificate, where nodes ask for one."),
    Setting("cassandra", "tls_key", str, "", "File of its key."),
    Setting("cassandra", "tls_check_host", bool, True, "A node's certificate must name the address that the node is reached at; false takes any certificate of the CA."),
    Setting("cassandra", "write_budget_ms", int, 1500, "How long an append may take from its id to its acknowledgement (W); 0 switches the check off, and readers may skip messages.", 0, 60_000),
    Setting("cassandra", "clock_error_ms", int, 250, "How far this server's clock may be off those of the nodes (E); beyond it appends and reads are refused.", 1, 60_000),
    Setting("cassandra", "read_delay_ms", int, 2000, "How far behind the clock readers stay (D): at least the write budget and twice the clock error.", 0, 600_000),
    Setting("cassandra", "request_seconds", int, 10, "How long an append tries again before its outcome is told as unknown.", 1, 60),
    Setting("cassandra", "cache_ms", int, 1000, "How long a server uses what it read of a queue; a change made on another is seen within this time.", 0, 60_000),
    Setting("cassandra", "max_calls", int, 1024, "Calls of the store under way at once; more get 503.", 1, 100_000),
    Setting("cassandra", "strict_durability", bool, False, "Do not start on a cluster that is weaker than a strong queue promises; otherwise readiness says so."),
    Setting("limits", "max_body_bytes", int, 1 << 20, "Largest message body, bytes.", 1, 64 << 20),
    Setting("limits", "max_request_bytes", int, 8 << 20, "Largest request body, a batch included, bytes.", 1, 256 << 20),
    Setting("limits", "max_answer_bytes", int, 4 << 20, "Messages in one JSON answer, bytes as they are sent, escapes and base64 included; the answer ends early and says so. One message always comes.", 1 << 10, 256 << 20),
    Setting("limits", "max_batch_messages", int, 10_000, "Messages in one append.", 1, 100_000),
    Setting("limits", "max_in_flight", int, 2_000, "Requests under way at once; more get 429 with Retry-After.", 1, 1_000_000),
    Setting(
        "limits",
        "max_in_flight_mb",
        int,
        256,
        "MiB of request bodies and large answers under way at once; more get 429 with Retry-After.",
        1,
        1_000_000,
    ),
    Setting("limits", "max_waiters", int, 20_000, "Readers that wait for messages at once, long polls and streams; beyond it they are answered at once.", 0, 1_000_000),
    Setting("limits", "max_waiters_per_application", int, 15_000, "Of these, those of one application's keys; more get 429 with Retry-After.", 0, 1_000_000),
    Setting("limits", "max_waiters_strangers_percent", int, 25, "Percent of max_waiters for all readers of public queues who send no credential, together; more get 429 with Retry-After.", 0, 100),
    Setting("limits", "max_waiters_per_user", int, 100, "Of these, those of one bid: or oidc: principal; more get 429 with Retry-After.", 0, 1_000_000),
    Setting(
        "limits",
        "bad_credentials_per_second",
        int,
        1000,
        "Bad assertions and tokens looked at in a second; beyond it those that are not known yet get 429 with Retry-After.",
        1,
        1_000_000,
    ),
    Setting("tokens", "keys", tuple, (), "Keys of this server's own tokens: the first signs, all verify, without any there are none.", secret=True),
    Setting("tokens", "audience", str, "queuey", "What this server's tokens are for; another server with the same keys but another audience refuses them."),
    Setting("tokens", "life_seconds", int, 3600, "Longest life of a token.", 60, 86_400),
    Setting("metrics", "token", str, "", "What /metrics asks for, as Authorization: Bearer TOKEN; without it only requests from this machine itself are answered, if no proxy passed them on.", secret=True),
    Setting("log", "level", str, "info", "Least level that is logged.", words=("debug", "info", "warning", "error")),
    Setting("log", "format", str, "auto", "json, text, or auto: text on a terminal, else json.", words=("auto", "json", "text")),
    Setting("log", "requests", bool, False, "Log a line for every request. Refusals of the server's own making are always logged, those of a full server once a second with their number."),
)
# fmt: on
"""Every setting there is, in the order of the docs."""

CLIENT_VARIABLES = frozenset(
    {"QUEUEY_URL", "QUEUEY_APPLICATION", "QUEUEY_KEY", "QUEUEY_TOKEN", "QUEUEY_CONFIG", "QUEUEY_OUTPUT"}
)
"""``QUEUEY_*`` variables that are not settings: the client commands', the first key, the ini file's path."""

MIN_KEY_CHARACTERS = 16
"""Of an application key: 64 bits if it is hexadecimal. The first Queuey's one-character keys are refused (queuey-api-v1 W2); ``queuey key new`` gives 256."""
MIN_TOKEN_KEY_CHARACTERS = 32
"""Of a key that signs tokens, which can be guessed at without asking the server. ``queuey token key`` gives 256 bits."""

_COMMAND_VARIABLE = re.compile(
    r"QUEUEY_(SERVE|PUT|GET|QUEUE|KEY|TOKEN|INIT|BACKUP|CONFIG|ERRORS|VERSION|COMPLETION)_.+"
)
"""Every option of a command can be set by a variable; a server is not to stumble over them."""
_BY_NAME = {(setting.section, setting.key): setting for setting in SETTINGS}
_BY_ATTRIBUTE = {setting.attribute: setting for setting in SETTINGS}
_BY_VARIABLE = {setting.variable: setting for setting in SETTINGS}
_APPLICATION = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]{1,50}")
_KEY_TEXT = re.compile(r"[!-:<-~]+")
"""What a credential in a header can carry: visible ASCII, no semicolon."""

_KEYSPACE = re.compile(r"[a-z][a-z0-9_]{0,47}")
"""What CQL takes without quotes, and gives back as it was written."""
_ORIGIN = re.compile(r"\*|https?://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
_PASTE = re.compile(
    r"(app|application|composite|filter|pipeline|server|host):.+|loggers|handlers|formatters|(logger|handler|formatter)_.+"
)


@dataclass(frozen=True)
class Settings:
    """The settings in force. One attribute per row of :data:`SETTINGS`, by its ``attribute`` name."""

    values: Mapping[str, Any] = field(default_factory=lambda: {s.attribute: s.default for s in SETTINGS})
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where a value that is not the default came from, by attribute."""
    application_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """Keys given in the ini file, by application."""
    issuers: tuple[Issuer, ...] = ()
    """Whom the server trusts to say who a caller is."""
    notices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.__dict__.update(self.values)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Each row of the table is an attribute."""


def load_settings(
    path: str | None = None, environ: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None
) -> Settings:
    """Read, check and freeze all settings.

    :param path: the ini file, None for none.
    :param environ: a server passes ``os.environ``; None means empty.
    :param overrides: values of command line options by attribute; None is an option not given.
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
        self._values = {setting.attribute: setting.default for setting in SETTINGS}
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
            elif section in _sections():
                for key, entry in entries.items():
                    if (section, key) not in moved:
                        self._take_entry(section, key, entry)
            elif not is_issuer(section) and not _PASTE.fullmatch(section):
                near = _near(section, (*_sections(), "application_keys"))
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

    def take_options(self, overrides: Mapping[str, Any]) -> None:
        for attribute, value in overrides.items():
            if value is not None:
                setting = _BY_ATTRIBUTE[attribute]
                self._take(setting, setting.to_text(value), "command line")

    def freeze(self) -> Settings:
        server_main = [a for a in ("host", "port") if self._origins.get(a, "").endswith(" [server:main]")]
        if server_main:
            self._notices.append(f"[server:main] gives {' and '.join(server_main)}: better say so in [server]")
        if self._values["limits_max_body_bytes"] > self._values["limits_max_request_bytes"]:
            origin = self._origins.get("limits_max_body_bytes") or self._origins["limits_max_request_bytes"]
            raise ConfigurationError(
                f"{origin}: [limits] max_body_bytes is over max_request_bytes: expected a request to hold a body"
            )
        self._tell_of_read_delay()
        self._check_keyspaces()
        self._check_read_delay()
        self._check_token_keys()
        self._check_origins()
        self._check_metrics_token()
        return Settings(self._values, self._origins, self._keys, self._issuers, tuple(self._notices))

    def _check_origins(self) -> None:
        for origin in self._values["cors_origins"]:
            if not _ORIGIN.fullmatch(origin):
                where = f"{self._origins['cors_origins']}: [server] cors_origins: {origin!r}"
                raise ConfigurationError(f"{where}: expected an origin such as https://app.example.org:8080, or *")

    def _check_metrics_token(self) -> None:
        token = self._values["metrics_token"]
        if token and not is_key(token):
            raise ConfigurationError(
                f"{self._origins['metrics_token']}: [metrics] token: expected at least {MIN_KEY_CHARACTERS} visible "
                "ASCII characters without ';'; 'queuey token key' makes a good one"
            )

    def _check_token_keys(self) -> None:
        keys = self._values["tokens_keys"]
        for number, key in enumerate(keys, 1):
            if len(key) < MIN_TOKEN_KEY_CHARACTERS or not key.isascii():
                raise ConfigurationError(
                    f"{self._origins['tokens_keys']}: [tokens] keys: key {number} of {len(keys)}: expected at least "
                    f"{MIN_TOKEN_KEY_CHARACTERS} ASCII characters; 'queuey token key' makes good ones"
                )

    def _check_keyspaces(self) -> None:
        for key in ("keyspace", "metadata_keyspace"):
            name = self._values[f"cassandra_{key}"]
            if name and not _KEYSPACE.fullmatch(name):
                raise ConfigurationError(
                    f"{self._origins[f'cassandra_{key}']}: [cassandra] {key} = {name!r}: expected at most 48 small "
                    "letters, digits and '_', the first a letter"
                )

    def _check_read_delay(self) -> None:
        """D >= W + 2 E, or readers could pass an append that is still to be acknowledged (G3)."""
        budget, error, delay = (
            self._values[f"cassandra_{key}_ms"] for key in ("write_budget", "clock_error", "read_delay")
        )
        if budget and delay < budget + 2 * error:
            named = [a for a in ("cassandra_read_delay_ms", "cassandra_write_budget_ms") if a in self._origins]
            origin = self._origins[named[0]] if named else self._origins["cassandra_clock_error_ms"]
            raise ConfigurationError(
                f"{origin}: [cassandra] read_delay_ms = {delay}: expected at least write_budget_ms + 2 * clock_error_ms, "
                f"which is {budget + 2 * error}"
            )

    def _take(self, setting: Setting, text: str, origin: str) -> None:
        self._values[setting.attribute] = setting.parse(text, origin)
        self._origins[setting.attribute] = origin

    def _take_paste_server(self, entries: Mapping[str, Entry]) -> None:
        """Where a file of pserve says to listen: what `queuey serve` does too, unless [server] says otherwise."""
        for key in ("host", "port"):
            if key in entries:
                text = entries[key].text(self._environ, f"[server:main] {key}")
                self._take(_BY_NAME["server", key], text, f"{entries[key].path} [server:main]")

    def _tell_of_read_delay(self) -> None:
        delay = self._values["cassandra_read_delay_ms"]
        if self._had_no_read_delay and "cassandra_read_delay_ms" not in self._origins:
            self._notices.append(
                f"messages are read {delay} ms after they were stored, [cassandra] read_delay_ms; the first Queuey had no delay "
                "on one host. For one server write_budget_ms = 300, clock_error_ms = 50, read_delay_ms = 400 will do"
            )

    def _take_moved(self, found: Iterable[Moved]) -> set[tuple[str, str]]:
        """What [cassandra] says now, unless the file has that section say otherwise: the keys that need no other notice."""
        moved = set()
        for section, old, key, text, path in found:
            setting = _BY_NAME["cassandra", key]
            self._take(setting, text, f"{path} [{section}] {old}")
            shown = f" = {text}" if not setting.secret else ""
            self._notices.append(f"[{section}] {old} means [cassandra] {key}{shown} now")
            moved.add((section, old))
        return moved

    def _take_entry(self, section: str, key: str, entry: Entry) -> None:
        setting = _BY_NAME.get((section, key))
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


def is_key(text: str) -> bool:
    """Whether a text can be an application's key: visible ASCII characters without ';', and enough of them."""
    return len(text) >= MIN_KEY_CHARACTERS and _KEY_TEXT.fullmatch(text) is not None


def _sections() -> tuple[str, ...]:
    return tuple(dict.fromkeys(setting.section for setting in SETTINGS))


def _near(name: str, known: Iterable[str]) -> str:
    """A suggestion to end an error text with, empty if nothing is close."""
    by_lower = {word.lower(): word for word in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f": did you mean {by_lower[found[0]]}?" if found else f": expected one of {', '.join(by_lower.values())}"


def _near_key(section: str, key: str) -> str:
    elsewhere = [s.section for s in SETTINGS if s.key == key]
    if elsewhere:
        return f": it belongs in [{elsewhere[0]}]"
    return _near(key, [s.key for s in SETTINGS if s.section == section])


class Row(NamedTuple):
    """A setting in force, for people."""

    section: str
    key: str
    value: str
    origin: str
    variable: str


def describe(settings: Settings) -> list[Row]:
    """Every setting, its value and where that came from. Keys are counted, never shown."""
    rows = [
        Row(
            setting.section,
            setting.key,
            setting.shown(settings.values[setting.attribute]),
            settings.origins.get(setting.attribute, "default"),
            setting.variable,
        )
        for setting in SETTINGS
    ]
    for issuer in settings.issuers:
        rows += [Row(f"issuer:{issuer.name}", key, value, "ini file", "") for key, value in issuer.shown()]
    for application, keys in settings.application_keys.items():
        rows.append(Row("application_keys", application, f"({len(keys)} hidden)", "ini file", ""))
    return rows


def sample_ini() -> str:
    """An ini file of all settings with their defaults, each commented out: loading it changes nothing.

    >>> print(sample_ini().splitlines()[3])
    #host = 127.0.0.1
    """
    lines: list[str] = []
    for section in _sections():
        lines += [f"[{section}]"]
        for setting in (s for s in SETTINGS if s.section == section):
            lines += [f"# {setting.help}", f"# {setting.accepted}; {setting.variable}"]
            lines += [f"#{setting.key} = {setting.to_text(setting.default)}".rstrip(), ""]
    lines += [f"# {line}" if line else "" for line in sample_issuer()] + [""]
    lines += ["[application_keys]"]
    lines += ["# application = key, or several keys, one on each following line, for a change of keys."]
    lines += ["# 'queuey key new APPLICATION' keeps only a digest, in the store: better than a key in a file."]
    return "\n".join(lines) + "\n"
