"""``queuey serve``."""

from __future__ import annotations

import os
import shlex
import warnings
from typing import TYPE_CHECKING

import click

from queuey.contexts import DEFAULT_APPLICATION
from queuey.terminal.options import DATA_HELP, config_option, settings_from

if TYPE_CHECKING:
    from queuey.server.run import Started
    from queuey.settings import Settings


@click.command("serve")
@config_option
@click.option("--host", help="Address to listen on.  [QUEUEY_HOST; default: 127.0.0.1]")
@click.option("--port", type=int, help="Port; 0 takes a free one.  [QUEUEY_PORT; default: 5000]")
@click.option("--data", type=click.Path(file_okay=False), help=f"{DATA_HELP}  [QUEUEY_DATA; default: ./queuey-data]")
@click.pass_context
def serve_command(ctx: click.Context, config: str | None, host: str | None, port: int | None, data: str | None) -> None:
    """Run the server. It needs no options: the store is a folder, made if missing.

    On the first start an application 'demo' is made, with the key in QUEUEY_KEY or a new one that is shown
    once. At any later start too the key in QUEUEY_KEY becomes one of 'demo', if it is not yet. Every setting of
    'queuey config doc' can be given in the ini file or as a variable. SIGTERM or Ctrl-C lets requests finish, then
    stops. SIGHUP reads keys, tokens, issuers, the certificate and the settings of
    the log anew; where the terminal that the server was started from has gone, it stops as well.

    Example: queuey serve --port 8080 --data /var/lib/queuey
    """

    def load() -> Settings:
        return settings_from(config, tell=False, server={"host": host, "port": port, "data": data})

    settings = load()
    # Pyramid imports pkg_resources, which warns (hence setuptools<81); no user of this command can do anything about it.
    warnings.filterwarnings("ignore", "(Deprecated call to .)?pkg_resources", Warning)
    from queuey.server.run import serve
    from queuey.service.keys import chosen_key

    ctx.exit(serve(settings, announce, first_key=chosen_key(os.environ), reload=load))


def announce(started: Started) -> None:
    """Where the server is, and on its first start the key and what to type next."""
    where = {
        "sqlite": f"data in {started.data}",
        "cassandra": "data in Cassandra",
        "memory": "in memory: stopping loses everything",
    }[started.backend]
    said = f"Queuey listens on {started.url}, {where}"
    if started.application is not None and started.key is not None:
        chosen = started.key == os.environ.get("QUEUEY_KEY")
        has_console = started.has_console
        said += "\n" + first_words(
            reached_at(started.url), started.application, started.key, chosen=chosen, has_console=has_console
        )
    click.echo(said)  # to stdout, since stderr is the log's alone


def reached_at(url: str) -> str:
    """An address to type on this machine: no browser of Windows opens the one that stands for all.

    >>> reached_at("http://0.0.0.0:5000"), reached_at("http://[::]:5000"), reached_at("https://10.0.0.1:5000")
    ('http://127.0.0.1:5000', 'http://[::1]:5000', 'https://10.0.0.1:5000')
    """
    return url.replace("://0.0.0.0:", "://127.0.0.1:").replace("://[::]:", "://[::1]:")


def first_words(url: str, application: str, key: str, *, chosen: bool, has_console: bool = True) -> str:
    """The key, if it was made now, the next three commands, and the console if there is one.

    A key that somebody chose is known and not shown.
    """
    variables = {"QUEUEY_URL": url, "QUEUEY_KEY": "..." if chosen else key}
    if application != DEFAULT_APPLICATION:
        variables["QUEUEY_APPLICATION"] = application
    console = f"\nOr open {url}/console in a browser, and sign in with the key.\n" if has_console else ""
    export = " ".join(f"{name}={value if value == '...' else shlex.quote(value)}" for name, value in variables.items())
    made = (
        f"The key in QUEUEY_KEY is now one of the application '{application}'."
        if chosen
        else f"Made the application '{application}', with the key:\n\n    {key}\n\n"
        "It is not shown again; 'queuey key new' makes more."
    )
    return (
        f"\n{made}\n"
        f"Next, in another terminal:\n\n"
        f"    export {export}\n"
        f"    queuey put {application} hello\n"
        f"    queuey get {application} --follow\n"
        f"{console}"
    )
