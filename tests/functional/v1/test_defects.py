"""What was weak in the first Queuey and is mended: one test or more per row of queuey-api-v1 section 14.

Rows of other parts (W1 BrowserID, W15 Cassandra, W20 live push) are not here.
"""

from __future__ import annotations

import threading
import time
import uuid

import pytest

from tests.support.client import Server, new_name, refused
from tests.support.servers import APPLICATIONS, RunningServer, eventually


def test_w2_a_key_on_one_line_is_a_key_and_none_of_its_characters_is(running: RunningServer) -> None:
    (key,) = APPLICATIONS["other"]
    with Server(running, "other") as owner:
        assert owner.call("GET").status_code == 200
        for character in set(key):
            with owner.seen_by(character) as guesser:
                refused(guesser.call("GET"), 401, "InvalidApplicationKey")


def test_w2b_a_key_may_begin_and_end_with_the_letters_of_the_scheme(running: RunningServer) -> None:
    with Server(running, "letters") as owner:
        assert owner.call("GET").status_code == 200


def test_w3_a_stored_body_is_never_answered_as_html(server: Server, anonymous: Server) -> None:
    name = server.queue(type="public")
    server.add(name, "<script>alert(1)</script>")

    for answer in (anonymous.get(name), anonymous.get(f"<script>{name}")):
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_w4_text_that_is_not_ascii_goes_in_and_out_by_post_and_put(server: Server) -> None:
    name = server.queue()
    key = server.add(name, "größer ☃")["key"]
    assert server.bodies(name) == ["größer ☃"]

    assert server.call("PUT", name, key, data="𝄞 neu".encode()).status_code == 200
    assert server.bodies(name) == ["𝄞 neu"]


def test_w5_a_two_digit_partition_can_be_addressed_also_first(server: Server) -> None:
    name = server.queue(partitions=200)
    (ten,) = server.fill(name, "ten", partition=10)
    (last,) = server.fill(name, "last", partition=200)
    ids = f"10:{ten},200:{last}"

    assert [message["body"] for message in server.fetch(name, ids)] == ["ten", "last"]
    assert server.call("PUT", name, ids, data=b"new").status_code == 200
    assert server.bodies(name, partitions="10,200") == ["new", "new"]
    assert server.call("DELETE", name, ids).status_code == 200
    assert server.everything(name) == []


def test_w5_put_into_a_partition_the_queue_does_not_have_is_refused(server: Server) -> None:
    name = server.queue(partitions=2)
    (key,) = server.fill(name, "a")

    assert server.call("PUT", name, f"3:{key}", data=b"x").status_code == 400

    server.call("PUT", name, data={"partitions": 3})
    assert server.bodies(name, partitions="3") == []


def test_w6_an_update_changes_only_what_is_sent(server: Server) -> None:
    name = server.queue(type="public", consistency="weak", principles="app:queuey")

    server.call("PUT", name, data={"partitions": 4})

    found = server.settings(name)
    assert (found["partitions"], found["type"], found["consistency"], found["principles"]) == (
        4,
        "public",
        "weak",
        "app:queuey",
    )


def test_w6_an_empty_list_clears_the_principals(server: Server) -> None:
    name = server.queue(principles="app:other")
    assert server.get(name).status_code == 403

    answer = server.call("PUT", name, data={"principles": ""})

    assert answer.json()["principles"] == []
    assert server.get(name).status_code == 200


def test_w7_creating_again_with_nothing_named_changes_nothing(server: Server) -> None:
    name = server.queue(partitions=5, type="public", consistency="weak", principles="app:other")
    before = server.settings(name)

    answer = server.create(name)

    assert answer.status_code == 201
    told = answer.json()
    assert (told["partitions"], told["type"], told["consistency"], told["principles"]) == (
        5,
        "public",
        "weak",
        "app:other",
    )
    assert server.settings(name) == before


def test_w7_creating_again_never_lowers_the_partitions(server: Server) -> None:
    name = server.queue(partitions=5)
    server.fill(name, "in 5", partition=5)

    answer = server.create(name, partitions=2)

    assert (answer.status_code, answer.json()["partitions"]) == (201, 5)
    assert server.bodies(name, partitions="5") == ["in 5"]


@pytest.mark.parametrize(
    "principal",
    [
        "bid:first.last@example.com",
        "bid:first+tag@mail.example.co.uk",
        "bid:o-neil_x@my-host.example.org",
        "app:my-app",
        "app:my_app.v2",
        "app:other,bid:a.b@c-d.org , app:x",
    ],
)
def test_w8_real_addresses_and_names_are_principals(server: Server, principal: str) -> None:
    name = server.queue(principles=principal)

    assert server.settings(name)["principles"].replace(" ", "") == principal.replace(" ", "")


@pytest.mark.parametrize(
    "name", ["x" * 51, "a/b", "a:b", "a,b", "a b", ".", "..", "ü", "a\nb", "a\x00b", "<b>", "a%2Fb"]
)
def test_w9_a_name_that_cannot_be_addressed_cannot_be_created(server: Server, name: str) -> None:
    refused(server.create(name), 400, "queue_name")


def test_w10_the_limit_counts_after_what_may_not_be_seen_yet(server: Server) -> None:
    name = server.queue()
    server.fill(name, "seen")
    for _ in range(5):
        server.add(name, "later", x_delay=3600)

    assert server.bodies(name, order="descending", limit=1) == ["seen"]
    assert server.bodies(name, limit=1) == ["seen"]


def test_w11_principals_are_still_there_after_the_first_access(server: Server) -> None:
    name = server.queue(principles="app:other")

    with server.seen_by(APPLICATIONS["other"][0]) as listed:
        for _ in range(3):
            assert listed.get(name).status_code == 200
            assert server.get(name).status_code == 403
    assert server.settings(name)["principles"] == "app:other"


def test_w11_since_past_the_end_gives_nothing(server: Server) -> None:
    name = server.queue()
    server.fill(name, "a", "b")

    assert server.read(name, since=str(int(time.time()) + 100)) == []
    assert server.read(name, since="1000000000", order="descending") == []


def test_w11_an_expired_message_is_not_counted(fresh: Server) -> None:
    name = fresh.queue()
    fresh.add(name, "short", x_ttl=1)
    fresh.add(name, "long")

    def count() -> int:
        (found,) = fresh.call("GET", params={"include_count": "true"}).json()["queues"]
        assert isinstance(found["count"], int)
        return found["count"]

    assert eventually(lambda: count() == 1)


def test_w12_the_content_type_is_stored(server: Server) -> None:
    name = server.queue()
    server.add(name, "x", content_type="text/csv")

    assert server.read(name)[0]["content_type"] == "text/csv"


def test_w13_a_post_repeated_after_a_lost_answer_stores_once(server: Server) -> None:
    name = server.queue()

    keys = {server.add(name, "x", idempotency_key="retry")["key"] for _ in range(3)}

    assert len(keys) == 1
    assert len(server.read(name)) == 1


def test_w14_ids_rise_in_the_order_of_the_answers_for_several_writers(server: Server, running: RunningServer) -> None:
    name = server.queue()
    seen: list[list[int]] = []

    def write() -> None:
        with Server(running) as writer:
            seen.append([uuid.UUID(writer.add(name)["key"]).time for _ in range(15)])

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert all(times == sorted(times) for times in seen)
    assert len({time for times in seen for time in times}) == 60


def test_w16_created_is_exact(server: Server) -> None:
    first, second = server.queue(), server.queue()

    created = [server.settings(name)["created"] for name in (first, second)]

    assert created[0] < created[1]
    assert abs(created[0] - time.time()) < 60


def test_w16_two_updates_at_once_both_stay(server: Server, running: RunningServer) -> None:
    changes: list[dict[str, object]] = [
        {"partitions": 7},
        {"consistency": "weak"},
        {"type": "public"},
        {"principles": "app:queuey"},
    ]
    name = server.queue()

    def change(fields: dict[str, object]) -> None:
        with Server(running) as writer:
            assert writer.call("PUT", name, data=fields).status_code == 200

    writers = [threading.Thread(target=change, args=(fields,)) for fields in changes]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    found = server.settings(name)
    assert {key: found[key] for fields in changes for key in fields} == {
        key: value for fields in changes for key, value in fields.items()
    }


def test_w17_a_page_of_queues_is_a_page(fresh: Server) -> None:
    for number in range(7):
        fresh.create(f"q{number}")

    assert len(fresh.call("GET", params={"limit": 3}).json()["queues"]) == 3


def test_w18_every_refusal_is_json_with_its_true_status(server: Server, anonymous: Server) -> None:
    name = server.queue()

    missing = anonymous.get(name)
    assert "Access was denied" in refused(missing, 403, "Forbidden")["Forbidden"]
    assert "WWW-Authenticate" in missing.headers
    with server.seen_by("wrong" * 8) as stranger:
        wrong = stranger.get(name)
    refused(wrong, 401, "InvalidApplicationKey")
    assert "WWW-Authenticate" in wrong.headers
    refused(server.call("PATCH", name), 405, "MethodNotAllowed")
    refused(server.request("GET", "/nowhere"), 404, "NotFound")
    for since in ("x", "-1", "1e9", "NaN"):
        refused(server.get(name, since=since), 400, "since")


def test_w19_liveness_readiness_and_metrics_are_apart(server: Server) -> None:
    assert server.request("GET", "/__lbheartbeat__").status_code == 200
    assert server.request("GET", "/__heartbeat__").text.strip() == "OK"
    assert "queuey_messages_appended_total" in server.request("GET", "/metrics").text


def test_an_old_name_is_found_again_after_creation(server: Server) -> None:
    name = new_name()

    refused(server.get(name), 404, "InvalidQueueName")
    server.create(name)

    assert server.get(name).status_code == 200
