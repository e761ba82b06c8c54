"""ZooKeeper 3.9: one server, or an ensemble of three, on 127.0.0.1, 127.0.0.2, ..."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from string import Template

from tests.support.services.jars import RECIPES, jars
from tests.support.services.java import BRIEF
from tests.support.services.service import Node, Service, free_ports_for

RECIPE = RECIPES / "zookeeper"
ANSWER_SECONDS = 2
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


class ZooKeeperNode(Node):
    """One server."""

    @property
    def mode(self) -> str | None:
        """``standalone``, ``leader`` or ``follower`` while it serves."""
        for line in self._four_letters("srvr").splitlines():
            name, _, value = line.partition(": ")
            if name == "Mode":
                return value
        return None

    @property
    def figures(self) -> dict[str, float]:
        """What it counts: ``zk_znode_count``, ``zk_watch_count``, ``zk_packets_received`` and others."""
        words = (line.split("\t") for line in self._four_letters("mntr").splitlines())
        return {word[0]: float(word[1]) for word in words if len(word) == 2 and _NUMBER.fullmatch(word[1])}

    def answers(self) -> bool:
        """Is it part of a quorum? ``ruok`` is answered before it is."""
        return self.mode is not None

    def _four_letters(self, word: str) -> str:
        try:
            with socket.create_connection((self.address, self.port), ANSWER_SECONDS) as connection:
                connection.sendall(word.encode())
                with connection.makefile() as answer:
                    return answer.read()
        except OSError:
            return ""


class ZooKeeper(Service):
    """An ensemble. A client on this machine needs ``hosts``, or ``contact_points`` in a list."""

    kind = "zookeeper"
    nodes: list[ZooKeeperNode]

    def __init__(
        self,
        folder: Path,
        nodes: int = 1,
        *,
        proxied: bool = False,
        port: int | None = None,
        peer_port: int | None = None,
        trusts: Path | None = None,
        shows: Path | None = None,
    ) -> None:
        """:param folder: for the data, which stay when it is stopped.
        :param nodes: 1 or 3.
        :param proxied: clients reach each server through a proxy, on 127.0.1.1, ...: see ``proxies``.
        :param port: where clients connect, the same on each server's address. Free ports are found for those not given.
        :param trusts: file of the authority of its clients: then it listens with TLS as well, at ``secure_port``.
        :param shows: file with its own key and certificate.
        """
        free_port, free_peer, _, self.secure_port = free_ports_for(nodes, 4)
        self._tls = _tls_settings(self.secure_port, trusts, shows) if trusts and shows else []
        self._peer_port = peer_port or free_peer
        super().__init__(folder, nodes=nodes, port=port or free_port, proxied=proxied, peer_port=self._peer_port)
        self.nodes = [self._node(number) for number in range(1, nodes + 1)]

    @property
    def contact_points(self) -> list[str]:
        """``address:port`` of each server."""
        return [f"{address}:{self.port}" for address in self.reached_at]

    @property
    def hosts(self) -> str:
        """All servers in one line, as ZooKeeper's clients take it."""
        return ",".join(self.contact_points)

    @property
    def for_queuey(self) -> str:
        return f"ZooKeeper: {self.hosts}"

    def start(self) -> None:
        """Start the servers that do not run, all at once: none serves before most of them are there."""
        for node in self.nodes:
            if node.pid is None:
                node.start()
        for node in self.nodes:
            node.wait_until_up()

    def _node(self, number: int) -> ZooKeeperNode:
        home = self.folder / f"zookeeper-{number}"
        (home / "data").mkdir(parents=True, exist_ok=True)
        (home / "data" / "myid").write_text(str(number))
        address = self.addresses[number - 1]
        members = [
            f"server.{other}={peer}:{self._peer_port}:{self._peer_port + 1}"
            for other, peer in enumerate(self.addresses, start=1)
            if len(self.addresses) > 1
        ]
        settings = Template((RECIPE / "zoo.cfg").read_text()).substitute(
            home=home, address=address, port=self.port, members="\n".join(members + self._tls)
        )
        (home / "zoo.cfg").write_text(settings)
        return ZooKeeperNode(home, number, address, self.port, _command(home))


def _tls_settings(port: int, trusts: Path, shows: Path) -> list[str]:
    return [
        f"secureClientPort={port}",
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
        f"ssl.keyStore.location={shows}",
        f"ssl.trustStore.location={trusts}",
        "ssl.clientAuth=need",
    ]


def _command(home: Path) -> list[str]:
    return [
        "java",
        "-Xms32m",
        "-Xmx64m",
        *BRIEF,
        f"-XX:ErrorFile={home}/java-error.txt",
        f"-Dlogback.configurationFile={RECIPES / 'logback.xml'}",
        "-cp",
        f"{jars('zookeeper')}/*",
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        str(home / "zoo.cfg"),
    ]
