"""``python -m qdo.adapters.outbox DATABASE``: a relay of the table of SQLAlchemy."""

from __future__ import annotations

import logging

import click
from sqlalchemy import create_engine
from sqlalchemy.exc import SQLAlchemyError

from qdo.adapters.outbox.relay import OutboxRelay
from qdo.adapters.outbox.sqlalchemy import TABLE, SqlOutbox
from qdo.adapters.stopping import stopped_by_signals
from qdo.client import Client
from queuey.errors import QueueyError


@click.command()
@click.argument("database")
@click.option("--table", default=TABLE, show_default=True, help="The table of the outbox.")
@click.option("--once", is_flag=True, help="Send what waits now, and end.")
def main(database: str, table: str, *, once: bool) -> None:
    """Send what stands in the outbox of a DATABASE, such as postgresql://shop@db/shop.

    QUEUEY_URL, QUEUEY_APPLICATION and QUEUEY_KEY name the server. A table that cannot be read at the start ends it; later
    it waits for the database, and for the server in any case.
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    try:
        rows = SqlOutbox(name=table).on(create_engine(database))
        with Client() as client:
            relay = OutboxRelay(rows, client)
            if once:
                click.echo(f"{relay.send_waiting()} sent")
                return
            rows.waiting(1, 0)  # what is named wrongly would be tried for ever
            with stopped_by_signals(relay.stop):
                relay.run()
    except QueueyError as error:
        raise click.ClickException(str(error)) from error
    except (SQLAlchemyError, ImportError) as error:  # a driver that is not installed, too
        why = getattr(error, "orig", None) or error
        raise click.ClickException(
            f"cannot read the table {table}: {why}. DATABASE and --table name it, and your program makes it with its own tables."
        ) from error


if __name__ == "__main__":
    main()
