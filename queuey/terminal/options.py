"""Options that commands share: whom to ask, and where the server's own files are."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from queuey.errors import ConfigurationError, Forbidden
from queuey.settings import Settings, load_settings
from queuey.terminal.output import say

if TYPE_CHECKING:
    from qdo.client import Client

DEFAULT_URL = "http://127.0.0.1:5000"
DEFAULT_APPLICATION = "demo"
DATA_HELP = "Folder of the embedded store."
RETRIES = 3
"""Of one request: about a second in all, for somebody waits."""

Command = Callable[..., None]


@dataclass(frozen=True)
class Server:
    """Whom to ask, and as whom."""

    url: str
    application: str
    key: str | None = field(repr=False)
    token: str | None = field(repr=False)
    timeout_seconds: float

    def client(self, *, retries: int = RETRIES) -> Client:
        """A new client; who takes it closes it."""
        from qdo.client import Client

        return Client(
            self.url,
            self.application,
            self.key,
            token=self.token,
            timeout_seconds=self.timeout_seconds,
            retries=retries,
        )


def with_server(command: Command) -> Command:
    """Options for a server and an identity; the command gets ``server``."""

    @click.option("--url", envvar="QUEUEY_URL", default=DEFAULT_URL, show_default=True, help="Server to ask.")
    @click.option(
        "-a",
        "--application",
        envvar="QUEUEY_APPLICATION",
        default=DEFAULT_APPLICATION,
        show_default=True,
        help="Owner of the queues.",
    )
    @click.option(
        "--app-key",
        envvar="QUEUEY_KEY",
        show_envvar=True,
        help="Application key; as an option it shows in process lists, so better set the variable.",
    )
    @click.option(
        "--token",
        envvar="QUEUEY_TOKEN",
        show_envvar=True,
        help="Token of a user or of the server's own, shown in place of the key.",
    )
    @click.option(
        "--timeout", type=click.FloatRange(0.1), default=30.0, show_default=True, help="Seconds to wait for an answer."
    )
    @functools.wraps(command)
    def call(url: str, application: str, app_key: str | None, token: str | None, timeout: float, **given: Any) -> None:
        try:
            command(server=Server(url, application, app_key or None, token or None, timeout), **given)
        except Forbidden as error:
            if app_key or token:
                raise
            raise Forbidden(f"{error} No application key was given: set QUEUEY_KEY.") from error

    return call


def with_client(command: Command) -> Command:
    """As :func:`with_server`; the command gets ``client``, closed behind it."""

    @with_server
    @functools.wraps(command)
    def call(server: Server, **given: Any) -> None:
        with server.client() as client:
            command(client=client, **given)

    return call


def with_settings(command: Command) -> Command:
    """Options for the server's own settings; the command gets ``settings``, and notices are told."""

    @config_option
    @click.option(
        "--data", type=click.Path(file_okay=False), help=f"{DATA_HELP}  [QUEUEY_DATA; default: ./queuey-data]"
    )
    @functools.wraps(command)
    def call(config: str | None, data: str | None, **given: Any) -> None:
        command(settings=settings_from(config, server={"data": data}), **given)

    return call


def config_option(command: Command) -> Command:
    """``-c``: passed on as ``config``."""
    return click.option("-c", "--config", envvar="QUEUEY_CONFIG", help="The server's ini file.", type=click.Path())(
        command
    )


def settings_from(config: str | None, *, tell: bool = True, **overrides: Mapping[str, Any]) -> Settings:
    """Settings from all sources.

    :param tell: show their notices; a server logs them itself.
    :param overrides: values of options by section and key; None is not given.
    """
    settings = load_settings(config or None, os.environ, overrides)
    for notice in settings.notices if tell else ():
        say(f"notice: {notice}")
    return settings


def store_files(settings: Settings) -> list[Path]:
    """The embedded store's file, and that of the metadata if it is another; only those that there should be.

    :raises ConfigurationError: everything is in memory, or in Cassandra.
    """
    files = []
    if settings.storage.backend == "sqlite":
        files.append(Path(settings.storage.path or Path(settings.server.data, "queuey.db")))
    backend = settings.metadata.backend or settings.storage.backend
    if backend == "sqlite" and (settings.metadata.backend or settings.metadata.path):
        files.append(Path(settings.metadata.path or Path(settings.server.data, "metadata.db")))
    if not files:
        why = {"memory": "there is no store outside of its server", "cassandra": "its nodes keep the files"}
        raise ConfigurationError(f"[storage] backend = {settings.storage.backend}: {why[settings.storage.backend]}")
    return files


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is destroyed; without a terminal, ``--yes`` is needed.

    :raises click.UsageError: nobody to ask.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Say --yes: there is no terminal to ask on.")
    click.confirm(question, abort=True, err=True)


yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
