"""The command line: ``queuey NOUN VERB``, and ``queuey VERB`` for daily work.

Data goes to stdout, talk to stderr; nothing is asked without a terminal. Exit codes: 0 done, 1
failed, 2 usage or settings, 3 not found, 4 refused, 5 unavailable, 6 outcome unknown. Modules of
commands import what is heavy inside of the commands, so that every command starts at once.

This is the one part of ``queuey`` that may import ``qdo.client``: its commands are clients like
any other, and there is one client.
"""

from __future__ import annotations

import click

from queuey._version import __version__
from queuey.terminal.commands import Commands

__all__ = ["main"]

_COMMANDS = {
    "serve": "serve",
    "put": "put",
    "get": "get",
    "show": "messages_by_id",
    "rm": "messages_by_id",
    "import": "importing",
    "receive": "receive",
    "pop": "receive",
    "ack": "settle",
    "release": "settle",
    "reject": "settle",
    "group": "groups",
    "lease": "leases",
    "redrive": "tasks",
    "purge": "tasks",
    "schedule": "schedules",
    "queue": "queues",
    "context": "contexts",
    "key": "keys",
    "application": "keys",
    "token": "tokens",
    "init": "init",
    "backup": "stores",
    "restore": "stores",
    "verify": "stores",
    "bench": "bench",
    "top": "top",
    "check": "check",
    "doctor": "doctor",
    "audit": "audit",
    "config": "admin",
    "errors": "admin",
    "version": "admin",
    "completion": "admin",
}
"""Name to module; in the order of the help."""


class _Commands(Commands):
    package = "queuey.cli"
    modules = _COMMANDS


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "QUEUEY", "max_content_width": 100},
)
@click.version_option(__version__, message="queuey %(version)s")
def main() -> None:
    """Queuey: a partitioned, durable, time-ordered log store over HTTP.

    'queuey serve' starts a server; 'put' and 'get' write and read messages; 'receive' hands each to one
    receiver. These, 'queue' and 'lease' ask the server at QUEUEY_URL as the application QUEUEY_APPLICATION with its key QUEUEY_KEY,
    or that of the context in use ('queuey context').
    """
