from __future__ import annotations

from queuey._version import __version__
from queuey.errors import StorageUnavailable
from queuey.future import run
from queuey.service.heartbeat import Heartbeat
from tests.support.peers import Telephone


def test_servers_see_each_other() -> None:
    line, now = Telephone(), [1000.0]
    one, other = (Heartbeat(line, lambda: now[0]) for _ in range(2))
    other.name = "other"
    now[0] = 1010.0

    for server in (one, other):
        run(server.turn())

    found = run(one.servers())
    assert found is not None
    assert {(beat.name, beat.version, beat.began, beat.seen) for beat in found} == {
        (one.name, __version__, 1000.0, 1010.0),
        ("other", __version__, 1000.0, 1010.0),
    }


def test_a_store_out_of_reach_ends_no_server() -> None:
    line = Telephone()
    server = Heartbeat(line, lambda: 1.0)
    line.broken = StorageUnavailable()

    run(server.turn())

    assert run(server.servers()) is None
    line.broken = None
    run(server.turn())
    assert run(server.servers())


def test_the_server_of_an_embedded_store_is_alone() -> None:
    server = Heartbeat(None, lambda: 1.0)

    server.start()

    assert not server.has_begun
    assert run(server.servers()) is None
    server.stop()
