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

    QUEUEY_URL, QUEUEY_APPLICATION and QUEUEY_KEY name the server.
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    rows = SqlOutbox(name=table).on(create_engine(database))
    with Client() as client:
        relay = OutboxRelay(rows, client)
        try:
            if once:
                click.echo(f"{relay.send_waiting()} sent")
                return
            with stopped_by_signals(relay.stop):
                relay.run()
        except (QueueyError, SQLAlchemyError) as error:
            raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
