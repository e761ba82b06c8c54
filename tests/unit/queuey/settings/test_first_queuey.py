"""Files of the first Queuey: what loads, and which notices they get; and the read delay that they lack."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.errors import ConfigurationError
from queuey.settings import load_settings

KEY = "f25bfb8fe200475c8a0532a9cbe7651e"

Write = Callable[..., str]


def refusal(environ: dict[str, str]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(None, environ)
    return str(caught.value)


OLD = f"""\
[DEFAULT]
debug = false

[app:pyramidapp]
use = egg:queuey

[filter:catcherror]
paste.filter_app_factory = mozsvc.middlewares:make_err_mdw

[pipeline:main]
pipeline = catcherror
           pyramidapp

[server:main]
use = egg:waitress
host = 0.0.0.0
port = 5001

[application_keys]
queuey = {KEY}

[storage]
backend = queuey.storage.BACKEND
host = localhost
base_delay = 5
create_schema = true

[metadata]
backend = queuey.storage.METADATA

[global]
logger_name = queuey

[metlog]
logger = queuey
sender_class = metlog.senders.StdOutSender

[cef]
use = no

[loggers]
keys = root

[logger_root]
level = INFO
"""


def test_an_old_file_loads_and_says_what_has_no_meaning(ini: Write) -> None:
    text = OLD.replace("BACKEND", "memory.MemoryQueueBackend").replace("METADATA", "memory.MemoryMetadata")

    settings = load_settings(ini(text), {}, None)

    assert (settings.storage.backend, settings.metadata.backend) == ("memory", "memory")
    assert settings.application_keys == {"queuey": (KEY,)}
    assert settings.notices == (
        "[storage] backend = queuey.storage.memory.MemoryQueueBackend means memory now",
        "[storage] host has no meaning any more: [cassandra] hosts takes its place",
        "[storage] base_delay has no meaning any more: [cassandra] read_delay_ms takes its place",
        "[storage] create_schema has no meaning any more: 'queuey init' makes the tables",
        "[metadata] backend = queuey.storage.memory.MemoryMetadata means memory now",
        "[global] has no meaning any more: logging is set in [log]",
        "[metlog] has no meaning any more: metrics are at /metrics",
        "[cef] has no meaning any more: it was never used",
        "[server:main] gives host and port: better say so in [server]",
    )


OLD_CASSANDRA = """\
[storage]
backend = queuey.storage.cassandra.CassandraQueueBackend
host = 10.0.0.1:9160, 10.0.0.2:9042,10.0.0.3
username = joe
password = swordfish
database = MessageStore
multi_dc = true
create_schema = true
base_delay = 5

[metadata]
backend = queuey.storage.cassandra.CassandraMetadata
host = 10.0.0.9
database = MetadataStore
"""


def test_an_old_file_for_cassandra_means_the_same_in_the_words_of_today(ini: Write) -> None:
    settings = load_settings(ini(OLD_CASSANDRA), {}, None)

    assert (settings.storage.backend, settings.metadata.backend) == ("cassandra", "cassandra")
    assert settings.cassandra.hosts == "10.0.0.1, 10.0.0.2:9042, 10.0.0.3"
    assert (settings.cassandra.username, settings.cassandra.password) == ("joe", "swordfish")
    assert (settings.cassandra.keyspace, settings.cassandra.metadata_keyspace) == ("messagestore", "metadatastore")
    assert settings.cassandra.multi_dc is True
    assert settings.notices == (
        "[metadata] host means [cassandra] hosts = 10.0.0.9 now",
        "[metadata] database means [cassandra] metadata_keyspace = metadatastore now",
        "[storage] host means [cassandra] hosts = 10.0.0.1, 10.0.0.2:9042, 10.0.0.3 now",
        "[storage] username means [cassandra] username = joe now",
        "[storage] password means [cassandra] password now",
        "[storage] multi_dc means [cassandra] multi_dc = true now",
        "[storage] database means [cassandra] keyspace = messagestore now",
        "[storage] backend = queuey.storage.cassandra.CassandraQueueBackend means cassandra now",
        "[storage] create_schema has no meaning any more: 'queuey init' makes the tables",
        "[storage] base_delay has no meaning any more: [cassandra] read_delay_ms takes its place",
        "[metadata] backend = queuey.storage.cassandra.CassandraMetadata means cassandra now",
        (
            "messages are read 2000 ms after they were stored, [cassandra] read_delay_ms; the first Queuey had no delay on "
            "one host. For one server write_budget_ms = 300, clock_error_ms = 50, read_delay_ms = 400 will do"
        ),
    )


def test_the_delay_that_the_notice_offers_is_taken_and_ends_it(ini: Write) -> None:
    path = ini(f"[cassandra]\nwrite_budget_ms = 300\nclock_error_ms = 50\nread_delay_ms = 400\n{OLD_CASSANDRA}")

    settings = load_settings(path, {}, None)

    assert settings.cassandra.read_delay_ms == 400
    assert not any("read_delay_ms;" in notice for notice in settings.notices)


def test_what_cassandra_says_counts_more_than_what_an_old_section_says(ini: Write) -> None:
    path = ini(f"[cassandra]\nhosts = there\nkeyspace = own\n{OLD_CASSANDRA}")

    settings = load_settings(path, {"QUEUEY_CASSANDRA_USERNAME": "ann"}, None)

    assert (settings.cassandra.hosts, settings.cassandra.keyspace, settings.cassandra.username) == (
        "there",
        "own",
        "ann",
    )
    assert settings.origins["cassandra.password"] == f"{path} [storage] password"


def test_old_metadata_in_cassandra_beside_messages_in_memory_are_found_where_they_are(ini: Write) -> None:
    text = OLD.replace("BACKEND", "memory.MemoryQueueBackend").replace("METADATA", "cassandra.CassandraMetadata")

    settings = load_settings(ini(text.replace("[global]", "host = 10.0.0.9\n[global]")), {}, None)

    assert (settings.storage.backend, settings.metadata.backend) == ("memory", "cassandra")
    assert settings.cassandra.hosts == "10.0.0.9"
    assert "[storage] host has no meaning any more: [cassandra] hosts takes its place" in settings.notices


def test_a_read_delay_is_free_where_nothing_needs_it(ini: Write) -> None:
    """The check of appends is off, as in a store that has no other server."""
    settings = load_settings(ini("[cassandra]\nwrite_budget_ms = 0\nread_delay_ms = 0\n"), {}, None)

    assert (settings.cassandra.write_budget_ms, settings.cassandra.read_delay_ms) == (0, 0)


@given(budget=st.integers(1, 60_000), error=st.integers(1, 60_000), delay=st.integers(0, 600_000))
def test_a_read_delay_holds_the_write_budget_and_twice_the_clock_error(budget: int, error: int, delay: int) -> None:
    given_ms = {"write_budget": budget, "clock_error": error, "read_delay": delay}
    environ = {f"QUEUEY_CASSANDRA_{key.upper()}_MS": str(value) for key, value in given_ms.items()}

    if delay >= budget + 2 * error:
        assert load_settings(None, environ, None).cassandra.read_delay_ms == delay
    else:
        assert "QUEUEY_CASSANDRA_READ_DELAY_MS: [cassandra] read_delay_ms" in refusal(environ)


def test_the_paste_servers_address_is_taken_only_where_server_gives_none(ini: Write) -> None:
    path = ini("[server:main]\nport = 1\nhost = a\n[server]\nport = 2\n")

    settings = load_settings(path, {}, None)

    assert (settings.server.port, settings.server.host) == (2, "a")
    assert settings.notices == ("[server:main] gives host: better say so in [server]",)
