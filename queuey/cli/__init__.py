"""The command line: ``queuey NOUN VERB`` for things, ``queuey VERB`` for what is done daily.

Data goes to stdout, talk to stderr; nothing is asked without a terminal. Exit codes: 0 done, 1
failed, 2 usage or settings, 3 not found, 4 refused, 5 unavailable, 6 outcome unknown. Modules of
commands import what is heavy inside of the commands, so that every command starts at once.

This is the one part of ``queuey`` that may import ``qdo.client``: its commands are clients like
any other, and there is one client.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from queuey import __version__
from queuey.errors import QueueyError

__all__ = ["main"]

_COMMANDS = {
    "serve": "serve",
    "put": "put",
    "get": "get",
    "queue": "queues",
    "key": "keys",
    "token": "tokens",
    "init": "init",
    "backup": "admin",
    "config": "admin",
    "errors": "admin",
    "version": "admin",
    "completion": "admin",
}
"""Name to module; in the order of the help."""


class _Commands(click.Group):
    """Commands that are imported when they are asked for, and errors that become exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"queuey.cli.{_COMMANDS[cmd_name]}")
        command = getattr(module, f"{cmd_name}_command")
        return command if isinstance(command, click.Command) else None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except QueueyError as error:
            from queuey.cli.output import Failed

            raise Failed(error) from error


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "QUEUEY", "max_content_width": 100},
)
@click.version_option(__version__, message="queuey %(version)s")
def main() -> None:
    """Queuey: a partitioned, durable, time-ordered log store over HTTP.

    'queuey serve' starts a server; 'put' and 'get' write and read messages. These and 'queue' ask the
    server at QUEUEY_URL as the application QUEUEY_APPLICATION with its key QUEUEY_KEY.
    """
