"""Servers of one store see each other on the page of the server."""

from __future__ import annotations

from tests.support.client import Server
from tests.support.commands import done, run_in
from tests.support.on_cassandra import Delayed
from tests.support.servers import eventually
from tests.support.visitors import signed_in


def test_servers_of_one_store_see_each_other(delayed: Delayed) -> None:
    key = done(run_in(delayed.variables, None, "key", "new", "--operator", "watcher")).text.strip()
    with Server(delayed.first, key=key) as first, Server(delayed.second, key=key) as second:
        asked = {"params": {"stats": "true", "limit": 1}}
        for server in (first, second):
            eventually(lambda server=server: server.request("GET", "/v1").status_code == 200)  # type: ignore[misc]
        own = {server.request("GET", "/v1", **asked).json()["server"]["name"] for server in (first, second)}
        assert len(own) == 2

        def seen() -> set[str]:
            return {one["name"] for one in first.request("GET", "/v1", **asked).json()["servers"]}

        eventually(lambda: own <= seen())
        nodes = first.request("GET", "/v1", **asked).json()["nodes"]
        assert {node["state"] for node in nodes} == {"up"}
        assert all(node[name] for node in nodes for name in ("address", "data_centre", "rack", "version"))

    with signed_in(delayed.second.url, key) as operator:
        page = operator.get("/console/server")
        assert f">{nodes[0]['address']}</th><td>up</td>" in operator.get("/console/overview")
    assert "Servers of this store" in page
    assert [name in page for name in own] == [True, True]
