"""Options that commands share: the server, and its files."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from queuey.contexts import DEFAULT_APPLICATION, DEFAULT_URL, context_in_force, read_contexts
from queuey.errors import ConfigurationError, QueueyError
from queuey.settings import Settings, load_settings
from queuey.terminal.numbers import Number
from queuey.terminal.output import say
from queuey.terminal.words import Invocation, in_words

if TYPE_CHECKING:
    from qdo.client import Client

DATA_HELP = "Folder of the embedded store."
RETRIES = 3
"""Of one request: about a second in all, for somebody waits."""

Command = Callable[..., None]


class FileToWrite(click.Path):
    """A file that is written at the end: a place where it cannot be is refused before the work begins."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        folder = path.parent
        if not folder.is_dir():
            self.fail(f"the folder '{folder}' does not exist", param, ctx)
        if not os.access(folder, os.W_OK | os.X_OK):
            self.fail(f"the folder '{folder}' may not be changed", param, ctx)
        return path


WRITTEN = FileToWrite()


@dataclass(frozen=True)
class Server:
    """A server, and the identity to ask it with."""

    url: str
    application: str
    key: str | None = field(repr=False)
    token: str | None = field(repr=False)
    timeout_seconds: float

    def client(self, *, retries: int = RETRIES) -> Client:
        """A new client; the caller closes it."""
        from qdo.client import Client

        return Client(
            self.url,
            self.application,
            self.key,
            token=self.token,
            timeout_seconds=self.timeout_seconds,
            retries=retries,
        )

    def said(self, error: QueueyError) -> QueueyError:
        """An error of a call, in the words of the command that runs."""
        has_credential = bool(self.key or self.token)
        return in_words(error, Invocation.now(self.url, self.application, has_credential=has_credential))


def with_server(command: Command) -> Command:
    """Options for a server and an identity; the command gets ``server``. Its errors are in the words of the command line."""

    @click.option(
        "--context",
        "context_name",
        metavar="NAME",
        shell_complete=complete_contexts,
        help="Ask the server of this context, in place of the environment's; see 'queuey context'.",
    )
    @click.option("--url", help=f"Server to ask.  [QUEUEY_URL, or the current context; default: {DEFAULT_URL}]")
    @click.option(
        "-a",
        "--application",
        help=f"Owner of the queues.  [QUEUEY_APPLICATION, or the current context; default: {DEFAULT_APPLICATION}]",
    )
    @click.option(
        "--app-key",
        help="Application key; as an option it shows in process lists, so better set the variable.  [QUEUEY_KEY]",
    )
    @click.option("--token", help="Token of a user or of the server's own, shown in place of the key.  [QUEUEY_TOKEN]")
    @click.option("--timeout", type=Number(0.1), default=30.0, show_default=True, help="Seconds to wait for an answer.")
    @functools.wraps(command)
    def call(**given: Any) -> None:
        server = server_from(**{name: given.pop(name) for name in _OF_SERVER})
        try:
            command(server=server, **given)
        except QueueyError as error:
            raise server.said(error) from error

    return call


_OF_SERVER = ("context_name", "url", "application", "app_key", "token", "timeout")


def server_from(
    context_name: str | None = None,
    url: str | None = None,
    application: str | None = None,
    app_key: str | None = None,
    token: str | None = None,
    timeout: float = 30.0,
) -> Server:
    """What options name, and what they leave out from the environment or from a context.

    With a URL no context counts, so its credential goes to no other server.

    :raises ConfigurationError: there is no such context, or the file of contexts cannot be used.
    """
    if context_name is not None and url is not None:
        raise click.UsageError("--context and --url exclude each other.")
    found = context_in_force(context_name, environment_only=url is not None)
    key, own_token = (found.key, found.token) if app_key is None and token is None else (app_key, token)
    return Server(
        found.url if url is None else url, application or found.application, key or None, own_token or None, timeout
    )


def complete_contexts(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Names of contexts, for a shell."""
    try:
        return [name for name in sorted(read_contexts().by_name) if name.startswith(begun)]
    except ConfigurationError:
        return []


def with_client(command: Command) -> Command:
    """As :func:`with_server`; the command gets ``client``, closed behind it."""

    @with_server
    @functools.wraps(command)
    def call(server: Server, **given: Any) -> None:
        with server.client() as client:
            command(client=client, **given)

    return call


def with_settings(command: Command) -> Command:
    """Options for the server's own settings, passed on as ``settings``.

    Their notices are printed.
    """

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
    """The embedded store's file, and that of the metadata if it is another.

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


def refuse_missing_store(file: Path) -> None:
    """:raises ConfigurationError: there is no such file; the text says how to name another one."""
    if not file.is_file():
        raise ConfigurationError(f"there is no store at {file.absolute()}: say where it is with --data or --config")


def confirm(question: str, *, yes: bool, look: Callable[[], object] | None = None) -> None:
    """Ask before something is destroyed; without a terminal, ``--yes`` is needed.

    :param look: raises if what the question is about is not there. It is called before the question; with ``yes`` it is
        not, since the command finds out itself.
    :raises click.UsageError: nobody to ask.
    """
    if yes:
        return
    check_can_ask(question, yes=yes)
    if look is not None:
        look()
    click.confirm(question, abort=True, err=True)


def refuse_missing_queue(client: Client, queue: str) -> None:
    """Look for a queue as whoever may remove it may; it takes no longer for a deep one.

    :raises QueueNotFound: the application has none of this name.
    """
    next(client.tasks(queue, page_size=1), None)


def check_can_ask(question: str, *, yes: bool) -> None:
    """Refuse, before long work, a command that asks at its end.

    :raises click.UsageError: nobody to ask.
    """
    if not (yes or sys.stdin.isatty()):
        raise click.UsageError(f"{question} Say --yes: there is no terminal to ask on.")


yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
