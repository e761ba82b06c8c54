"""Systems of others for the load harness: their programs, fetched if need be, and systems that run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from qdo.bench.systems import StartedSystem, system_class
from tests.support.services.jars import go_programs, jars
from tests.support.services.kafka import Kafka

__all__ = ["StartedPeers", "peer_options", "started"]


def peer_options(system: str) -> Mapping[str, str]:
    """What its start needs beside what Debian has."""
    if system == "elasticmq":
        return {"jars": str(jars("elasticmq"))}
    if system == "nats":
        return {"program": str(go_programs("nats") / "nats-server")}
    return {}


def started(system: str, folder: Path) -> StartedSystem:
    """Not running yet; its program is fetched if need be."""
    return system_class(system)(folder, peer_options(system))


class StartedPeers:
    """Systems of others, each started when it is asked for."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        """:param running: ends them."""
        self._folder = folder
        self._running = running
        self._options: dict[str, Mapping[str, str]] = {}

    def options(self, system: str) -> Mapping[str, str]:
        """What a driver needs to reach it."""
        if system not in self._options:
            self._options[system] = self._started(system)
        return self._options[system]

    def _started(self, system: str) -> Mapping[str, str]:
        if system == "kafka":
            kafka = self._running.enter_context(Kafka(self._folder / "kafka"))
            return {"servers": kafka.bootstrap_servers}
        return self._running.enter_context(started(system, self._folder / system)).options
