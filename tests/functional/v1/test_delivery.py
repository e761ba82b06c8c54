"""What appends gained over the first Queuey: keys, delivery times, idempotency."""

from __future__ import annotations

import threading
import time
from decimal import Decimal
from typing import Any

import pytest

from tests.support.client import Server, new_name, refused
from tests.support.servers import RunningServer, eventually

YEAR_AND_A_DAY = 366 * 86400


def test_one_key_goes_to_one_partition(server: Server) -> None:
    name = server.queue(partitions=50)

    single = {server.add(name, x_key="customer 7")["partition"] for _ in range(5)}
    batch = {message["partition"] for message in server.add_batch(name, *[{"body": "x", "key": "customer 7"}] * 5)}

    assert len(single) == 1
    assert batch == single


def test_keys_are_spread_over_the_partitions(server: Server) -> None:
    name = server.queue(partitions=5)

    added = server.add_batch(name, *({"body": "x", "key": f"k{number}"} for number in range(200)))

    assert {message["partition"] for message in added} == {1, 2, 3, 4, 5}


def test_a_key_chooses_alike_everywhere(all_servers: list[RunningServer]) -> None:
    name = new_name()
    chosen = []
    for running in all_servers:
        with Server(running) as server:
            server.create(name, partitions=100)
            chosen.append([server.add(name, x_key=key)["partition"] for key in ("a", "b", "7", "a b")])

    assert chosen == [chosen[0]] * len(all_servers)


def test_a_key_is_given_back(server: Server) -> None:
    name = server.queue()
    server.add(name, "a", x_key="k1")
    server.add_batch(name, {"body": "b", "key": "k2"}, {"body": "c"})

    assert [message.get("key") for message in server.read(name)] == ["k1", "k2", None]


def test_a_key_and_a_partition_exclude_each_other(server: Server) -> None:
    name = server.queue(partitions=2)

    assert server.post(name, x_key="k", x_partition=1).status_code == 400
    assert server.post_batch(name, {"body": "x", "key": "k", "partition": 1}).status_code == 400
    assert server.everything(name) == []


def test_a_delayed_message_has_the_time_it_is_due(server: Server) -> None:
    name = server.queue()

    before = time.time()
    added = server.add(name, "later", x_delay=3600)
    after = time.time()

    assert before + 3600 - 1 <= float(added["timestamp"]) <= after + 3600 + 1
    assert server.read(name) == []
    assert server.read(name, order="descending") == []
    assert [message["body"] for message in server.fetch(name, added["key"])] == ["later"]


def test_a_message_for_a_moment_has_that_moment(server: Server) -> None:
    name = server.queue()
    moment = f"{int(time.time()) + 5000}.1234567"

    assert server.add(name, x_deliver_at=moment)["timestamp"] == moment
    assert server.add_batch(name, {"body": "x", "deliver_at": moment})[0]["timestamp"] == moment


def test_a_batch_may_mix_what_is_due_now_and_later(server: Server) -> None:
    name = server.queue()

    server.add_batch(name, {"body": "later", "delay": 3600}, {"body": "now"}, {"body": "now too", "delay": 0})

    assert server.bodies(name) == ["now", "now too"]
    assert server.info(name)["scheduled"] == 1


def test_delete_cancels_a_scheduled_message(server: Server) -> None:
    name = server.queue()
    key = server.add(name, x_delay=3600)["key"]

    server.call("DELETE", name, key)

    assert server.fetch(name, key) == []
    assert (server.info(name)["depth"], server.info(name)["scheduled"]) == (0, 0)


def test_a_message_comes_when_it_is_due_and_not_before(server: Server) -> None:
    name = server.queue()
    due = server.add(name, "now", x_delay="0.4")
    timestamp = Decimal(due["timestamp"])

    def look() -> list[str]:
        answer = server.get(name)
        found = [message["body"] for message in answer.json()["messages"]]
        assert bool(found) == (Decimal(answer.headers["Queuey-Watermark"]) >= timestamp)
        return found

    assert eventually(look) == ["now"]


def test_a_reader_by_cursor_meets_a_scheduled_message_once(server: Server) -> None:
    name = server.queue()
    server.add(name, "later", x_delay="0.4")
    server.add(name, "now")
    seen: list[str] = []
    cursor: dict[str, str] = {}

    def look() -> bool:
        answer = server.get(name, **cursor)
        seen.extend(message["body"] for message in answer.json()["messages"])
        cursor["cursor"] = answer.headers["Queuey-Cursor"]
        return "later" in seen

    assert eventually(look)
    assert sorted(seen) == ["later", "now"]


def test_messages_of_one_moment_keep_the_order_of_their_appends(server: Server) -> None:
    name = server.queue()
    moment = f"{time.time() + 1.5:.7f}"
    for number in range(10):
        server.add(name, str(number), x_deliver_at=moment)

    assert eventually(lambda: server.bodies(name)) == [str(number) for number in range(10)]


@pytest.mark.parametrize("moment", ["0", "1", "1000000000.5"])
def test_a_moment_past_is_now(server: Server, moment: str) -> None:
    name = server.queue()
    first = server.add(name, "first")

    added = server.add(name, "second", x_deliver_at=moment)

    assert Decimal(added["timestamp"]) > Decimal(first["timestamp"])
    assert server.bodies(name) == ["first", "second"]


@pytest.mark.parametrize("delay", ["-1", "x", "NaN", "inf", "1e3", str(YEAR_AND_A_DAY + 1), "9" * 400])
def test_a_bad_delay_is_refused(server: Server, delay: str) -> None:
    name = server.queue()

    refused(server.post(name, x_delay=delay), 400, "delay")
    refused(server.post_batch(name, {"body": "x", "delay": delay}), 400, "0.delay")
    assert server.info(name)["depth"] == 0


def test_a_delay_of_366_days_is_taken(server: Server) -> None:
    assert server.post(server.queue(), x_delay=YEAR_AND_A_DAY).status_code == 201


@pytest.mark.parametrize("moment", ["-1", "x", "NaN", "1e10", "2030-01-01", "99999999999", "9" * 400])
def test_a_bad_moment_is_refused(server: Server, moment: str) -> None:
    name = server.queue()

    refused(server.post(name, x_deliver_at=moment), 400, "deliver_at")
    refused(server.post_batch(name, {"body": "x", "deliver_at": moment}), 400, "0.deliver_at")
    assert server.info(name)["depth"] == 0


def test_a_delay_and_a_moment_exclude_each_other(server: Server) -> None:
    moment = str(int(time.time()) + 100)

    assert server.post(server.queue(), x_delay=1, x_deliver_at=moment).status_code == 400


def test_an_append_repeated_with_its_key_stores_once_and_answers_the_same(server: Server) -> None:
    name = server.queue(partitions=20)

    first = server.post(name, "once", idempotency_key="k-1")
    second = server.post(name, "once", idempotency_key="k-1")

    assert first.status_code == second.status_code == 201
    assert first.json() == second.json()
    assert "Idempotency-Replayed" not in first.headers
    assert second.headers["Idempotency-Replayed"] == "true"
    assert server.everything(name) == ["once"]


def test_a_batch_repeated_with_its_key_stores_once(server: Server) -> None:
    name = server.queue(partitions=20)
    entries = [{"body": str(number)} for number in range(10)]

    first = server.post_batch(name, *entries, idempotency_key="k-1")
    second = server.post_batch(name, *entries, idempotency_key="k-1")

    assert first.json() == second.json()
    assert second.headers["Idempotency-Replayed"] == "true"
    assert sorted(server.everything(name)) == sorted(str(number) for number in range(10))


def test_entries_of_a_batch_may_have_their_own_keys(server: Server) -> None:
    name = server.queue()

    first = server.add_batch(name, {"body": "a", "idempotency_key": "1"}, {"body": "b", "idempotency_key": "2"})
    second = server.add_batch(name, {"body": "b", "idempotency_key": "2"}, {"body": "c", "idempotency_key": "3"})

    assert second[0] == first[1]
    assert server.bodies(name) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "changed",
    [
        {"body": "another"},
        {"body": "once", "x_ttl": 77},
        {"body": "once", "content_type": "text/plain"},
        {"body": "once", "x_key": "k"},
        {"body": "once", "x_partition": 2},
    ],
)
def test_a_key_used_for_something_else_is_refused(server: Server, changed: dict[str, Any]) -> None:
    name = server.queue(partitions=2)
    server.post(name, "once", idempotency_key="k-1")

    refused(server.post(name, idempotency_key="k-1", **changed), 422, "KeyReused")

    assert server.everything(name) == ["once"]


def test_a_key_is_good_for_its_own_queue_only(server: Server) -> None:
    first, second = server.queue(), server.queue()

    server.post(first, "a", idempotency_key="k-1")
    answer = server.post(second, "b", idempotency_key="k-1")

    assert answer.status_code == 201
    assert server.bodies(second) == ["b"]


def test_a_key_of_a_queue_deleted_and_made_anew_is_forgotten(server: Server) -> None:
    name = server.queue()
    server.post(name, "a", idempotency_key="k-1")
    server.call("DELETE", name)
    server.create(name)

    answer = server.post(name, "b", idempotency_key="k-1")

    assert answer.status_code == 201
    assert server.bodies(name) == ["b"]


def test_a_refused_append_does_not_use_up_its_key(server: Server) -> None:
    name = server.queue()

    refused(server.post(name, "x", idempotency_key="k-1", x_partition=9), 400, "partition")

    assert server.post(name, "x", idempotency_key="k-1").status_code == 201


def test_a_key_is_kept_after_its_message_was_deleted(server: Server) -> None:
    name = server.queue()
    key = server.add(name, "a", idempotency_key="k-1")["key"]
    server.call("DELETE", name, key)

    assert server.add(name, "a", idempotency_key="k-1")["key"] == key
    assert server.read(name) == []


def test_one_key_at_once_from_many_stores_once(server: Server, running: RunningServer) -> None:
    name = server.queue(partitions=10)
    answers: list[tuple[int, Any]] = []

    def append() -> None:
        with Server(running) as writer:
            answer = writer.post(name, "once", idempotency_key="k-1")
            answers.append((answer.status_code, answer.json().get("messages")))

    writers = [threading.Thread(target=append) for _ in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert len(answers) == 8
    assert {status for status, _ in answers} <= {201, 409}
    assert len({str(messages) for status, messages in answers if status == 201}) == 1
    assert server.everything(name) == ["once"]


@pytest.mark.parametrize("key", ["", "x" * 129, "a\x01b", "a\tb"])
def test_a_bad_idempotency_key_is_refused(server: Server, key: str) -> None:
    """As a header, control characters may be refused by the HTTP server already."""
    name = server.queue()

    answer = server.post(name, idempotency_key=key)
    batch = server.post_batch(name, {"body": "x", "idempotency_key": key})

    assert answer.status_code == 400
    if key in {"", "x" * 129}:
        refused(answer, 400, "Idempotency-Key")
    refused(batch, 400, "0.idempotency_key")
    assert server.everything(name) == []


def test_an_idempotency_key_of_128_characters_is_taken(server: Server) -> None:
    assert server.post(server.queue(), idempotency_key="x" * 128).status_code == 201
