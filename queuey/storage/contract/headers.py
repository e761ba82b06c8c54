"""Headers: stored headers are those sent, alone, in batches and with a put."""

from __future__ import annotations

import pytest

from queuey.model import encode_headers
from queuey.storage.contract.common import QueueLog, StoreContract, draft

ONE = encode_headers({"Kind": b"order", "trace-id": bytes(range(256))})
EMPTY_VALUE = encode_headers({"flag": b""})
LARGEST = encode_headers({f"h{number}": b"x" * 1000 for number in range(64)})
BEYOND = encode_headers({f"h{number}": b"x" * 1100 for number in range(65)}, bounded=False)
"""Of a dead letter, with its story."""


class Headers(StoreContract):
    """:attr:`Draft.headers` and :attr:`Message.headers`."""

    @pytest.mark.parametrize(
        "headers", [ONE, EMPTY_VALUE, LARGEST, BEYOND], ids=["two", "an empty value", "64 KiB", "more than that"]
    )
    def test_headers_are_as_they_were_sent(self, log: QueueLog, headers: bytes) -> None:
        ((partition, id_),) = log.append(draft(b"x", content_type="a/b", key="k", headers=headers)).placed

        (message,) = log.read().messages
        assert message[3:] == ("a/b", "k", b"x", headers)
        assert log.fetch((partition, id_)) == [message]

    def test_each_message_of_a_batch_has_its_own(self, log: QueueLog) -> None:
        wanted = [(None, ONE, EMPTY_VALUE)[number % 3] for number in range(300)]

        log.append(*(draft(b"%d" % number, headers=headers) for number, headers in enumerate(wanted)))

        assert [message.headers for message in log.read(limit=300).messages] == wanted
        assert [message.headers for message in log.read(limit=300, newest_first=True).messages] == wanted[::-1]

    def test_a_batch_may_have_the_same_throughout(self, log: QueueLog) -> None:
        log.append(*[draft(b"x", headers=ONE)] * 100)

        assert {message.headers for message in log.read(limit=100).messages} == {ONE}

    def test_a_message_that_is_written_by_id_has_the_new_ones(self, log: QueueLog) -> None:
        (place,) = log.append(draft(b"old", headers=ONE)).placed

        log.put(place, body=b"new", headers=EMPTY_VALUE)
        assert [message.headers for message in log.read().messages] == [EMPTY_VALUE]
        log.put(place, body=b"newest")
        assert [message.headers for message in log.read().messages] == [None]

    def test_headers_count_as_bytes_of_a_page(self, log: QueueLog) -> None:
        assert LARGEST is not None
        log.append(*[draft(b"x", headers=LARGEST)] * 100)

        page = log.read(limit=100, max_bytes=5 * len(LARGEST))

        assert page.more
        assert len(page.messages) == 4
        assert page.size == 4 * (1 + len(LARGEST))

    def test_a_page_without_bodies_has_no_headers(self, log: QueueLog) -> None:
        log.append(draft(b"x", headers=ONE))

        assert [message.headers for message in log.read(with_bodies=False).messages] == [None]
