"""What /metrics says of lease groups."""

from __future__ import annotations

from pathlib import Path

from tests.support import servers
from tests.support.client import Server
from tests.support.lease_requests import step
from tests.support.servers import eventually

GAUGES = "queuey_lease_groups"
"""They are looked at now and then."""


def figures(server: Server) -> dict[str, float]:
    """Of this application and of leases, by name and further labels."""
    found, mine = {}, f'app="{server.application}"'
    for line in server.request("GET", "/metrics").text.splitlines():
        name, _, value = line.rpartition(" ")
        if (
            mine in name
            and ("lease" in name or "received" in name)
            and not any(one in name for one in ("bucket", GAUGES))
        ):
            found[name.replace(f",{mine}", "").replace(f"{{{mine}}}", "").replace(f"{mine},", "")] = float(value)
    return found


def test_what_is_received_and_settled_is_counted(fresh: Server) -> None:
    queue = fresh.queue()
    for text in "abc":
        fresh.add(queue, text)
    first, second, third = step(fresh, queue, receive={"max": 5})["messages"]
    again = [{"receipt": first["receipt"], "delay": 0}]
    step(fresh, queue, release=again, acknowledge=[second["receipt"]], extend={"receiver": "x", "visibility": 60})
    step(fresh, queue, reject=[{"receipt": third["receipt"]}], acknowledge=[first["receipt"]])
    step(fresh, queue, receive={"visibility": 0})
    step(fresh, queue, receive={"pop": True})

    found = figures(fresh)

    for name in ("dwell", "work"):
        assert 0 <= found.pop(f"queuey_lease_{name}_seconds_sum") < 3600
    assert found == {
        "queuey_messages_received_total": 5,
        'queuey_messages_delivered_total{way="lease"}': 5,
        'queuey_leases_settled_total{action="acknowledge"}': 1,
        'queuey_leases_settled_total{action="release"}': 1,
        'queuey_leases_settled_total{action="reject"}': 1,
        "queuey_lease_receipts_stale_total": 1,
        "queuey_leases_expired_total": 1,
        "queuey_lease_dwell_seconds_count": 1,
        "queuey_lease_work_seconds_count": 1,
    }


def test_what_groups_hold_is_reported(tmp_path: Path) -> None:
    with servers.shipped(tmp_path) as running, Server(running) as server:
        queue = server.queue()
        for text in "abc":
            server.add(queue, text)
        step(server, queue, receive={"max": 2, "visibility": 600})

        def gauges() -> dict[str, float]:
            lines = server.request("GET", "/metrics").text.splitlines()
            found = [line.rpartition(" ") for line in lines if line.startswith(GAUGES)]
            return {name.partition("{")[0]: float(value) for name, _, value in found}

        found = eventually(gauges, seconds=30)
    assert 0 < found.pop(f"{GAUGES}_oldest_seconds") < 3600
    assert found == {GAUGES: 1, f"{GAUGES}_held": 2, f"{GAUGES}_leased": 2, f"{GAUGES}_closed_keys": 0}
