"""From a batch's JSON to drafts: nothing that was sent is lost on the way, or the whole is refused."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.api.batches import batch_drafts, batch_entries, is_batch
from queuey.errors import InvalidParameter
from queuey.future import run
from queuey.http.exchange import BATCH_JSON, JSON, Call
from queuey.model import Queue
from queuey.settings import load_settings

QUEUE = Queue("app", "q", uuid.UUID(int=1), 7)
SETTINGS = load_settings(None, {}, {})
_TEXT = st.text(':q"\\{}[],é', min_size=1, max_size=4)
_VALUES = st.one_of(
    _TEXT,
    st.integers(),
    st.none(),
    st.lists(_TEXT, max_size=2),
    st.dictionaries(st.sampled_from("st"), _TEXT, max_size=2),
)
_MEMBERS = st.lists(st.tuples(st.sampled_from(["x", "y", "x:", ":"]), _VALUES), max_size=3)
_ENTRIES = st.lists(st.tuples(_TEXT, _MEMBERS), max_size=4)


def drafted(document: str) -> list[bytes]:
    """Bodies of the drafts made of a request's body."""
    entries = parsed(document.encode())
    assert entries is not None
    return [draft.body for draft in run(batch_drafts(entries, QUEUE, SETTINGS, 8))]


def parsed(body: bytes, media_type: str = BATCH_JSON) -> list[Any] | None:
    """The entries of a batch, None where the body is one message."""
    call = Call("POST", "/v1/app/q", "", {"content-type": media_type})
    call.body = body
    return run(batch_entries(call, SETTINGS))


@given(_ENTRIES, st.booleans())
def test_no_member_is_lost_to_one_of_the_same_name(
    entries: list[tuple[str, list[tuple[str, object]]]], odd: bool
) -> None:
    """However many colons stand in names and values, escaped or not."""
    objects = []
    for body, members in entries:
        pairs = [("body", body), *members]
        texts = [f"{json.dumps(name)}:{json.dumps(value)}" for name, value in pairs]
        objects.append("{" + ",".join(texts) + "}")
    document = '{"messages":[' + ",".join(objects) + "]}"
    if odd:
        document = document.replace("q", "\\u003a")
        entries = [(body.replace("q", ":"), members) for body, members in entries]

    if any(len({name for name, _ in members}) < len(members) for _, members in entries):
        with pytest.raises(InvalidParameter, match="twice"):
            drafted(document)
    else:
        assert drafted(document) == [body.encode() for body, _ in entries]


@pytest.mark.parametrize("end", [b"", b"\\"])
def test_a_text_without_an_end_is_looked_at_once(end: bytes) -> None:
    """Looked at anew from each of its quotes, 64 KB took seconds, and 8 MiB hours."""
    with pytest.raises(InvalidParameter, match="is not JSON"):
        parsed(b'{"messages":[{"body":"' + b'\\"' * (1 << 20) + end)


@pytest.mark.parametrize("text", ["x", "},{", '"},{\\"body\\":\\"', "é\n}, {"])
@pytest.mark.parametrize("spaces", [None, 2])
def test_a_large_batch_is_parsed_in_pieces_as_if_in_one(text: str, spaces: int | None) -> None:
    """Where one message ends and the next begins is found, whatever texts look like."""
    bodies = [f"{number}{text * 300}" for number in range(4000)]
    document = json.dumps({"messages": [{"body": body} for body in bodies]}, indent=spaces, ensure_ascii=False)

    assert drafted(document) == [body.encode() for body in bodies]


@pytest.mark.parametrize("place", [100, 1_500_000])
@pytest.mark.parametrize(
    ("planted", "reason"),
    [
        ('{"body": tru}', "is not JSON: invalid literal"),
        ('{"body": "x"},', "is not JSON"),
        ('{"body": "x", "body": "y"}', "twice"),
        ('{"body": "x"}], "messages": [{"body": "y"}', "twice"),
        ('{"body": "x"}, 3', "must be a JSON object"),
    ],
)
def test_what_is_wrong_in_a_large_batch_is_found_wherever_it_is(place: int, planted: str, reason: str) -> None:
    document = json.dumps({"messages": [{"body": "é" * 200} for _ in range(9000)]}, ensure_ascii=False)
    joint = document.index("}, {", place) + 2
    with pytest.raises(InvalidParameter, match=reason) as refused:
        drafted(document[:joint] + planted + "," + document[joint:])
    if "not JSON" in reason and "at byte" in str(refused.value):
        byte = int(str(refused.value).split("at byte ")[1].split()[0])
        wrong = len(document[:joint].encode())
        assert wrong <= byte <= wrong + len(planted) + 2


@pytest.mark.parametrize(
    "body",
    [b'{"messages":[]}', b' {\r\n"messages"\t: [{"body":"x"}]}\n', b'{"messages":[1]}', b'{"messages":['],
)
def test_the_form_of_2012_is_a_batch(body: bytes) -> None:
    assert is_batch(body)


@pytest.mark.parametrize(
    "body",
    [
        b"7",
        b"[]",
        b"{}",
        b'"messages"',
        b'{"message":[]}',
        b'{"messages":{}}',
        b'{"messages":"x"}',
        b'[{"messages":[]}]',
    ],
)
def test_other_json_is_no_batch(body: bytes) -> None:
    assert not is_batch(body)


def test_an_object_with_other_members_is_one_message_unless_it_is_sent_as_a_batch() -> None:
    body = b'{"messages":[{"body":"x"}],"total":1}'

    assert parsed(body, JSON) is None
    assert parsed(body) == [{"body": "x"}]
