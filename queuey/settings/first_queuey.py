"""Ini files of the first Queuey, in the words of today.

See queuey-api-v1 section 9.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from queuey.settings.ini import Entry, Sections

__all__ = ["OLD_BACKENDS", "OLD_KEYS", "OLD_SECTIONS", "Moved", "moved_to_cassandra"]

OLD_SECTIONS = {
    "global": "logging is set in [log]",
    "metlog": "metrics are at /metrics",
    "cef": "it was never used",
    "smtp": "it was never used",
    "ipauth": "it was never used",
}
"""Sections without a meaning, and what is there instead."""
OLD_BACKENDS = {
    "queuey.storage.memory.MemoryQueueBackend": "memory",
    "queuey.storage.memory.MemoryMetadata": "memory",
    "queuey.storage.cassandra.CassandraQueueBackend": "cassandra",
    "queuey.storage.cassandra.CassandraMetadata": "cassandra",
}
"""Class names, and what they are called today."""
OLD_KEYS = {
    "host": "[cassandra] hosts takes its place",
    "username": "[cassandra] username takes its place",
    "password": "[cassandra] password takes its place",
    "multi_dc": "[cassandra] multi_dc takes its place",
    "database": "[cassandra] keyspace and metadata_keyspace take its place",
    "create_schema": "'queuey init' makes the tables",
    "base_delay": "[cassandra] read_delay_ms takes its place",
}
"""All arguments of those classes, and what is there instead."""
_SAME = {"host": "hosts", "username": "username", "password": "password", "multi_dc": "multi_dc"}
_KEYSPACES = {"storage": "keyspace", "metadata": "metadata_keyspace"}
_THRIFT_PORT = ":9160"


class Moved(NamedTuple):
    """An argument that is a setting of ``[cassandra]`` now."""

    section: str
    old: str
    key: str
    """In ``[cassandra]``."""
    text: str
    path: Path


def moved_to_cassandra(sections: Sections, environ: Mapping[str, str]) -> Iterator[Moved]:
    """The arguments of the first Queuey's Cassandra classes.

    Of two values for one setting, that of ``[storage]`` comes last.
    """
    for section, keyspace in reversed(_KEYSPACES.items()):
        entries = sections.get(section, {})
        backend = entries.get("backend")
        name = backend.text(environ, f"[{section}] backend") if backend else ""
        if name == OLD_BACKENDS.get(name, name) or OLD_BACKENDS[name] != "cassandra":
            continue
        for old, key in {**_SAME, "database": keyspace}.items():
            if old in entries:
                yield Moved(
                    section, old, key, _in_words_of_today(old, entries[old], section, environ), entries[old].path
                )


def _in_words_of_today(old: str, entry: Entry, section: str, environ: Mapping[str, str]) -> str:
    text = entry.text(environ, f"[{section}] {old}")
    if old == "host":
        return ", ".join(host.strip().removesuffix(_THRIFT_PORT) for host in text.split(","))
    return text.lower() if old == "database" else text
