"""G3: a server whose clock is wrong says so at once, stores and serves nothing, and returns by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qdo.client import Client
from qdo.client.values import HasLocation
from queuey.errors import ClockUnsafe, StorageUnavailable
from tests.support.effects import everything
from tests.support.figures import Figures
from tests.support.fleet import Fleet, wait_until_readable
from tests.support.services.fixtures import Reached


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, cassandra_node: Reached) -> Iterator[Fleet]:
    with Fleet(tmp_path_factory.mktemp("fleet"), cassandra_node, servers=2, replication=1) as fleet:
        fleet.client(0).create_queue("q")
        yield fleet


def refuses(client: Client, stored: HasLocation) -> bool:
    """Does it refuse to append, to read, to overwrite and to delete, for its clock?"""
    with pytest.raises(ClockUnsafe):
        client.append("q", "wrong")
    with pytest.raises(ClockUnsafe):
        client.read("q")
    with pytest.raises(ClockUnsafe):
        client.put("q", stored, "wrong")
    with pytest.raises(ClockUnsafe):
        client.delete("q", stored)
    return True


@pytest.mark.parametrize("seconds", [-5.0, -0.5, 0.5, 5.0])
def test_a_server_whose_clock_is_wrong_refuses_until_it_is_right(
    fleet: Fleet, seconds: float, figures: Figures
) -> None:
    wrong, right = fleet.clients()
    stored = right.append("q", "right")
    with fleet.stepped(0, seconds):
        assert refuses(wrong, stored)
        assert fleet.nodes[0].get("/__heartbeat__").status_code == 503
        right.append("q", "right")
        right.read("q")

    back = wrong.append("q", "right")
    wait_until_readable(right, "q", back.id)
    bodies = {message.text for message in everything(right, "q")}

    figures("G3", clock_off_s=seconds, refused_clock=4, of_which_stored="wrong" in bodies)
    assert bodies == {"right"}
    assert fleet.nodes[0].get("/__heartbeat__").status_code == 200


def test_a_clock_that_is_off_a_little_is_taken(fleet: Fleet) -> None:
    """The doubt of a round trip to the nodes counts as well."""
    for seconds in (-0.1, 0.1):
        with fleet.stepped(0, seconds):
            fleet.client(0).append("q", "right")
            fleet.client(0).read("q")


def test_a_server_that_starts_with_a_wrong_clock_waits_for_it(fleet: Fleet) -> None:
    server = fleet.nodes[0]
    server.close()
    with fleet.stepped(0, 3.0):
        server.start()
        with pytest.raises(StorageUnavailable):
            fleet.client(0).append("q", "wrong")
    fleet.client(0).append("q", "right")
