"""Limits, and one more than each (queuey-api-v1 section 8, G17)."""

from __future__ import annotations

import json
import random

import pytest

from tests.support.client import BATCH, Server, refused

MIB = 1 << 20


def test_a_body_of_1_mib_is_taken_and_one_byte_more_is_not(server: Server) -> None:
    name = server.queue()

    assert server.post(name, b"x" * MIB).status_code == 201
    refused(server.post(name, b"x" * (MIB + 1)), 413, "MessageTooLarge")
    assert server.info(name)["depth"] == 1


def test_put_has_the_same_limit(server: Server) -> None:
    name = server.queue()
    (key,) = server.fill(name, "a")

    assert server.call("PUT", name, key, data=b"x" * MIB).status_code == 200
    refused(server.call("PUT", name, key, data=b"y" * (MIB + 1)), 413, "MessageTooLarge")
    assert server.bodies(name)[0][0] == "x"


def test_one_body_of_a_batch_has_the_same_limit_in_bytes(server: Server) -> None:
    name = server.queue()

    assert server.post_batch(name, {"body": "x" * MIB}).status_code == 201
    refused(server.post_batch(name, {"body": "a"}, {"body": "x" * (MIB + 1)}), 413)
    refused(server.post_batch(name, {"body": "ü" * (MIB // 2 + 1)}), 413)
    assert server.info(name)["depth"] == 1


def test_a_request_of_8_mib_is_taken_and_more_is_not(server: Server) -> None:
    name = server.queue()
    entries = [{"body": "x" * (MIB - 100)} for _ in range(8)]
    room = 8 * MIB - len(json.dumps({"messages": entries, "pad": ""}))

    fits = json.dumps({"messages": entries, "pad": "p" * room})
    assert len(fits) == 8 * MIB
    assert server.post(name, fits, content_type=BATCH).status_code == 201
    over = json.dumps({"messages": entries, "pad": "p" * (room + 1)})
    refused(server.post(name, over, content_type=BATCH), 413, "MessageTooLarge")
    assert server.info(name)["depth"] == 8


def test_a_form_is_limited_like_any_request(server: Server) -> None:
    assert server.call("POST", data={"queue_name": "x" * (9 * MIB)}).status_code in {400, 413}


def test_a_batch_of_10_000_is_taken_and_one_more_is_not(server: Server) -> None:
    name = server.queue()

    assert len(server.add_batch(name, *[{"body": "x"}] * 10_000)) == 10_000
    refused(server.post_batch(name, *[{"body": "x"}] * 10_001), 400, "InvalidParameter")
    assert server.info(name)["depth"] == 10_000


@pytest.mark.parametrize(("size", "status"), [(50, 201), (51, 400)])
def test_a_queue_name_has_50_characters_at_most(server: Server, size: int, status: int) -> None:
    name = "".join(random.Random(size).choices("abcdefgh", k=size))

    assert server.create(name).status_code == status


def test_a_message_larger_than_the_answers_cap_is_still_read(server: Server) -> None:
    name = server.queue()
    body = random.Random(1).randbytes(MIB)
    server.add(name, body)

    assert len(server.read(name)) == 1


def test_100_principals_are_taken_and_101_are_not(server: Server) -> None:
    listed = [f"app:a{number}" for number in range(101)]

    assert server.create(principles=",".join(listed[:100])).status_code == 201
    refused(server.create(principles=",".join(listed)), 400, "principles")


def test_a_principal_has_254_characters_at_most(server: Server) -> None:
    def address(size: int) -> str:
        domain = ".".join(["d" * 60] * 3)
        return "bid:" + "n" * (size - len("bid:@.org") - len(domain)) + f"@{domain}.org"

    assert server.create(principles=address(254)).status_code == 201
    refused(server.create(principles=address(255)), 400, "principles")


def test_a_key_has_a_limit(server: Server) -> None:
    name = server.queue()

    assert server.post(name, x_key="k" * 100).status_code == 201
    refused(server.post(name, x_key="k" * 5000), 400, "key")


def test_a_content_type_has_a_limit(server: Server) -> None:
    name = server.queue()

    assert server.post(name, content_type="text/" + "x" * 100).status_code == 201
    refused(server.post(name, content_type="text/" + "x" * 5000), 400, "content_type")
