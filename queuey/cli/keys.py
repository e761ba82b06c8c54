"""``queuey key``: application keys, kept as digests in the store. Works beside a running server, which knows within a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from queuey.clock import SystemClock
from queuey.errors import ConfigurationError
from queuey.settings import Settings
from queuey.terminal.options import confirm, store_files, with_settings, yes_option
from queuey.terminal.output import NothingFound, output_option, say, write_one, write_rows
from queuey.terminal.times import rfc3339

if TYPE_CHECKING:
    from queuey.storage import MetadataStore

COLUMNS = ("application", "label", "created")


@click.group("key")
def key_command() -> None:
    """Make, list and remove application keys. Of each, only a digest is kept."""


@key_command.command("new")
@click.argument("application")
@output_option
@with_settings
def new_key(settings: Settings, application: str, output: str | None) -> None:
    """Make a key for APPLICATION, which begins to exist with its first, and print it this once."""
    from queuey.future import run
    from queuey.security.app_keys import digest_of, label_of
    from queuey.service.keys import Keys

    with _metadata(settings) as metadata:
        key = run(Keys(metadata, SystemClock(), settings.application_keys).new(application))
    if output is None:
        click.echo(key)
    else:
        write_one({"application": application, "label": label_of(digest_of(key)), "key": key}, output)
    say("It is not shown again.")


@key_command.command("ls")
@click.argument("application", required=False)
@output_option
@with_settings
def list_keys(settings: Settings, application: str | None, output: str | None) -> None:
    """Keys by their labels, of APPLICATION or of all; those of the ini file are not here."""
    with _metadata(settings, must_exist=True) as metadata:
        keys = metadata.keys().wait()
    rows = (
        {"application": key.application, "label": key.label, "created": rfc3339(key.created_ticks)}
        for key in keys
        if application in (None, key.application)
    )
    write_rows(rows, COLUMNS, output)


@key_command.command("rm")
@click.argument("application")
@click.argument("label")
@yes_option
@with_settings
def remove_key(settings: Settings, application: str, label: str, yes: bool) -> None:
    """Remove the key of APPLICATION with this LABEL, as 'key ls' shows it, and the tokens that were got with it."""
    confirm(
        f"Remove key {label} of {application}? Whoever uses it, or a token that was got with it, is refused within a second.",
        yes=yes,
    )
    with _metadata(settings, must_exist=True) as metadata:
        removed = metadata.remove_key(application, label).wait()
    if not removed:
        raise NothingFound(f"{application} has no key with the label {label}")
    say(f"removed {removed} key" if removed == 1 else f"removed {removed} keys")


@contextmanager
def _metadata(settings: Settings, *, must_exist: bool = False) -> Iterator[MetadataStore]:
    """The store of keys, opened beside its server.

    :raises ConfigurationError: it is in memory; or is not there although it must be.
    """
    from queuey.ids import IdGenerator
    from queuey.storage.opening import open_stores

    backend = settings.metadata.backend or settings.storage.backend
    if backend == "memory":
        raise ConfigurationError("keys are in the server's memory, where no other process can reach them")
    file = store_files(settings)[-1] if backend == "sqlite" else None
    if must_exist and file is not None and not file.exists():
        raise ConfigurationError(f"there is no store at {file}: say where it is with --data or --config")
    clock = SystemClock()
    stores = open_stores(settings, clock, IdGenerator(clock), serve=False)
    try:
        yield stores.metadata
    finally:
        stores.close()
