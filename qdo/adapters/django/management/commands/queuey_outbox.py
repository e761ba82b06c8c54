"""``manage.py queuey_outbox``: the relay of the outbox."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error
from django.db.utils import ConnectionDoesNotExist

from qdo.adapters.django.outbox import DjangoRows
from qdo.adapters.outbox.relay import OutboxRelay
from qdo.adapters.stopping import stopped_by_signals
from qdo.client import Client
from queuey.errors import QueueyError


class OutboxCommand(BaseCommand):
    help = "Send what stands in the outbox. QUEUEY_URL, QUEUEY_APPLICATION and QUEUEY_KEY name the server."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--once", action="store_true", help="send what waits now, and end")
        parser.add_argument("--database", default="default", help="of DATABASES; by default %(default)s")

    def handle(self, *_: Any, once: bool, database: str, **more: Any) -> None:
        rows = DjangoRows(database)
        try:
            with Client() as client:
                relay = OutboxRelay(rows, client)
                rows.waiting(1, 0)  # what is named wrongly would be tried for ever
                if once:
                    self.stdout.write(f"{relay.send_waiting()} sent")
                    return
                with stopped_by_signals(relay.stop):
                    relay.run()
        except QueueyError as error:
            raise CommandError(str(error)) from error
        except (Error, ConnectionDoesNotExist) as error:
            why = str(error).strip(".\n")
            raise CommandError(
                f"cannot read the table of the outbox: {why}. 'manage.py migrate' makes it, and --database names where it is."
            ) from error


Command = OutboxCommand
