"""The command line of workers: ``qdo work`` runs one, the others look at a group or set it right.

It looks like ``queuey``, whose parts it uses: options of a server, forms of output, exit codes.
"""

from __future__ import annotations

import click

from queuey._version import __version__
from queuey.terminal.commands import Commands

__all__ = ["main"]


_COMMANDS = {
    "work": "work",
    "status": "status",
    "check": "status",
    "top": "top",
    "offsets": "offsets",
    "dead": "dead",
    "pipeline": "pipeline",
}
"""Name to module; in the order of the help."""


class _Commands(Commands):
    package = "qdo.cli"
    modules = _COMMANDS


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "QDO", "max_content_width": 100},
)
@click.version_option(__version__, message="qdo %(version)s")
def main() -> None:
    """Qdo: workers that share the queues of Queuey among them, and lose nothing.

    'qdo work MODULE:FUNCTION --queue NAME' starts a worker; start more of them, and they divide the
    partitions. 'qdo status' tells how far they are. The server is that at QUEUEY_URL, asked as the
    application QUEUEY_APPLICATION with its key QUEUEY_KEY. A group is of this machine, or of all
    that share a ZooKeeper: QDO_ZOOKEEPER.
    """
