"""``queuey key`` and ``queuey application``: applications, operators and their keys.

The store keeps digests, and ids of access keys. It works beside a running server, which knows within a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from queuey.clock import SystemClock
from queuey.errors import ConfigurationError, QueueyError
from queuey.moments import rfc3339
from queuey.security.access_keys import AccessKey, MasterSecrets, account_of
from queuey.settings import Settings
from queuey.terminal.commands import CommandGroup
from queuey.terminal.options import confirm, refuse_missing_store, settings_from, store_files, with_settings, yes_option
from queuey.terminal.output import NothingFound, output_option, say, write_done, write_one, write_rows

if TYPE_CHECKING:
    from queuey.model import PrincipalKey
    from queuey.service.keys import Keys
    from queuey.storage import MetadataStore

COLUMNS = ("application", "operator", "label", "created")


def _from_store(names: Callable[[Settings, str | None], Iterable[str | None]]) -> Callable[..., list[str]]:
    """Completion by what the store knows. What goes wrong completes nothing, and says nothing into the line."""

    def complete(ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
        given = ctx.params
        try:
            settings = settings_from(given.get("config"), tell=False, server={"data": given.get("data")})
            found = {one for one in names(settings, given.get("name")) if one is not None and one.startswith(begun)}
        except (QueueyError, OSError, ImportError):
            return []
        return sorted(found)

    return complete


complete_applications = _from_store(lambda settings, _: _applications(settings))
complete_labels = _from_store(
    lambda settings, name: (key.label for of, by, key in _all_keys(settings) if name in (of, by))
)
operator_option = click.option(
    "--operator", is_flag=True, help="NAME is an operator, which may do everything in every application."
)


@click.group("key", cls=CommandGroup)
def key_command() -> None:
    """Make, list and remove keys of applications and operators, kept as digests."""


@key_command.command("new")
@click.argument("name", shell_complete=complete_applications)
@operator_option
@click.option("--sqs", is_flag=True, help="An access key for SQS clients: an id, and a secret that signs requests.")
@output_option
@with_settings
def new_key(settings: Settings, name: str, operator: bool, sqs: bool, output: str | None) -> None:
    """Make a key for the application NAME, and print it this once.

    The application begins to exist with its first key.

    With --operator the key is an operator's: it may list the applications, and do in each what the application may.

    With --sqs it is an access key. Prints variables for a shell: eval "$(queuey key new NAME --sqs)"

    Example: queuey key new shop
    """
    from queuey.future import run
    from queuey.security.app_keys import digest_of, label_of

    if operator and sqs:
        raise click.UsageError("--operator and --sqs exclude each other: an access key is an application's.")
    with _keys(settings) as keys:
        if sqs:
            _show_access_key(name, run(keys.new_access_key(name, MasterSecrets.of(settings))), output)
        else:
            key = run(keys.new(name, operator=operator))
            if output is None:
                click.echo(key)
            else:
                kind = "operator" if operator else "application"
                write_one({kind: name, "label": label_of(digest_of(key)), "key": key}, output)
    say("It is not shown again.")


def _show_access_key(name: str, key: AccessKey, output: str | None) -> None:
    if output is None:
        click.echo(f"export AWS_ACCESS_KEY_ID={key.id} AWS_SECRET_ACCESS_KEY={key.secret}")
    else:
        row = {"application": name, "account": account_of(name), "label": key.id}
        write_one({**row, "access_key_id": key.id, "secret_access_key": key.secret}, output)


@key_command.command("ls")
@click.argument("name", required=False, shell_complete=complete_applications)
@operator_option
@output_option
@with_settings
def list_keys(settings: Settings, name: str | None, operator: bool, output: str | None) -> None:
    """Keys by their labels: of the application NAME, or of all.

    With --operator, of the operator NAME or of all operators. Those of the ini file are not here.

    Example: queuey key ls shop
    """
    rows = [
        {"application": of, "operator": by, "label": key.label, "created": rfc3339(key.created_ticks)}
        for of, by, key in _all_keys(settings)
        if (by is not None or not operator) and name in (None, by if operator else of)
    ]
    write_rows(rows, COLUMNS, output)
    if name is not None and not rows:
        say(f"{'operator' if operator else 'application'} {name} has no key in the store")


@key_command.command("rm")
@click.argument("name", shell_complete=complete_applications)
@click.argument("label", shell_complete=complete_labels)
@operator_option
@yes_option
@output_option
@with_settings
def remove_key(settings: Settings, name: str, label: str, operator: bool, yes: bool, output: str | None) -> None:
    """Remove a key of the application NAME, and the tokens that came from it.

    LABEL is the key's, as 'key ls' shows it. A key that is in QUEUEY_KEY of a server's environment comes back with its
    next start: take it out there first.

    With --operator, the key of the operator NAME.

    Example: queuey key rm shop 1f9f6640 --yes
    """
    from queuey.service.keys import owner_of_key

    principal, kind = owner_of_key(name, operator=operator), "operator " if operator else ""
    confirm(
        f"Remove key {label} of {kind}{name}? Calls with it, or with a token from it, are refused within a second.",
        yes=yes,
        look=lambda: _refuse_unknown(settings, principal, label, f"{kind}{name}"),
    )
    with _metadata(settings, must_exist=True) as metadata:
        removed = metadata.remove_key(principal, label).wait()
    if not removed:
        raise _unknown(f"{kind}{name}", label)
    write_done({"operator" if operator else "application": name, "label": label, "removed": removed}, output)
    say(f"removed {removed} key" if removed == 1 else f"removed {removed} keys")


def _refuse_unknown(settings: Settings, principal: str, label: str, owner: str) -> None:
    with _metadata(settings, must_exist=True) as metadata:
        if not any((key.principal, key.label) == (principal, label) for key in metadata.keys().wait()):
            raise _unknown(owner, label)


def _unknown(owner: str, label: str) -> NothingFound:
    return NothingFound(f"{owner} has no key with the label {label}: 'queuey key ls' lists the labels")


@click.group("application", cls=CommandGroup)
def application_command() -> None:
    """Show applications, and the account number that SQS clients know each by."""


@application_command.command("ls")
@output_option
@with_settings
def list_applications(settings: Settings, output: str | None) -> None:
    """All applications with a key in the store or the ini file, and their accounts.

    Example: queuey application ls
    """
    rows = ({"application": name, "account": account_of(name)} for name in _applications(settings))
    write_rows(rows, ("application", "account"), output)


@application_command.command("show")
@click.argument("name", shell_complete=complete_applications)
@output_option
@with_settings
def show_application(settings: Settings, name: str, output: str | None) -> None:
    """The application NAME and its account, the number in its queue URLs.

    Example: queuey application show shop
    """
    if name not in _applications(settings):
        raise NothingFound(f"there is no application {name}: it begins to exist with 'queuey key new {name}'")
    write_one({"application": name, "account": account_of(name)}, output)


def _applications(settings: Settings) -> Sequence[str]:
    from queuey.future import run

    with _keys(settings, must_exist=True) as keys:
        run(keys.refresh())
    return keys.applications


def _all_keys(settings: Settings) -> list[tuple[str | None, str | None, PrincipalKey]]:
    """The keys of the store, each with the application or the operator that it is of."""
    from queuey.security.principals import application_of, operator_of

    with _metadata(settings, must_exist=True) as metadata:
        keys = metadata.keys().wait()
    return [(application_of(key.principal), operator_of(key.principal), key) for key in keys]


@contextmanager
def _keys(settings: Settings, *, must_exist: bool = False) -> Iterator[Keys]:
    """The keys of the store and of the ini file. See :func:`_metadata`."""
    from queuey.service.keys import Keys

    with _metadata(settings, must_exist=must_exist) as metadata:
        yield Keys(metadata, SystemClock(), settings.application_keys)


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
    if file is not None and not file.exists():
        if must_exist:
            refuse_missing_store(file)
        say(
            f"notice: there was no store at {file}, and this makes one. If a server runs already, its store is elsewhere: say "
            "where with --data or --config"
        )
    clock = SystemClock()
    stores = open_stores(settings, clock, IdGenerator(clock), serve=False)
    try:
        yield stores.metadata
    finally:
        stores.close()
