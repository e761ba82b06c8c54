"""``manage.py queuey_outbox``: the relay of the outbox."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

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
        with Client() as client:
            relay = OutboxRelay(DjangoRows(database), client)
            try:
                if once:
                    self.stdout.write(f"{relay.send_waiting()} sent")
                    return
                with stopped_by_signals(relay.stop):
                    relay.run()
            except QueueyError as error:
                raise CommandError(str(error)) from error


Command = OutboxCommand
