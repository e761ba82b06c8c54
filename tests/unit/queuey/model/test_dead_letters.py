"""The form of dead letters: what is written is read, and nothing else is taken for a story."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.model import MAX_HEADERS, MAX_TTL_SECONDS, decode_headers, encode_headers
from queuey.model.dead_letters import STORY_HEADER, Story, story_of, story_to_header, with_story, without_story

STORY = Story("jobs", 3, "1f9f6640e56711f189bf02fc00000001", "workers", 2, "not JSON")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(0, 1 << 40)
STORIES = st.builds(
    Story,
    queue=TEXTS,
    partition=NUMBERS,
    message_id=st.text("0123456789abcdef", min_size=32, max_size=32),
    group=TEXTS,
    failures=NUMBERS,
    reason=TEXTS,
    deliveries=NUMBERS,
    first_delivered=st.none() | TEXTS,
    given_up=st.none() | TEXTS,
    traceback=TEXTS,
    size=st.none(),
    sha256=st.none(),
    ttl=st.none() | st.integers(0, MAX_TTL_SECONDS),
    first_id=st.none() | st.text("0123456789abcdef", min_size=32, max_size=32),
    earlier_deliveries=NUMBERS,
)


@given(STORIES, st.dictionaries(st.text("abc-", min_size=1, max_size=5), st.binary(max_size=5), max_size=3))
def test_a_story_travels_in_a_header_beside_those_of_the_message(story: Story, headers: dict[str, bytes]) -> None:
    found = decode_headers(with_story(encode_headers(headers), story))

    assert story_of(found) == story
    assert without_story(found) == headers
    assert found[STORY_HEADER].isascii()
    assert found[STORY_HEADER].decode().isprintable()


def test_a_story_says_only_what_is_known() -> None:
    assert list(json.loads(story_to_header(STORY))) == [
        "queue",
        "partition",
        "message_id",
        "group",
        "failures",
        "reason",
    ]
    assert not STORY.is_alone


def test_a_story_tells_what_a_dead_letter_was_first() -> None:
    """Through any number of queues; and of a message that is none, or whose header another program wrote, it tells nothing."""
    later = "2f9f6640e56711f189bf02fc00000002"
    first = STORY._replace(deliveries=2)
    second = Story("jobs-dead", 1, later, "workers", 3, "so", 3).after(_headers(first))
    third = Story("last", 1, "3f9f6640e56711f189bf02fc00000003", "workers", 4, "so", 4).after(_headers(second))

    assert [one.first_message_id for one in (first, second, third)] == [STORY.message_id] * 3
    assert [one.all_deliveries for one in (first, second, third)] == [2, 5, 9]
    assert third.message_id.startswith("3f9f")
    for headers in ({}, {STORY_HEADER: b"{}"}, _headers(STORY._replace(message_id="0" * 32))):
        assert first.after(headers) == first


def test_however_often_a_message_was_handed_out_before_its_story_is_one() -> None:
    most = (1 << 53) - 1
    forged = STORY._replace(deliveries=most, earlier_deliveries=most)

    letter = STORY._replace(deliveries=1).after(_headers(forged))

    assert story_of(_headers(letter)) == letter
    assert letter.earlier_deliveries == most


def _headers(story: Story) -> dict[str, bytes]:
    return {STORY_HEADER: story_to_header(story)}


def test_a_story_alone_has_size_and_digest_of_the_body() -> None:
    story = STORY.alone(b"body")

    assert story_of({STORY_HEADER: story_to_header(story)}) == story
    assert (story.is_alone, story.size, story.sha256) == (True, 4, hashlib.sha256(b"body").hexdigest())


def test_what_a_newer_server_adds_is_ignored() -> None:
    told = json.loads(story_to_header(STORY)) | {"colour": "red", "traceback": None}

    assert story_of({STORY_HEADER: json.dumps(told).encode()}) == STORY


def test_headers_that_leave_no_room_are_refused() -> None:
    full = encode_headers({f"h{number}": b"" for number in range(MAX_HEADERS)})

    with pytest.raises(ValueError, match="65 headers"):
        with_story(full, STORY)


def story(**changes: object) -> bytes:
    return json.dumps(STORY._asdict() | changes).encode()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"hello",
        b"[]",
        b"null",
        b"[" * 100_000,
        b"{}",
        b'{"queue": "jobs"}',
        story(queue=None),
        story(queue=1),
        story(partition="1"),
        story(partition=True),
        story(partition=-1),
        story(failures=1.5),
        story(failures=1 << 53),
        story(deliveries=10**4299),
        story(ttl=MAX_TTL_SECONDS + 1),
        story(queue="\ud800"),
        story(reason="\udfff"),
        story(message_id="1f9f"),
        story(message_id="X" * 32),
        story(traceback=["line"]),
        story(size=4),
        story(sha256="0" * 64),
    ],
)
def test_what_is_no_story_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="not a dead letter"):
        story_of({STORY_HEADER: value})


def test_a_message_without_the_header_is_no_dead_letter() -> None:
    with pytest.raises(ValueError, match=f"no header {STORY_HEADER}"):
        story_of({"trace": b"t"})
