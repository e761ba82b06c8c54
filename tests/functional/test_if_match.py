"""Conditional changes of a queue's settings: none overwrites what its caller has not seen."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from queuey.errors import InvalidParameter, QueueNotFound, SettingsChanged
from tests.support.alike import Everywhere
from tests.support.client import Server
from tests.support.over_asyncio import make_client


def tag(server: Server, queue: str) -> str:
    return server.get(queue, info="true").headers["ETag"]


def status(server: Server, queue: str, if_match: str, **fields: str) -> int:
    return server.call("PUT", queue, data=fields, headers={"If-Match": if_match}).status_code


def test_settings_that_the_caller_has_seen_are_changed(server: Server) -> None:
    queue = server.queue(partitions="2")
    seen = tag(server, queue)

    assert seen.startswith('"')
    assert status(server, queue, seen, partitions="3") == 200
    assert status(server, queue, f'"another", {tag(server, queue)}', principles="app:other") == 200
    assert (server.info(queue)["partitions"], server.info(queue)["principles"]) == (3, ["app:other"])


def test_the_tag_of_a_queue_that_was_just_made_is_that_of_the_store(server: Server) -> None:
    """Also where principals stand in no order, and twice, and where lease groups have settings."""
    queue = server.queue(principles="app:other, app:mirror, bid:Ann@Example.org, app:other", lease_visibility="7")
    seen = tag(server, queue)

    assert status(server, queue, seen, partitions="2") == 200
    seen = tag(server, queue)
    assert status(server, queue, seen, lease_backoff='{"first": 5, "most": 9.50}', lease_visibility="") == 200
    seen = tag(server, queue)
    assert status(server, queue, seen) == status(server, queue, seen) == 200


def test_settings_that_somebody_has_changed_meanwhile_stay(server: Server) -> None:
    queue = server.queue(partitions="2")
    seen = tag(server, queue)
    server.call("PUT", queue, data={"principles": "app:other"})

    refused = server.call("PUT", queue, data={"partitions": "1"}, headers={"If-Match": seen})

    assert (refused.status_code, refused.json()["code"]) == (412, "SettingsChanged")
    assert refused.json()["detail"] == SettingsChanged.default()
    assert (server.info(queue)["partitions"], server.info(queue)["principles"]) == (2, ["app:other"])
    assert status(server, queue, tag(server, queue), partitions="3") == 200


@pytest.mark.parametrize(
    "fields",
    [
        {"partitions": "3"},
        {"type": "public"},
        {"consistency": "weak"},
        {"retention": "acknowledged"},
        {"principles": "app:other"},
        {"lease_visibility": "7"},
        {"lease_start": "end"},
    ],
    ids=str,
)
def test_each_setting_counts(server: Server, fields: dict[str, str]) -> None:
    queue = server.queue(partitions="2")
    seen = tag(server, queue)

    server.call("PUT", queue, data=fields)

    assert tag(server, queue) != seen
    assert status(server, queue, seen) == 412


def test_messages_do_not_count(server: Server) -> None:
    queue = server.queue()
    seen = tag(server, queue)
    server.add(queue)

    assert tag(server, queue) == seen
    assert server.call("GET", queue, params={"info": "true"}, headers={"If-None-Match": seen}).status_code == 200


def test_a_queue_that_was_made_anew_is_another_one(server: Server) -> None:
    queue = server.queue()
    seen = tag(server, queue)
    server.call("DELETE", queue)
    server.create(queue)

    assert status(server, queue, seen, partitions="2") == 412
    server.call("DELETE", queue)
    assert status(server, queue, seen) == status(server, queue, "*") == 404


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("*", 200),
        ("* ", 200),
        ("W/{}", 412),
        ("w/{}", 400),
        ('W/"x", , {}', 200),
        (", {} ,", 200),
        ('"a, {}"', 400),
        ('""', 412),
        ("", 400),
        (",", 400),
        ("*, {}", 400),
        ("{0}{0}", 400),
        ("settings", 400),
        ('"é"', 400),
    ],
)
def test_what_a_condition_may_be(server: Server, given: str, expected: int) -> None:
    queue = server.queue()
    condition = given.format(tag(server, queue))

    answer = server.call("PUT", queue, data={"partitions": "2"}, headers={"If-Match": condition})

    assert answer.status_code == expected
    assert ("If-Match" in answer.json().get("error_msg", {})) == (expected == 400)
    assert server.info(queue)["partitions"] == (2 if expected == 200 else 1)


def test_a_condition_that_fails_shows_nothing_to_strangers(server: Server) -> None:
    queue = server.queue()

    with server.seen_by(None) as stranger:
        assert status(stranger, queue, '"x"') == 403


def test_of_several_changes_at_once_one_counts(server: Server) -> None:
    queue = server.queue()
    seen = tag(server, queue)

    def change(number: int) -> Callable[[], int]:
        return lambda: status(server, queue, seen, principles=f"app:editor-{number}")

    with ThreadPoolExecutor(4) as threads:
        begun = [threads.submit(change(number)) for number in range(4)]

    assert sorted(one.result() for one in begun) == [200, 412, 412, 412]


@pytest.mark.parametrize("condition", ["*", '"x"', 'W/"x", "y"', "x", ""])
def test_all_servers_answer_a_condition_alike(everywhere: Everywhere, condition: str) -> None:
    name = everywhere.queue(partitions=2)

    everywhere.call(
        "PUT", name, data={"partitions": "3"}, headers={"X-Request-Id": "one-request", "If-Match": condition}
    )


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_a_client_changes_only_what_it_has_seen(server: Server, kind: str) -> None:
    name = server.queue(partitions="2", lease_visibility="7")

    with make_client(kind, server.url, server.application, server.key) as client:
        seen = client.queue_info(name).tag
        assert client.update_queue(name, if_match=seen, partitions=3).partitions == 3
        for stale in (seen, f"W/{client.queue_info(name).tag}"):
            with pytest.raises(SettingsChanged):
                client.update_queue(name, if_match=stale, principals=["app:other"])
        for none in ("", "settings", 5):
            with pytest.raises(InvalidParameter, match="If-Match"):
                client.update_queue(name, if_match=none, partitions=4)  # type: ignore[arg-type]
        with pytest.raises(QueueNotFound):
            client.update_queue("nothing-here", if_match=seen, partitions=4)
        info = client.queue_info(name).settings

    assert (info.partitions, info.principals) == (3, ())
