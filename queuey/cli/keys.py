"""``queuey key``: the keys of applications and operators, kept as digests in the store. Works beside a running server, which knows within a second."""

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

COLUMNS = ("application", "operator", "label", "created")

operator_option = click.option(
    "--operator", is_flag=True, help="NAME is an operator's, who may do everything in every application."
)


@click.group("key")
def key_command() -> None:
    """Make, list and remove the keys of applications and operators. Of each, only a digest is kept."""


@key_command.command("new")
@click.argument("name")
@operator_option
@output_option
@with_settings
def new_key(settings: Settings, name: str, operator: bool, output: str | None) -> None:
    """Make a key for the application NAME, which begins to exist with its first, and print it this once.

    With --operator the key is an operator's: it may list the applications, and do in each what the application may.
    """
    from queuey.future import run
    from queuey.security.app_keys import digest_of, label_of
    from queuey.service.keys import Keys

    with _metadata(settings) as metadata:
        key = run(Keys(metadata, SystemClock(), settings.application_keys).new(name, operator=operator))
    if output is None:
        click.echo(key)
    else:
        kind = "operator" if operator else "application"
        write_one({kind: name, "label": label_of(digest_of(key)), "key": key}, output)
    say("It is not shown again.")


@key_command.command("ls")
@click.argument("name", required=False)
@operator_option
@output_option
@with_settings
def list_keys(settings: Settings, name: str | None, operator: bool, output: str | None) -> None:
    """Keys by their labels: of the application NAME, or of all applications and operators.

    With --operator, of the operator NAME or of all operators. Those of the ini file are not here.
    """
    from queuey.security.principals import application_of, operator_of

    with _metadata(settings, must_exist=True) as metadata:
        keys = metadata.keys().wait()
    named = [(application_of(key.principal), operator_of(key.principal), key) for key in keys]
    rows = (
        {"application": of, "operator": by, "label": key.label, "created": rfc3339(key.created_ticks)}
        for of, by, key in named
        if (by is not None or not operator) and name in (None, by if operator else of)
    )
    write_rows(rows, COLUMNS, output)


@key_command.command("rm")
@click.argument("name")
@click.argument("label")
@operator_option
@yes_option
@with_settings
def remove_key(settings: Settings, name: str, label: str, operator: bool, yes: bool) -> None:
    """Remove the key of the application NAME with this LABEL, as 'key ls' shows it, and the tokens that were got with it.

    With --operator, the key of the operator NAME.
    """
    from queuey.service.keys import owner_of_key

    principal, kind = owner_of_key(name, operator=operator), "operator " if operator else ""
    confirm(
        f"Remove key {label} of {kind}{name}? Whoever uses it, or a token that was got with it, is refused within a second.",
        yes=yes,
    )
    with _metadata(settings, must_exist=True) as metadata:
        removed = metadata.remove_key(principal, label).wait()
    if not removed:
        raise NothingFound(f"{kind}{name} has no key with the label {label}")
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
