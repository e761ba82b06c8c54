"""Several servers over one keyspace: what one changes, the others follow within ``cache_ms``; nothing depends on which was asked."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from requests import Response

from tests.support.client import Server, new_name, refused
from tests.support.servers import APPLICATIONS, eventually

FOLLOWED_SECONDS = 90
"""A deadline, for ``cache_ms`` and a slow machine."""


def follows(look: Callable[[], bool]) -> bool:
    return eventually(look, seconds=FOLLOWED_SECONDS)


def at_once(*calls: Callable[[], Response]) -> list[Response]:
    """Their answers, in their order."""
    with ThreadPoolExecutor(len(calls)) as threads:
        return [begun.result() for begun in [threads.submit(call) for call in calls]]


@pytest.fixture
def queue(first: Server, second: Server) -> str:
    """A queue that both servers have at hand."""
    name = first.queue(partitions=2)
    for server in (first, second):
        server.add(name)
    return name


def test_a_queue_made_on_one_is_used_on_the_other_at_once(first: Server, second: Server) -> None:
    """Also where it was asked for before: that something is not there is not remembered."""
    name = new_name()
    refused(second.post(name), 404, "InvalidQueueName")

    first.create(name)

    assert second.post(name).status_code == 201
    assert second.settings(name) == first.settings(name)
    assert name in [found["queue_name"] for found in second.call("GET", params={"offset": name}).json()["queues"]]


def test_a_queue_made_on_both_at_once_is_one(first: Server, second: Server) -> None:
    name = new_name()
    made = at_once(lambda: first.create(name), lambda: second.create(name))
    assert [answer.status_code for answer in made] == [201, 201]

    keys = [server.add(name)["key"] for server in (first, second)]

    assert [message["message_id"] for message in first.fetch(name, ",".join(keys))] == keys


def test_partitions_added_on_one_are_filled_on_the_other(first: Server, second: Server, queue: str) -> None:
    assert first.call("PUT", queue, data={"partitions": 5}).status_code == 200

    assert follows(lambda: second.post(queue, x_partition=5).status_code == 201)
    assert first.post(queue, x_partition=5).status_code == 201
    assert second.settings(queue)["partitions"] == 5


def test_principals_given_and_taken_on_one_are_known_to_the_other(first: Server, second: Server, queue: str) -> None:
    with second.seen_by(APPLICATIONS["other"][0]) as other:
        refused(other.get(queue), 403)

        first.call("PUT", queue, data={"principles": "app:other"})
        assert follows(lambda: other.get(queue).status_code == 200)

        first.call("PUT", queue, data={"principles": ""})
        assert follows(lambda: other.get(queue).status_code == 403)


def test_two_changes_at_once_on_two_servers_both_stay(first: Server, second: Server, queue: str) -> None:
    changed = at_once(
        lambda: first.call("PUT", queue, data={"partitions": 7}),
        lambda: second.call("PUT", queue, data={"type": "public"}),
    )
    assert [answer.status_code for answer in changed] == [200, 200]

    found = first.settings(queue)
    assert (found["partitions"], found["type"]) == (7, "public")


def test_a_queue_deleted_on_one_is_gone_on_the_other_when_that_is_answered(
    first: Server, second: Server, queue: str
) -> None:
    """No server takes a message for it from then on, whatever it had at hand (G9)."""
    assert first.call("DELETE", queue).status_code == 200

    refused(second.post(queue), 404, "InvalidQueueName")
    refused(second.get(queue), 404, "InvalidQueueName")
    refused(first.get(queue), 404, "InvalidQueueName")


def test_a_queue_made_anew_on_the_other_server_has_nothing_of_its_former_self(
    first: Server, second: Server, queue: str
) -> None:
    former = [first.add(queue, "former", idempotency_key="k")["key"], second.add(queue, "former")["key"]]

    first.call("DELETE", queue)
    second.create(queue)
    anew = [server.add(queue, "anew", idempotency_key="k")["key"] for server in (second, first)]

    assert anew[0] == anew[1]
    assert eventually(lambda: first.bodies(queue), seconds=FOLLOWED_SECONDS) == ["anew"]
    assert second.bodies(queue) == ["anew"]
    for server in (first, second):
        assert server.fetch(queue, ",".join(former)) == []
        assert server.info(queue)["depth"] == 1


def test_one_idempotency_key_at_both_servers_stores_once(first: Server, second: Server, queue: str) -> None:
    answers = at_once(*(partial(server.post, queue, "once", idempotency_key="both") for server in (first, second) * 2))

    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["messages"][0]["key"] for answer in answers}) == 1
    assert first.info(queue)["depth"] == 3
    refused(second.post(queue, "other", idempotency_key="both"), 422, "KeyReused")


def test_ids_of_both_servers_are_in_one_order(first: Server, second: Server) -> None:
    name = first.queue()
    added = [server.add(name, str(number))["key"] for number in range(4) for server in (first, second)]

    def all_there() -> list[str]:
        found = [message["message_id"] for message in second.read(name)]
        return found if len(found) == len(added) else []

    rising = eventually(all_there, seconds=FOLLOWED_SECONDS)
    falling = [message["message_id"] for message in first.read(name, order="descending")]

    assert sorted(rising) == sorted(added)
    assert rising == falling[::-1]


def test_a_condition_on_settings_counts_what_another_server_has_changed(
    first: Server, second: Server, queue: str
) -> None:
    def change(server: Server, tag: str, **fields: str) -> int:
        return server.call("PUT", queue, data=fields, headers={"If-Match": tag}).status_code

    seen = first.get(queue, info="true").headers["ETag"]
    assert change(first, seen, partitions="3") == 200
    new = first.get(queue, info="true").headers["ETag"]

    assert change(second, seen, principles="app:other") == 412
    assert change(second, new, principles="app:queuey") == 200
    assert change(first, new, partitions="4") == 412
    assert (first.info(queue)["partitions"], second.info(queue)["principles"]) == (3, ["app:queuey"])
