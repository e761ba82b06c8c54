"""Errors name what to type."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuey.errors import (
    ApplicationNotFound,
    Forbidden,
    InvalidParameter,
    InvalidReceipt,
    QueueNotFound,
    QueueyError,
    ServerUnreachable,
    StorageFull,
    error_classes,
)
from queuey.terminal.words import Invocation, in_words

ASKED = Invocation(
    "http://x", "shop", has_credential=True, queue="orders", group="g", options={"at": "--at", "kind": "--type"}
)


@pytest.mark.parametrize("error", error_classes().values())
def test_an_error_stays_of_its_class_and_speaks_no_http(error: type[QueueyError]) -> None:
    found = in_words(error(), ASKED)

    assert type(found) is error
    if error.status in (403, 404) or error.__name__ in ("InvalidApplicationKey", "InvalidToken", "QueueExists"):
        assert not [word for word in ("POST", "PUT", "If-None-Match", "Authorization", "Bearer") if word in str(found)]


def test_a_queue_that_is_missing_is_named_with_the_command_that_makes_it() -> None:
    other = QueueNotFound("no queue is named 'mail': create it with a POST to its application")

    assert "'queuey queue add orders' makes it" in str(in_words(QueueNotFound(), ASKED))
    assert "'queuey queue add mail' makes it" in str(in_words(other, ASKED))


def test_fields_of_requests_are_options() -> None:
    told = InvalidParameter(problems={"0.deliver_at": "no", "type": "no", "X-Other": "no", "limit": "no"})

    named = InvalidParameter(problems={"queue_name": "no"})

    assert in_words(named, replace(ASKED, options={"queue": "QUEUE"})).problems == {"QUEUE": "no"}
    assert in_words(told, ASKED).problems == {"--at": "no", "--type": "no", "other": "no", "limit": "no"}
    assert str(in_words(InvalidParameter("a sentence"), ASKED)) == "a sentence"


def test_numbers_that_were_typed_as_durations_have_their_unit() -> None:
    asked = replace(ASKED, options={"ttl": "--ttl", "most": "--max"}, durations={"--ttl"})
    told = InvalidParameter(problems={"X-TTL": "9 is greater than maximum value 7", "max": "9 is greater than 7"})

    assert in_words(told, asked).problems == {
        "--ttl": "9 is greater than maximum value 7, in seconds",
        "--max": "9 is greater than 7",
    }


def test_a_partition_that_is_not_there_is_one_of_its_queue() -> None:
    asked = replace(ASKED, options={"partition": "--partition"})
    told = InvalidParameter(problems={"X-Partition": "9 is greater than maximum value 1"})

    assert in_words(told, asked).problems == {"--partition": "queue orders has 1 partition: there is no 9"}


def test_one_of_several_queues_is_the_argument() -> None:
    asked = replace(ASKED, options={"queue": "QUEUE"})

    assert in_words(InvalidParameter(problems={"queues.1": "no"}), asked).problems == {"QUEUE": "no"}


def test_a_text_that_is_no_receipt_names_what_prints_them() -> None:
    found = str(in_words(InvalidReceipt('"x" is no receipt'), ASKED))

    assert found == "\"x\" is no receipt: 'queuey receive orders' prints them, one for each message"


def test_somebody_without_a_key_is_told_where_to_set_one() -> None:
    nobody = Invocation("http://x", "shop", has_credential=False)

    assert "set QUEUEY_KEY" in str(in_words(Forbidden(), nobody))
    assert "queuey serve" in str(in_words(ServerUnreachable("no server answers at http://x"), nobody))
    assert str(in_words(ServerUnreachable("http://x: wrong certificate"), nobody)) == "http://x: wrong certificate"


def test_a_refusal_names_the_application_that_was_asked_for() -> None:
    assert "no application shop: --application" in str(in_words(ApplicationNotFound(), ASKED))
    assert "a key of application shop" in str(in_words(Forbidden(), ASKED))
    assert str(in_words(Forbidden("only its principals may"), ASKED)) == "only its principals may"


def test_what_needs_no_other_words_stays() -> None:
    error = StorageFull()

    assert in_words(error, ASKED) is error
