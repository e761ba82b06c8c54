"""One service for several processes, and the same by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.support.servers import eventually
from tests.support.services.__main__ import services
from tests.support.services.jars import ROOT
from tests.support.services.ports import free_ports
from tests.support.services.shared import found
from tests.support.services.zookeeper import ZooKeeper

USER = """
import sys
from pathlib import Path
from tests.support.services.shared import shared
from tests.support.services.zookeeper import ZooKeeper

with shared(Path(sys.argv[1]), ZooKeeper) as service:
    print(service.port, flush=True)
    sys.stdin.read()
"""


def user(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", USER, str(folder)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_several_processes_start_one_and_the_last_ends_it(tmp_path: Path) -> None:
    folder = tmp_path / "zookeeper"
    with user(folder) as one, user(folder) as two, user(folder) as three:
        ports = {process.stdout.readline() for process in (one, two, three) if process.stdout}
        service = found(folder)
        assert service is not None
        (node,) = service.nodes
        assert ports == {f"{node.port}\n"}

        one.kill()
        two.communicate()

        assert node.answers()
        three.kill()

    eventually(lambda: not folder.exists())
    assert not node.answers()


@pytest.fixture
def by_hand(tmp_path: Path) -> ByHand:
    return ByHand(tmp_path / "home")


class ByHand:
    """``python -m tests.support.services``, with data of its own."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def __call__(self, *words: str, fails: bool = False, stdin: str | None = None) -> str:
        done: Result = CliRunner().invoke(services, ["--home", str(self._home), *words], input=stdin)
        assert bool(done.exit_code) == fails, done.output
        return done.output


def test_by_hand(by_hand: ByHand, tmp_path: Path) -> None:
    assert by_hand("status") == "cassandra: none\nzookeeper: none\n"
    (port,) = free_ports(1, ["127.0.0.1", "127.0.1.1"])
    try:
        assert f"127.0.1.1:{port}" in by_hand("up", "zookeeper", "--port", str(port), "--proxied")
        assert "made with nodes 1, and keeps that" in by_hand("up", "zookeeper", "--nodes", "3", fails=True)
        by_hand("up", "zookeeper", "--nodes", "1", "--port", str(port))
        assert "up, process" in by_hand("status")
        assert "leads to zookeeper-1" in by_hand("network", "zookeeper-1", stdin="delay 0.1\nup\n\nheal\n")
        by_hand("pause", "zookeeper-1")
        assert "paused, process" in by_hand("status")
        by_hand("resume", "zookeeper-1")
        by_hand("kill", "zookeeper-1")
        assert "absent" in by_hand("status")
        by_hand("start", "zookeeper-1")
        assert "runs already" in by_hand("start", "zookeeper-1", fails=True)
        by_hand("restart", "zookeeper-1")
        assert "zookeeper-1/log.txt" in by_hand("logs", "zookeeper-1")
        assert "--tuned is for Cassandra" in by_hand("up", "zookeeper", "--tuned", fails=True)
        assert "is no Cassandra node" in by_hand("nodetool", "zookeeper-1", "status", fails=True)
        assert "There is: zookeeper-1" in by_hand("kill", "cassandra-1", fails=True)
        by_hand("down")
        assert "absent" in by_hand("status")
        by_hand("up", "zookeeper")
    finally:
        by_hand("down", "--wipe")
    assert by_hand("status") == "cassandra: none\nzookeeper: none\n"


def test_clients_without_a_proxy_get_none(tmp_path: Path) -> None:
    zookeeper = ZooKeeper(tmp_path / "zookeeper")

    with pytest.raises(ValueError, match="was not made proxied"):
        zookeeper.proxy_before(zookeeper.nodes[0])


def test_the_help_teaches(by_hand: ByHand) -> None:
    said = by_hand("--help")

    assert "python -m tests.support.services up cassandra " in said
    for verb in services.commands:
        assert by_hand(verb, "--help").startswith("Usage: ")
