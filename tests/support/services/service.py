"""What Cassandra and ZooKeeper have in common: nodes in a folder that remembers what they are."""

from __future__ import annotations

import json
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, Self

from tests.support.services.guard import held
from tests.support.services.ports import free_ports
from tests.support.services.process import Process, ServiceError
from tests.support.services.proxy import Proxy

UP_SECONDS = 240
LOOK_SECONDS = 0.1
SETTINGS = "service.json"


class NotUp(ServiceError):
    """A node ended, or does not serve in time; with the end of its log."""


def eventually(look: Callable[[], bool], otherwise: str, *, seconds: float = UP_SECONDS) -> None:
    """Return when it holds.

    :raises NotUp: it did not in time.
    """
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            raise NotUp(f"{otherwise} after {seconds:g} s")
        time.sleep(LOOK_SECONDS)


class Node(Process, ABC):
    """One server of a service."""

    def __init__(self, folder: Path, number: int, address: str, port: int, command: list[str]) -> None:
        """:param number: from 1, as in its name and its address."""
        super().__init__(folder, command)
        self.number = number
        self.address = address
        self.port = port

    @property
    def name(self) -> str:
        return self.folder.name

    @abstractmethod
    def answers(self) -> bool:
        """Does it serve a client now? Says so within seconds."""

    def wait_until_up(self, *, seconds: float = UP_SECONDS) -> None:
        """Return when it serves a client.

        :raises NotUp: it ended, or did not in time.
        """
        eventually(self._has_come_up, f"{self.name} does not answer, see {self.log},", seconds=seconds)

    def _has_come_up(self) -> bool:
        if self.pid is None:
            raise NotUp(f"{self.name} ended instead of serving. {self.log} ends with:\n{self.log_end()}")
        return self.answers()

    def restart(self) -> None:
        """Stop it, start it on the same data, and wait for it."""
        self.stop()
        self.start()
        self.wait_until_up()


class Service(ABC):
    """Some nodes of one kind.

    As a context manager they run, and leave neither process nor data behind, however this process ends. By hand,
    ``start`` and ``stop`` keep both.
    """

    kind: ClassVar[str]
    nodes: Sequence[Node]

    def __init__(self, folder: Path, *, nodes: int, port: int, proxied: bool, **settings: Any) -> None:
        """:param folder: for the data; what was made there before is made again with all the same settings only.

        :param port: the same on each node's address.
        :param proxied: clients reach each node through a proxy.
        :raises FileExistsError: the folder holds another service, or this one with other settings.
        """
        if nodes not in (1, 3):
            raise ValueError(f"{self.kind} has 1 or 3 nodes here, not {nodes}")
        self.folder = folder.resolve()
        self.port = port
        self.addresses = addresses(nodes)
        self.reached_at = addresses(nodes, proxied=proxied)
        """Where clients find the nodes."""
        self.proxies: list[Proxy] = []
        """Each before the node of the same index, while it runs as a context manager."""
        self._proxied = proxied
        self._running = ExitStack()
        self._remember({"kind": self.kind, "nodes": nodes, "port": port, "proxied": proxied, **settings})

    def _remember(self, settings: dict[str, Any]) -> None:
        remembered = self.folder / SETTINGS
        if remembered.exists() and (before := json.loads(remembered.read_text())) != settings:
            raise FileExistsError(f"{self.folder} holds what was made with other settings: {before}, not {settings}")
        self.folder.mkdir(parents=True, exist_ok=True)
        remembered.write_text(json.dumps(settings))

    @property
    @abstractmethod
    def contact_points(self) -> list[str]:
        """What a client needs to connect."""

    @property
    @abstractmethod
    def for_queuey(self) -> str:
        """The settings that lead queuey here."""

    @abstractmethod
    def start(self) -> None:
        """Start the nodes that do not run; return when all of them serve."""

    def stop(self) -> None:
        """Have all nodes end as an operator would; the data stay."""
        with ThreadPoolExecutor() as at_once:
            list(at_once.map(Node.stop, self.nodes))

    def mend(self) -> None:
        """Undo what was done to it: heal the network, resume what is paused, start what is dead; wait for all."""
        for proxy in self.proxies:
            proxy.heal()
        for node in self.nodes:
            if node.paused:
                node.resume()
        self.start()

    def kill(self) -> None:
        """kill -9 for all nodes; the data stay."""
        for node in self.nodes:
            node.kill()

    def wait_until_up(self, index: int) -> None:
        """Return when this node, counted from 0, serves a client."""
        self.nodes[index].wait_until_up()

    def __enter__(self) -> Self:
        with ExitStack() as running:
            running.enter_context(held(self.folder))
            running.callback(shutil.rmtree, self.folder, ignore_errors=True)
            running.callback(self.kill)
            self.start()
            if self._proxied:
                self.proxies = [running.enter_context(self.proxy_before(node)) for node in self.nodes]
            self._running = running.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def proxy_before(self, node: Node) -> Proxy:
        """A proxy where clients look for this node.

        :raises ValueError: they go to the node itself.
        """
        if not self._proxied:
            raise ValueError(f"clients of {self.kind} connect without a proxy: it was not made proxied")
        return Proxy(lambda: (node.address, node.port), listen=(self.reached_at[node.number - 1], self.port))


def addresses(count: int, *, proxied: bool = False) -> list[str]:
    """Those of the nodes, or of the proxies before them."""
    return [f"127.0.{int(proxied)}.{number}" for number in range(1, count + 1)]


def free_ports_for(nodes: int, count: int) -> list[int]:
    """Ports that are free on the addresses of this many nodes, and of proxies before them."""
    return free_ports(count, addresses(nodes) + addresses(nodes, proxied=True))
