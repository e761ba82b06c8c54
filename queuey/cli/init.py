"""``queuey init``."""

from __future__ import annotations

import click

from queuey.errors import ConfigurationError
from queuey.settings import Settings
from queuey.terminal.options import with_settings
from queuey.terminal.output import ProgressBar, output_option, say, write_rows


@click.command("init")
@click.option(
    "--replication",
    metavar="COPIES",
    help="Copies of everything: a number, or one for each data centre as in eu:3,us:3.  [QUEUEY_CASSANDRA_REPLICATION; default: 3]",
)
@output_option
@with_settings
def init_command(settings: Settings, replication: str | None, output: str | None) -> None:
    """Make the keyspaces and tables in Cassandra, as far as they are missing.

    Run it once, before the first server, as a role that may make keyspaces; servers then need SELECT and
    MODIFY alone. Running it again changes nothing. The embedded store needs no such step.

    Example: queuey init -c /etc/queuey/queuey.ini --replication 3
    """
    from queuey.storage.opening import cassandra_options

    wanted = {
        metadata: (settings.metadata.backend or settings.storage.backend if metadata else settings.storage.backend)
        for metadata in (False, True)
    }
    options = [cassandra_options(settings, metadata=part) for part, backend in wanted.items() if backend == "cassandra"]
    if not options:
        raise ConfigurationError("[storage] backend is not cassandra: other stores make what they need when they start")
    from queuey.storage.cassandra.schema import make_tables

    keyspaces = {one.keyspace: one for one in options}
    for one in keyspaces.values():
        with ProgressBar(f"keyspace {one.keyspace}", 0) as progress:
            make_tables(
                one, replication or settings.cassandra.replication, say=lambda _, done, of: progress.reach(done, of)
            )
        say(f"keyspace {one.keyspace} is ready on {', '.join(one.hosts)}")
    if output is not None:
        rows = [{"keyspace": name, "hosts": list(one.hosts)} for name, one in keyspaces.items()]
        write_rows(rows, ("keyspace", "hosts"), output)
