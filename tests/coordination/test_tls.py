"""Members that speak TLS to a real ZooKeeper, both showing certificates; and strangers that do not get in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from qdo.groups import zookeeper_tls
from qdo.groups.zookeeper import ZooKeeperCoordinator
from qdo.groups.zookeeper_tls import security
from queuey.errors import ConfigurationError, CoordinatorUnavailable
from tests.support.client import Server
from tests.support.members import parts, place
from tests.support.servers import shipped
from tests.support.services.certificates import Authority, Identity
from tests.support.services.zookeeper import ZooKeeper
from tests.support.work_processes import processes_in

(ONE,) = parts(1)
ADDRESS = "127.0.0.1"


@dataclass
class Closed:
    """A ZooKeeper that takes certificates of one authority alone."""

    folder: Path
    hosts: str = ""
    authority: Authority = field(init=False)
    client: Identity = field(init=False)

    def __post_init__(self) -> None:
        self.authority = Authority(self.folder)
        self.client = self.authority.identity("client")

    def coordinator(self, ca: Path, who: Identity | None, connect_seconds: float = 15.0) -> ZooKeeperCoordinator:
        shown = {} if who is None else {"cert": str(who.cert), "key": str(who.key)}
        kazoo = security(ca=str(ca), **shown)
        return ZooKeeperCoordinator(self.hosts, "app", "closed", connect_seconds=connect_seconds, **kazoo)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    folder = tmp_path_factory.mktemp("tls")
    found = Closed(folder)
    server = found.authority.identity("server", ADDRESS)
    with ZooKeeper(folder / "zookeeper", trusts=found.authority.file, shows=server.both) as zookeeper:
        found.hosts = f"{ADDRESS}:{zookeeper.secure_port}"
        yield found


def test_members_meet_by_tls(closed: Closed) -> None:
    member, other = (closed.coordinator(closed.authority.file, closed.client) for _ in range(2))
    member.join({"name": "one"})
    (claim,) = member.claim([ONE])

    assert member.commit({claim: place(1)}) == []
    assert other.offsets() == {ONE: place(1)}
    member.close()
    other.close()


def test_an_authority_that_did_not_sign_for_zookeeper_is_refused_at_once(closed: Closed, tmp_path: Path) -> None:
    wrong = Authority(tmp_path, "wrong")

    with pytest.raises(ConfigurationError, match=rf"no TLS with ZooKeeper at {closed.hosts}: .*verify failed") as found:
        closed.coordinator(wrong.file, closed.client)

    assert "self-signed" in str(found.value) or "issuer" in str(found.value)


def test_what_the_system_trusts_is_not_trusted(closed: Closed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when it connects anew either, long after it looked at the certificate."""
    monkeypatch.setenv("SSL_CERT_FILE", str(closed.authority.file))
    monkeypatch.setattr("qdo.groups.zookeeper_tls.tls_trouble", lambda *_, **__: None)
    wrong = Authority(tmp_path, "wrong")

    with pytest.raises(CoordinatorUnavailable, match="no ZooKeeper answers"):
        closed.coordinator(wrong.file, closed.client, connect_seconds=1)
    closed.coordinator(closed.authority.file, closed.client).close()


def test_a_certificate_for_another_host_is_refused(closed: Closed, tmp_path: Path) -> None:
    """Whoever else has one of the authority's certificates is not ZooKeeper."""
    elsewhere = closed.authority.identity("elsewhere", "127.0.0.9")
    with (
        ZooKeeper(tmp_path / "zookeeper", trusts=closed.authority.file, shows=elsewhere.both) as zookeeper,
        pytest.raises(ConfigurationError, match="IP address mismatch"),
    ):
        ZooKeeperCoordinator(
            f"{ADDRESS}:{zookeeper.secure_port}", "app", "closed", **security(ca=str(closed.authority.file))
        )


def test_it_is_refused_as_well_where_the_first_look_came_too_early(
    closed: Closed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ZooKeeper that has just begun may be too busy to shake hands in time."""
    looks, look = [True], zookeeper_tls.tls_trouble
    monkeypatch.setattr(
        zookeeper_tls, "tls_trouble", lambda *given, **how: None if looks and looks.pop() else look(*given, **how)
    )
    elsewhere = closed.authority.identity("elsewhere", "127.0.0.9")
    with (
        ZooKeeper(tmp_path / "zookeeper", trusts=closed.authority.file, shows=elsewhere.both) as zookeeper,
        pytest.raises(ConfigurationError, match="IP address mismatch"),
    ):
        ZooKeeperCoordinator(
            f"{ADDRESS}:{zookeeper.secure_port}",
            "app",
            "closed",
            connect_seconds=1.0,
            **security(ca=str(closed.authority.file)),
        )


@pytest.mark.parametrize("shows", ["nothing", "of another authority"])
def test_who_cannot_prove_itself_does_not_get_in_and_is_told_why(closed: Closed, tmp_path: Path, shows: str) -> None:
    who = None if shows == "nothing" else Authority(tmp_path, "wrong").identity("stranger")

    with pytest.raises(CoordinatorUnavailable, match=r"within 1 s: .*(certificate|unknown ca)"):
        closed.coordinator(closed.authority.file, who, connect_seconds=1)


def test_workers_meet_by_tls(closed: Closed, tmp_path: Path) -> None:
    """The command, by variables."""
    with shipped(tmp_path) as running, Server(running) as server, processes_in(tmp_path, server) as processes:
        queue = server.queue(partitions=2)
        server.fill(queue, "a", "b", partition=1)
        processes.environment |= {
            "QDO_ZOOKEEPER": closed.hosts,
            "QDO_ZOOKEEPER_CA": str(closed.authority.file),
            "QDO_ZOOKEEPER_CERT": str(closed.client.cert),
            "QDO_ZOOKEEPER_KEY": str(closed.client.key),
        }

        assert processes.work("note", queue).code == 0

        assert sorted(processes.notes) == ["1 a", "1 b"]
        assert [row["message_id"] != "" for row in processes.run("offsets", "show").rows] == [True]
        wrong = processes.run("status", "--zookeeper-ca", str(Authority(tmp_path / "other", "wrong").file))
        assert (wrong.code, "no TLS with ZooKeeper" in wrong.err) == (2, True)
