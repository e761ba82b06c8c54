"""Actors of dramatiq. ``python -m tests.support.dramatiq_actors`` is a worker; ``NOTES`` names its file of notes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import dramatiq
from dramatiq.cli import main, make_argument_parser

from qdo.adapters.dramatiq import QueueyBroker
from tests.support import notes

VISIBILITY = 8
"""Seconds. A worker on a busy machine must not lose its leases."""


def declared(broker: dramatiq.Broker, file: Path) -> Any:
    """An actor that does as :func:`tests.support.notes.hold`."""

    @dramatiq.actor(broker=broker, queue_name="hold", max_retries=0)  # type: ignore[untyped-decorator]
    def hold(number: int) -> None:
        notes.hold(file, number)

    return hold


if "NOTES" in os.environ:
    dramatiq.set_broker(QueueyBroker(visibility=VISIBILITY))
    actor = declared(dramatiq.get_broker(), Path(os.environ["NOTES"]))

if __name__ == "__main__":
    os.setpgrp()  # its processes can be killed with it
    sys.exit(
        main(make_argument_parser().parse_args(["tests.support.dramatiq_actors", "--processes", "1", "--threads", "2"]))
    )
