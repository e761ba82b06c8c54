"""Several servers over one Cassandra cluster: each is killed, stopped, and has its clock stepped by itself."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from qdo.client import Client
from queuey.errors import StorageUnavailable
from queuey.ids import MessageId, parse_timestamp
from queuey.storage.cassandra.cluster import Options
from queuey.storage.cassandra.schema import GC_GRACE_SECONDS, make_tables
from tests.support.node import APPLICATION, Node
from tests.support.servers import FIRST_KEY, eventually
from tests.support.services.cassandra import Cassandra
from tests.support.services.fixtures import Reached
from tests.support.services.ports import free_ports
from tests.support.skewed import program
from tests.support.wall_clock import Offset

WRITE_BUDGET, CLOCK_ERROR, READ_DELAY = 1.5, 0.25, 2.0
"""W, E and D of the guarantees, in seconds, as shipped."""
_SAMPLE = re.compile(r"^(\w+)(?:\{.*\})? ([0-9.e+]+)$", re.MULTILINE)
LOOKS = 10
"""Retries of a client that looks at what is left when faults are over."""


class Fleet:
    """Servers in a keyspace of their own. A context manager that leaves no process behind; the keyspace stays."""

    def __init__(
        self,
        folder: Path,
        cassandra: Cassandra | Reached,
        *,
        servers: int = 3,
        replication: int | str = 3,
        settings: Mapping[str, int] | None = None,
        fault: str = "none",
        gc_grace_seconds: int = GC_GRACE_SECONDS,
        centres: Sequence[str] = (),
    ) -> None:
        """:param centres: the data centre of each server, where they are not all in one.
        :param settings: of ``[cassandra]``, where they are not as shipped.
        :param fault: one of :data:`tests.support.skewed.FAULTS`.
        """
        self.keyspace = f"t_{secrets.token_hex(6)}"
        options = Options(hosts=cassandra.contact_points, port=cassandra.port, keyspace=self.keyspace)
        make_tables(options, str(replication), gc_grace_seconds=gc_grace_seconds)
        shared = {"hosts": ",".join(options.hosts), "port": options.port, "keyspace": self.keyspace, **(settings or {})}
        self.offsets: list[Offset] = []
        self.nodes: list[Node] = []
        for number, port in enumerate(free_ports(servers, ["127.0.0.1"]), 1):
            home = folder / f"server-{number}"
            home.mkdir(parents=True)
            self.offsets.append(Offset(home / "offset"))
            centre = {"data_centre": centres[number - 1], "multi_dc": "true"} if centres else {}
            self.nodes.append(
                Node(home, settings=_ini(shared | centre), program=program(self.offsets[-1], fault), port=port)
            )
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as running:
            first, *others = [running.push(node) for node in self.nodes]
            first.start()  # alone: it keeps the first key
            with ThreadPoolExecutor() as at_once:
                list(at_once.map(Node.start, others))
            self._running = running.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def client(self, index: int, *, retries: int = 0) -> Client:
        """A client of one server, over its deaths; without repeats, so that each outcome shows. Of one thread."""
        client = Client(self.nodes[index].running.url, APPLICATION, FIRST_KEY, retries=retries)
        self._running.callback(client.close)
        return client

    def clients(self) -> list[Client]:
        """One of each server."""
        return [self.client(index) for index in range(len(self.nodes))]

    def counted(self, metric: str) -> int:
        """The sum of a metric over its labels and the servers that run now."""
        texts = [node.get("/metrics").text for node in self.nodes]
        return int(sum(float(value) for text in texts for name, value in _SAMPLE.findall(text) if name == metric))

    @contextmanager
    def stepped(self, index: int, seconds: float) -> Iterator[None]:
        """One server's wall clock is off by this much while the block runs."""
        self.offsets[index].step(seconds)
        try:
            yield
        finally:
            self.offsets[index].step(-seconds)


def _ini(named: Mapping[str, object]) -> str:
    lines = "\n".join(f"{key} = {value}" for key, value in named.items())
    return f"[storage]\nbackend = cassandra\n\n[cassandra]\n{lines}\n"


def wait_until_readable(client: Client, queue: str, last: MessageId, *, seconds: float = 60) -> None:
    """Return when the queue's watermark has passed an id, and the server answers: faults may be just over."""

    def is_readable() -> bool:
        try:
            return parse_timestamp(client.read(queue, limit=1).watermark) >= last.ticks
        except StorageUnavailable:
            return False

    eventually(is_readable, seconds=seconds)
