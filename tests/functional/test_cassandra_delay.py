"""Servers over Cassandra as they are without any setting about time: readers stay behind the clock (G3, G8).

Two servers share a keyspace; what one takes, the other serves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from decimal import Decimal

import pytest

from tests.support.client import Json, Server, refused
from tests.support.lease_requests import GROUP, receive
from tests.support.servers import RunningServer, eventually

DELAY = Decimal(2)
SHOWN_SECONDS = 90
"""A deadline: a message is shown after the read delay, unless the machine is slow."""


def shown(server: Server, queue: str, **params: str) -> list[Json]:
    """What the queue has as soon as it shows something."""
    return eventually(lambda: server.read(queue, **params), seconds=SHOWN_SECONDS)


@pytest.fixture(params=[{}, {"order": "descending"}, {"until": "4000000000"}], ids=["rising", "falling", "until later"])
def look(request: pytest.FixtureRequest, second: Server) -> Callable[[str], tuple[Decimal, list[str]]]:
    """One look at a queue through the second server: the watermark, and the ids shown."""

    def at(queue: str) -> tuple[Decimal, list[str]]:
        answer = second.get(queue, **request.param)
        assert answer.status_code == 200, answer.text
        return Decimal(answer.headers["Queuey-Watermark"]), [found["message_id"] for found in answer.json()["messages"]]

    return at


def test_a_message_is_shown_when_the_watermark_has_passed_it_and_not_before(
    first: Server, look: Callable[[str], tuple[Decimal, list[str]]]
) -> None:
    name = first.queue()
    added = first.add(name)

    def passed() -> bool:
        watermark, ids = look(name)
        assert ids == ([added["key"]] if Decimal(added["timestamp"]) <= watermark else [])
        return bool(ids)

    assert eventually(passed, seconds=SHOWN_SECONDS)


def test_the_watermark_is_behind_the_clock_by_the_read_delay(first: Server) -> None:
    name = first.queue()
    before = Decimal(time.time())

    watermark = Decimal(first.get(name).headers["Queuey-Watermark"])

    # Within a millisecond: ids are drawn ahead of the clock, by a tick each, if many are drawn at once.
    assert before - DELAY - Decimal("0.001") <= watermark <= Decimal(time.time()) - DELAY + Decimal("0.001")


def test_a_survey_and_a_lease_group_know_of_messages_that_nobody_is_shown_yet(first: Server, second: Server) -> None:
    name = first.queue()

    def left() -> list[bool]:
        return [one["more"] for one in second.call("GET", name, "leases", GROUP).json()["partitions"]]

    assert (receive(second, name), left()) == ([], [False])
    key = first.add(name)["key"]

    told = second.get(name, survey="true", unseen="true", count=1)
    (hidden,) = told.json()["spans"]
    assert (hidden["newest"], hidden["messages"], left()) == (key, 1, [True])
    shown(first, name)
    (message,) = receive(second, name)
    assert (message["message_id"], left()) == (key, [False])
    (read,) = second.read(name, cursor=told.headers["Queuey-Cursor"])
    assert read["message_id"] == key


def test_a_message_is_fetched_by_id_at_once_through_any_server(first: Server, second: Server) -> None:
    name = first.queue()

    for server, other in ((first, second), (second, first)):
        key = server.add(name, "at once")["key"]
        assert [message["body"] for message in other.fetch(name, key)] == ["at once"]


def test_a_cursor_reads_on_behind_the_delay_through_any_server(first: Server, second: Server) -> None:
    name = first.queue()
    cursor = first.get(name).headers["Queuey-Cursor"]
    first.fill(name, "a", "b", "c")

    shown(second, name)
    answer = second.get(name, cursor=cursor, limit=2)
    rest = first.get(name, cursor=answer.headers["Queuey-Cursor"])

    assert [message["body"] for message in answer.json()["messages"]] == ["a", "b"]
    assert [message["body"] for message in rest.json()["messages"]] == ["c"]


def test_a_message_deleted_before_it_is_shown_never_is(first: Server, second: Server) -> None:
    name = first.queue()
    doomed, kept = first.fill(name, "doomed", "kept")

    second.call("DELETE", name, doomed)

    assert [message["message_id"] for message in shown(second, name)] == [kept]
    assert first.fetch(name, doomed) == []


def test_a_put_is_late_only_behind_the_watermark(first: Server, second: Server) -> None:
    name = first.queue()
    key = first.add(name, "first")["key"]

    early = second.call("PUT", name, key, data=b"second")
    (seen,) = shown(first, name)
    late = second.call("PUT", name, key, data=b"third")

    assert early.json() == {"status": "ok"}
    assert (seen["message_id"], seen["body"]) == (key, "second")
    assert late.json() == {"status": "ok", "late": True}
    assert first.bodies(name) == ["third"]


@pytest.mark.parametrize("ttl", [1, 2])
def test_a_message_that_would_be_gone_before_it_is_shown_is_refused(first: Server, ttl: int) -> None:
    name = first.queue()
    key = first.add(name)["key"]

    single = first.post(name, x_ttl=ttl)
    batch = first.post_batch(name, {"body": "a"}, {"body": "b", "ttl": ttl}, {"body": "c", "ttl": ttl + 1})
    put = first.call("PUT", name, key, data=b"x", headers={"X-TTL": str(ttl)})

    for answer, keys in ((single, {"ttl"}), (batch, {"1.ttl", "2.ttl"} if ttl == 1 else {"1.ttl"}), (put, {"ttl"})):
        assert "at least 3 seconds" in " ".join(refused(answer, 400, *keys).values())
    assert first.info(name)["depth"] == 1


def test_a_message_is_there_until_its_ttl_is_over_and_then_nowhere(first: Server, second: Server) -> None:
    """G8, by the real clock: it is never gone early, and gone in the end."""
    name = first.queue()
    added = first.add(name, x_ttl=3)

    assert eventually(lambda: second.fetch(name, added["key"]) == [], seconds=SHOWN_SECONDS)

    assert Decimal(time.time()) >= Decimal(added["timestamp"]) + 3
    assert second.info(name)["depth"] == 0
    assert second.read(name) == []


def test_a_scheduled_message_is_shown_after_its_moment_and_the_delay(first: Server, second: Server) -> None:
    name = first.queue()
    first.add(name, "later", x_delay=1)
    first.add(name, "now")
    moments: dict[str, Decimal] = {}

    def all_there() -> bool:
        answer = second.get(name)
        for message in answer.json()["messages"]:
            moments.setdefault(message["body"], Decimal(answer.headers["Queuey-Watermark"]))
            assert Decimal(message["timestamp"]) <= Decimal(answer.headers["Queuey-Watermark"])
        return len(moments) == 2

    assert eventually(all_there, seconds=SHOWN_SECONDS)
    assert second.bodies(name) == ["now", "later"]


def test_what_the_delay_is_made_of_is_measured(first: Server) -> None:
    def measured() -> dict[str, float]:
        lines = first.request("GET", "/metrics").text.splitlines()
        return {
            line.split()[0]: float(line.split()[1]) for line in lines if line and line[0] != "#" and "{" not in line
        }

    samples = measured()
    eventually(lambda: measured()["queuey_watermark_age_seconds"] == pytest.approx(2, abs=0.1))
    eventually(lambda: 0 < measured()["queuey_clock_skew_seconds"] < 0.25)
    assert (samples["queuey_storage_problems"], samples["queuey_storage_warnings"]) == (0, 1)


def test_the_heartbeat_warns_of_a_cluster_that_is_weaker_than_promised(first: Server) -> None:
    """One copy, on a node that syncs before it answers: it survives a crash, and no more."""
    answer = first.request("GET", "/__heartbeat__")

    assert (answer.status_code, answer.text) == (200, "OK")
    assert "has 1 copy in datacenter1: an acknowledged message survives a crash" in answer.headers["Queuey-Warnings"]
    assert "write_budget_ms" not in answer.headers["Queuey-Warnings"]


def test_the_heartbeat_warns_of_a_server_that_does_not_check_its_appends(cassandra_server: RunningServer) -> None:
    with Server(cassandra_server) as at_once:
        answer = at_once.request("GET", "/__heartbeat__")

    assert answer.status_code == 200
    assert "[cassandra] write_budget_ms = 0: appends are not checked" in answer.headers["Queuey-Warnings"]
