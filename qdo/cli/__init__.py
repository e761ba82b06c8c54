"""The command line of workers.

``qdo work`` runs one. The other commands look at a group or set its offsets.

It has the look of ``queuey`` and shares its parts: options of a server, forms of output, exit codes.
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
    "completion": "completion",
}
"""From names to modules, in the order of the help."""


class _Commands(Commands):
    package = "qdo.cli"
    modules = _COMMANDS


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "QDO", "max_content_width": 100},
)
@click.version_option(__version__, message="qdo %(version)s")
def main() -> None:
    """Qdo: workers that share the queues of Queuey, and lose nothing.

    'qdo work MODULE:FUNCTION --queue NAME' starts a worker. Start more of them, and they divide the partitions. 'qdo
    status' shows how far they are. QUEUEY_URL, QUEUEY_APPLICATION and QUEUEY_KEY name the server, the application and its
    key; or the context that 'queuey context use' chose does. A group has workers on this machine, or on all machines that share a ZooKeeper: QDO_ZOOKEEPER.
    """
