"""Reading messages (queuey-api-v1 sections 5.3 and 5.4)."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.support.client import Server, refused


def test_a_message_has_exactly_four_members(server: Server) -> None:
    name = server.queue(partitions=2)
    added = server.add(name, "hi", x_partition=2)

    answer = server.get(name, partitions=2)

    assert answer.json() == {
        "status": "ok",
        "messages": [
            {"message_id": added["key"], "timestamp": added["timestamp"], "partition": 2, "body": "hi"},
        ],
    }


def test_without_partitions_only_partition_1_is_read(server: Server) -> None:
    name = server.queue(partitions=3)
    for partition in (1, 2, 3):
        server.fill(name, f"in {partition}", partition=partition)

    assert server.bodies(name) == ["in 1"]


def test_messages_are_grouped_by_partition_in_the_order_asked(server: Server) -> None:
    name = server.queue(partitions=3)
    for text in ("a", "b"):
        for partition in (1, 2, 3):
            server.fill(name, f"{text}{partition}", partition=partition)

    assert server.bodies(name, partitions="3,1,2") == ["a3", "b3", "a1", "b1", "a2", "b2"]
    assert server.bodies(name, partitions="3,1", order="descending") == ["b3", "a3", "b1", "a1"]


def test_a_partition_asked_for_twice_comes_twice(server: Server) -> None:
    name = server.queue()
    server.fill(name, "a")

    assert server.bodies(name, partitions="1,1") == ["a", "a"]


@pytest.mark.parametrize("partitions", ["0", "4", "200", "0,4", "99999"])
def test_a_partition_the_queue_does_not_have_gives_nothing(server: Server, partitions: str) -> None:
    name = server.queue(partitions=3)
    server.fill(name, "a")

    assert server.read(name, partitions=partitions) == []
    assert server.bodies(name, partitions=f"{partitions},1") == ["a"]


def test_empty_partitions_give_an_empty_answer_and_not_partition_1(server: Server) -> None:
    name = server.queue()
    server.fill(name, "a")

    assert server.read(name, partitions="") == []


@pytest.mark.parametrize("partitions", ["x", "1,x", "-1", "1.5", "1;2", "1,,2", "alle"])
def test_a_bad_list_of_partitions_is_refused(server: Server, partitions: str) -> None:
    refused(server.get(server.queue(), partitions=partitions), 400, "partitions")


@pytest.mark.parametrize("absent", ["since", "limit", "order", "until", "cursor", "columns", "info"])
def test_an_empty_parameter_is_an_absent_one(server: Server, absent: str) -> None:
    name = server.queue()
    server.fill(name, "a")

    assert server.bodies(name, **{absent: ""}) == ["a"]


def test_unknown_parameters_are_ignored(server: Server) -> None:
    assert server.get(server.queue(), colour="blue").status_code == 200


def test_order_is_ascending_unless_asked(server: Server) -> None:
    name = server.queue()
    server.fill(name, "a", "b", "c")

    assert server.bodies(name) == ["a", "b", "c"]
    assert server.bodies(name, order="ascending") == ["a", "b", "c"]
    assert server.bodies(name, order="descending") == ["c", "b", "a"]


def test_the_limit_is_per_partition(server: Server) -> None:
    name = server.queue(partitions=2)
    server.fill(name, "a1", "b1", "c1", partition=1)
    server.fill(name, "a2", partition=2)

    assert server.bodies(name, partitions="1,2", limit=2) == ["a1", "b1", "a2"]
    assert server.bodies(name, partitions="1,2", limit=1, order="descending") == ["c1", "a2"]


def test_without_a_limit_100_come_per_partition(server: Server) -> None:
    name = server.queue(partitions=2)
    for partition in (1, 2):
        server.fill(name, *(str(n) for n in range(101)), partition=partition)

    assert len(server.read(name)) == 100
    assert len(server.read(name, partitions="1,2")) == 200


def test_a_limit_of_1000_gives_1000(server: Server) -> None:
    name = server.queue()
    server.fill(name, *(str(n) for n in range(1001)))

    assert server.bodies(name, limit=1000) == [str(n) for n in range(1000)]


def test_since_an_id_includes_that_message(server: Server) -> None:
    name = server.queue()
    _, second, _ = server.fill(name, "a", "b", "c")

    assert server.bodies(name, since=second) == ["b", "c"]


def test_since_a_timestamp_includes_the_message_of_that_time(server: Server) -> None:
    name = server.queue()
    server.fill(name, "a", "b", "c")
    second = server.read(name)[1]["timestamp"]

    assert server.bodies(name, since=second) == ["b", "c"]


def test_a_timestamp_a_tick_later_leaves_the_message_out(server: Server) -> None:
    name = server.queue()
    server.fill(name, "a")
    (first,) = server.read(name)

    later = Decimal(first["timestamp"]) + Decimal("0.0000001")

    assert server.read(name, since=str(later)) == []


def test_descending_since_goes_back_from_there(server: Server) -> None:
    name = server.queue()
    _, second, _ = server.fill(name, "a", "b", "c")
    timestamp = server.read(name)[1]["timestamp"]

    assert server.bodies(name, since=second, order="descending") == ["b", "a"]
    assert server.bodies(name, since=timestamp, order="descending") == ["b", "a"]
    assert server.bodies(name, since=second, order="descending", limit=1) == ["b"]


def test_since_later_than_everything(server: Server) -> None:
    name = server.queue()
    server.fill(name, "a", "b")

    assert server.read(name, since="4000000000") == []
    assert server.bodies(name, since="4000000000", order="descending") == ["b", "a"]


@pytest.mark.parametrize("since", ["0", "1", "1000000000.5"])
def test_since_earlier_than_everything(server: Server, since: str) -> None:
    name = server.queue()
    server.fill(name, "a", "b")

    assert server.bodies(name, since=since) == ["a", "b"]
    assert server.read(name, since=since, order="descending") == []


def test_the_id_in_since_need_not_exist_any_more(server: Server) -> None:
    name = server.queue()
    _, second, _ = server.fill(name, "a", "b", "c")
    server.call("DELETE", name, second)

    assert server.bodies(name, since=second) == ["c"]
    assert server.bodies(name, since=second, order="descending") == ["a"]


def test_since_takes_dashes_and_upper_case(server: Server) -> None:
    name = server.queue()
    _, second = server.fill(name, "a", "b")
    dashed = "-".join((second[:8], second[8:12], second[12:16], second[16:20], second[20:]))

    for form in (second.upper(), dashed, dashed.upper()):
        assert server.bodies(name, since=form) == ["b"]


@pytest.mark.parametrize("since", ["1795236650", "1795236650.0", "1795236650.0128320", "0", "0.0"])
def test_since_takes_digits_with_an_optional_fraction(server: Server, since: str) -> None:
    assert server.get(server.queue(), since=since).status_code == 200


def test_paging_by_the_last_id_and_dropping_it_meets_every_message_once(server: Server) -> None:
    name = server.queue()
    bodies = [str(n) for n in range(25)]
    server.fill(name, *bodies)

    seen: list[str] = []
    since: dict[str, str] = {}
    while True:
        page = [m for m in server.read(name, limit=7, **since) if m["message_id"] != since.get("since")]
        if not page:
            break
        seen += [message["body"] for message in page]
        since = {"since": page[-1]["message_id"]}

    assert seen == bodies


def test_a_limit_counts_only_what_is_there_to_see(server: Server) -> None:
    name = server.queue()
    ids = server.fill(name, *(str(n) for n in range(20)))
    server.call("DELETE", name, ",".join(ids[:10]))

    assert server.bodies(name, limit=5) == ["10", "11", "12", "13", "14"]


def test_what_was_acknowledged_is_read_at_once(server: Server) -> None:
    name = server.queue(consistency="very_strong")

    for number in range(30):
        server.add(name, str(number))
        assert server.bodies(name, order="descending", limit=1) == [str(number)]


def test_a_queue_without_messages_reads_empty(server: Server) -> None:
    assert server.get(server.queue()).json() == {"status": "ok", "messages": []}
