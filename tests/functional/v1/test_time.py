"""What depends on time: TTL, delivery, idempotency, a clock that steps (queuey-api-v1 sections 6 and 7, G3, G8, G13).

The clock is the test's own; nobody waits.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.support.client import Server
from tests.support.in_process import Timed, timed_server

THREE_DAYS = 259200
DAY = 86400


@pytest.fixture(params=["sqlite", "memory"])
def timed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Timed]:
    with timed_server(tmp_path, request.param) as found:
        yield found


def lives(timed: Timed, queue: str, seconds: float) -> None:
    """Whatever was just added to a queue is there until its TTL is over, and never after it and a second."""
    assert len(timed.server.read(queue)) == 1
    timed.clock.advance(seconds - 0.5)
    assert len(timed.server.read(queue)) == 1
    timed.clock.advance(1.5)
    assert timed.server.read(queue) == []
    assert timed.server.info(queue)["depth"] == 0


@pytest.mark.parametrize("headers", [{}, {"x_ttl": ""}])
def test_a_message_lives_three_days_unless_asked(timed: Timed, headers: dict[str, str]) -> None:
    name = timed.server.queue()
    timed.server.add(name, **headers)

    lives(timed, name, THREE_DAYS)


@pytest.mark.parametrize("ttl", [1, 2, 3600, THREE_DAYS + 1, 1 << 25])
def test_a_message_lives_for_its_ttl(timed: Timed, ttl: int) -> None:
    single, batch = timed.server.queue(), timed.server.queue()

    timed.server.add(single, x_ttl=ttl)
    lives(timed, single, ttl)
    timed.server.add_batch(batch, {"body": "x", "ttl": ttl})
    lives(timed, batch, ttl)


def test_a_message_of_a_batch_lives_three_days_unless_asked(timed: Timed) -> None:
    name = timed.server.queue()
    timed.server.add_batch(name, {"body": "x"})

    lives(timed, name, THREE_DAYS)


@pytest.mark.parametrize(("headers", "seconds"), [({}, THREE_DAYS), ({"X-TTL": "60"}, 60)])
def test_put_begins_a_ttl_anew_that_counts_from_now(timed: Timed, headers: dict[str, str], seconds: int) -> None:
    name = timed.server.queue()
    key = timed.server.add(name, x_ttl=1000)["key"]
    timed.clock.advance(900)

    timed.server.call("PUT", name, key, data=b"x", headers=headers)

    lives(timed, name, seconds)


def test_an_expired_message_is_nowhere(timed: Timed) -> None:
    name = timed.server.queue()
    short = timed.server.add(name, "short", x_ttl=10)["key"]
    timed.server.add(name, "long", x_ttl=1000)
    timed.clock.advance(11)

    assert timed.server.bodies(name) == ["long"]
    assert timed.server.bodies(name, limit=1) == ["long"]
    assert timed.server.bodies(name, since=short) == ["long"]
    assert timed.server.fetch(name, short) == []
    assert timed.server.info(name)["depth"] == 1
    counted = timed.server.call("GET", params={"include_count": "true", "offset": name, "limit": 1}).json()
    assert counted["queues"][0]["count"] == 1


def test_an_expired_message_can_be_put_anew(timed: Timed) -> None:
    name = timed.server.queue()
    key = timed.server.add(name, "old", x_ttl=10)["key"]
    timed.clock.advance(11)

    timed.server.call("PUT", name, key, data=b"new")

    assert timed.server.bodies(name) == ["new"]


@pytest.mark.parametrize("consistency", ["weak", "strong", "very_strong"])
def test_a_single_store_has_no_read_delay(timed: Timed, consistency: str) -> None:
    name = timed.server.queue(consistency=consistency)

    for number in range(5):
        timed.server.add(name, str(number))
        assert timed.server.bodies(name)[-1] == str(number)


@pytest.mark.parametrize("form", ["delay", "deliver_at"])
@pytest.mark.parametrize("batch", [False, True])
def test_a_scheduled_message_is_seen_from_its_moment_on(timed: Timed, form: str, batch: bool) -> None:
    name = timed.server.queue()
    watermark = Decimal(timed.server.get(name).headers["Queuey-Watermark"])
    value = "60" if form == "delay" else str(watermark + 60)
    if batch:
        timed.server.add_batch(name, {"body": "later", form: value})
    else:
        timed.server.add(name, "later", **{f"x_{form}": value})

    assert timed.server.read(name) == []
    timed.clock.advance(59.9)
    assert timed.server.read(name) == []
    timed.clock.advance(0.2)
    assert timed.server.bodies(name) == ["later"]
    assert timed.server.info(name)["scheduled"] == 0


def test_a_ttl_counts_from_the_moment_a_message_is_due(timed: Timed) -> None:
    name = timed.server.queue()
    timed.server.add(name, x_delay=1000, x_ttl=10)

    timed.clock.advance(1001)

    lives(timed, name, 9)


def test_scheduled_messages_come_in_the_order_of_their_moments(timed: Timed) -> None:
    name = timed.server.queue()
    for delay in (30, 10, 20):
        timed.server.add(name, str(delay), x_delay=delay)
    timed.server.add(name, "now")
    cursor = timed.server.get(name).headers["Queuey-Cursor"]

    timed.clock.advance(31)

    assert timed.server.bodies(name) == ["now", "10", "20", "30"]
    assert timed.server.bodies(name, cursor=cursor) == ["10", "20", "30"]


def scheduled(timed: Timed, queue: str, **params: Any) -> tuple[list[tuple[int, str]], str | None]:
    """Scheduled messages, by partition and id, and the address of the next page."""
    answer = timed.server.get(queue, scheduled="true", **params)
    assert answer.status_code == 200, answer.text
    listed = [(entry["partition"], entry["message_id"]) for entry in answer.json()["messages"]]
    return listed, answer.links.get("next", {}).get("url")


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_of_scheduled_messages_pass_over_none_and_repeat_none(timed: Timed, limit: int) -> None:
    name = timed.server.queue(partitions=3)
    first = timed.server.add(name, x_delay=10, x_partition=2)["key"]
    later = timed.server.add(name, x_delay=20, x_partition=1)["key"]
    timed.server.call("PUT", name, f"1:{first},3:{first},3:{later}", data=b"x")
    seen: list[tuple[int, str]] = []

    following: str | None = ""
    while following is not None:
        asked = dict(parse_qsl(urlsplit(following).query)) | {"scheduled": "true", "limit": str(limit)}
        page, following = scheduled(timed, name, **{key: asked[key] for key in asked if key != "scheduled"})
        seen += page
        assert len(seen) <= 5

    assert seen == [(1, first), (2, first), (3, first), (1, later), (3, later)]


def test_scheduled_messages_start_at_a_moment_an_id_or_a_message(timed: Timed) -> None:
    name = timed.server.queue(partitions=3)
    first = timed.server.add(name, x_delay=10, x_partition=2)
    later = timed.server.add(name, x_delay=20, x_partition=1)["key"]
    timed.server.call("PUT", name, f"1:{first['key']}", data=b"x")
    both, second = [(1, first["key"]), (2, first["key"]), (1, later)], [(2, first["key"]), (1, later)]

    for offset in (first["key"], first["timestamp"], f"1:{first['key']}"):
        assert scheduled(timed, name, offset=offset) == (both, None)
    assert scheduled(timed, name, offset=f"2:{first['key']}") == (second, None)
    assert scheduled(timed, name, offset=f"3:{first['key']}") == ([(1, later)], None)
    for wrong in ("x", "0:" + later, "201:" + later, f"1:{later},2:{later}", "1:"):
        assert timed.server.get(name, scheduled="true", offset=wrong).status_code == 400


def test_a_cancelled_message_never_comes(timed: Timed) -> None:
    name = timed.server.queue()
    key = timed.server.add(name, x_delay=60)["key"]

    timed.server.call("DELETE", name, key)
    timed.clock.advance(120)

    assert timed.server.read(name) == []


def test_a_scheduled_message_put_again_keeps_its_moment(timed: Timed) -> None:
    name = timed.server.queue()
    key = timed.server.add(name, "old", x_delay=60)["key"]

    timed.server.call("PUT", name, key, data=b"new")

    assert timed.server.read(name) == []
    timed.clock.advance(61)
    assert timed.server.bodies(name) == ["new"]


def test_an_idempotency_key_is_good_for_a_day(timed: Timed) -> None:
    name = timed.server.queue()
    first = timed.server.add(name, "x", idempotency_key="k")["key"]

    timed.clock.advance(DAY - 1)
    assert timed.server.add(name, "x", idempotency_key="k")["key"] == first

    timed.clock.advance(3600)
    assert timed.server.add(name, "x", idempotency_key="k")["key"] != first


def test_a_repeat_answers_the_same_also_after_its_message_expired(timed: Timed) -> None:
    name = timed.server.queue()
    first = timed.server.post(name, "x", idempotency_key="k", x_ttl=10).json()
    timed.clock.advance(60)

    again = timed.server.post(name, "x", idempotency_key="k", x_ttl=10)

    assert again.json() == first
    assert timed.server.read(name) == []


def test_ids_rise_and_the_watermark_never_falls_when_the_clock_is_stepped_back(timed: Timed) -> None:
    name = timed.server.queue()
    seen: list[dict[str, Any]] = []
    watermarks: list[Decimal] = []
    for step in (0, -5, 3, -1000, 0.0000001):
        timed.clock.step(step)
        seen.append(timed.server.add(name, str(len(seen))))
        watermarks.append(Decimal(timed.server.get(name).headers["Queuey-Watermark"]))
        assert timed.server.bodies(name) == [str(number) for number in range(len(seen))]

    times = [uuid.UUID(message["key"]).time for message in seen]
    assert times == sorted(set(times))
    assert watermarks == sorted(watermarks)


def test_many_messages_of_one_instant_have_an_order(timed: Timed) -> None:
    """The clock stands still; the ids rise nevertheless."""
    name = timed.server.queue()
    bodies = [str(number) for number in range(300)]

    timed.server.fill(name, *bodies)
    for body in ("a", "b", "c"):
        timed.server.add(name, body)

    assert timed.server.bodies(name, limit=1000) == [*bodies, "a", "b", "c"]


def test_a_queue_made_long_ago_tells_when(timed: Timed) -> None:
    server: Server = timed.server
    name = server.queue()
    created = server.settings(name)["created"]
    timed.clock.advance(400 * DAY)

    server.create(name)
    server.call("PUT", name, data={"partitions": 2})

    assert server.settings(name)["created"] == created
