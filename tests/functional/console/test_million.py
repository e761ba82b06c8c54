"""A million queues in the console: it looks at those of a page, and keeps none of the others in memory."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from uuid import uuid4

import apsw
import pytest

from queuey.storage.sqlite.checked_rows import with_checksum
from queuey.storage.sqlite.statements import SQL
from tests.support import servers
from tests.support.client import Server
from tests.support.costs import Costs
from tests.support.servers import APPLICATIONS
from tests.support.visitors import signed_in

QUEUES = 1_000_000
VISITS = 200
MOST_MIB = 20
KEY = APPLICATIONS["queuey"][0]


def make_queues(file: Path) -> None:
    """As many queues as one was made by the server."""
    with closing(apsw.Connection(str(file))) as connection, connection:
        (first,) = connection.execute("select * from queues where application = 'queuey' and name = 'first'").fetchall()
        application, _, _, *settings, _ = first
        rows = ((application, f"q{at:07d}", uuid4().bytes, *settings) for at in range(1, QUEUES + 1))
        connection.executemany(SQL["queue_insert"], map(with_checksum, rows))


@pytest.mark.long
def test_a_million_queues_take_no_memory_and_each_is_found(tmp_path: Path) -> None:
    with servers.shipped(tmp_path, name="before") as running, Server(running) as v1:
        v1.call("POST", data={"queue_name": "first"})
    make_queues(tmp_path / "data" / "queuey.db")

    with servers.shipped(tmp_path, name="million") as running:
        costs = Costs(running.pid)
        with signed_in(running.url, KEY) as visitor:
            visitor.get("/console/a/queuey")
            before = costs.rss_mb  # with the program of the console, which takes the same for one queue
            for number in range(1, QUEUES, QUEUES // VISITS):
                page = visitor.get(f"/console/a/queuey?prefix=q&offset=q{number:07d}")
                assert f">q{number:07d}<" in page
                assert f">q{number + 24:07d}<" in page
                assert f"offset=q{number + 25:07d}" in page
            assert ">q0999999<" in visitor.get("/console/a/queuey?prefix=q099999")
            assert "appended" in visitor.get("/console/overview/queuey").lower()
            visitor.get("/console/a/queuey?sort=depth")
        grown = costs.rss_mb - before

    assert grown < MOST_MIB
