"""Kafka 4: one broker that is its own controller (KRaft, no ZooKeeper), on 127.0.0.1; what the benchmark compares Spark with."""

from __future__ import annotations

import socket
import struct
import subprocess
from pathlib import Path
from string import Template

from tests.support.services.jars import RECIPES, jars
from tests.support.services.java import BRIEF
from tests.support.services.process import ServiceError
from tests.support.services.service import Node, Service, free_ports_for

RECIPE = RECIPES / "kafka"
ANSWER_SECONDS = 2
TOOL_SECONDS = 180
CLUSTER = "cXVldWV5LXRlc3RzLWthZg"
"""16 bytes as Kafka wants them, in base64 without its end."""
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""The question that any broker answers any client: its length, its number, its version, a number to know the answer
by, and a client without a name."""


class KafkaNode(Node):
    """One broker."""

    def answers(self) -> bool:
        """Does it reply to a request? The port alone opens too early."""
        try:
            with socket.create_connection((self.address, self.port), ANSWER_SECONDS) as connection:
                connection.sendall(_API_VERSIONS)
                connection.settimeout(ANSWER_SECONDS)
                return len(connection.recv(10)) == 10
        except OSError:
            return False

    def tool(self, name: str, *arguments: str, stdin: str = "") -> str:
        """One of Kafka's own commands, by its class, connected to this broker; what it printed.

        ``tool("TopicCommand", "--list")``.
        """
        there = ["--bootstrap-server", f"{self.address}:{self.port}"]
        return _java(f"org.apache.kafka.tools.{name}", *there, *arguments, stdin=stdin)


class Kafka(Service):
    """A cluster of one. A client on this machine needs ``bootstrap_servers``."""

    kind = "kafka"
    nodes: list[KafkaNode]

    def __init__(
        self, folder: Path, *, proxied: bool = False, port: int | None = None, controller_port: int | None = None
    ) -> None:
        """:param folder: for the data, which stay when it is stopped.
        :param proxied: clients reach it through a proxy, on 127.0.1.1: see ``proxies``.
        :param port: where clients connect. Free ports are found for those not given.
        """
        free_port, free_controller = free_ports_for(1, 2)
        self._controller_port = controller_port or free_controller
        super().__init__(
            folder, nodes=1, port=port or free_port, proxied=proxied, controller_port=self._controller_port
        )
        self.nodes = [self._node()]

    @property
    def contact_points(self) -> list[str]:
        return [f"{self.reached_at[0]}:{self.port}"]

    @property
    def bootstrap_servers(self) -> str:
        """As Kafka's clients, and Spark's source, take it."""
        return self.contact_points[0]

    @property
    def for_queuey(self) -> str:
        return f"Kafka: {self.bootstrap_servers}; Queuey does not use it, its benchmark does"

    def start(self) -> None:
        (node,) = self.nodes
        if node.pid is None:
            if not (node.folder / "data").exists():
                self._format(node.folder)
            node.start()
        node.wait_until_up()

    def create_topic(self, name: str, partitions: int, *, flushes: bool = False) -> None:
        """Return when it is there.

        :param flushes: what is acknowledged is on disk, with ``acks=all``; as shipped the kernel may have it still.
        """
        settings = ["--config", "flush.messages=1"] if flushes else []
        self.nodes[0].tool("TopicCommand", "--create", "--topic", name, "--partitions", str(partitions), *settings)

    def delete_topic(self, name: str) -> None:
        self.nodes[0].tool("TopicCommand", "--delete", "--topic", name)

    def _node(self) -> KafkaNode:
        home = self.folder / "kafka-1"
        home.mkdir(exist_ok=True)
        address = self.addresses[0]
        settings = Template((RECIPE / "server.properties").read_text()).substitute(
            home=home,
            address=address,
            port=self.port,
            controller_port=self._controller_port,
            reached_at=self.reached_at[0],
        )
        (home / "server.properties").write_text(settings)
        return KafkaNode(home, 1, address, self.port, _command(home))

    def _format(self, home: Path) -> None:
        """What makes an empty folder the disk of this cluster, by Kafka's own command."""
        settings = str(home / "server.properties")
        _java("kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER, "--config", settings)


def version() -> str:
    """Of the jars."""
    (clients,) = jars("kafka").glob("kafka-clients-*.jar")
    return clients.stem.rpartition("-")[2]


def _command(home: Path) -> list[str]:
    """Memory and garbage collector as Kafka's own start script has them."""
    return [
        "java",
        "-Xms1g",
        "-Xmx1g",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        f"-XX:ErrorFile={home}/java-error.txt",
        _logging("logback.xml"),
        *_classes(),
        "kafka.Kafka",
        str(home / "server.properties"),
    ]


def _java(program: str, *arguments: str, stdin: str = "") -> str:
    """A short command of Kafka's, on the quick one of Java's two compilers alone.

    :raises ServiceError: it failed; with what it said.
    """
    quick = ["-Xmx128m", *BRIEF, _logging("quiet.xml")]
    done = subprocess.run(
        ["java", *quick, *_classes(), program, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS,
        check=False,
    )
    if done.returncode:
        raise ServiceError(f"{program} {' '.join(arguments)} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def _logging(how: str) -> str:
    return f"-Dlogback.configurationFile={RECIPES / how}"


def _classes() -> list[str]:
    return ["-cp", f"{jars('kafka')}/*"]
