"""One answer as JSON: what it takes is counted as it is made, and a large one lets others have their turns."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from queuey.api import json_pages
from queuey.api.forms import entries
from queuey.api.json_pages import PIECE, JsonPage
from queuey.future import run
from queuey.http.admission import Admission, Ticket
from queuey.http.exchange import Call
from queuey.model import Message, Page
from queuey.service.log import PartitionPage, ReadAnswer

MIB = 1 << 20
ROOM = 4 * MIB
TICKS = 0x1E9F6640E56711F


class Made:
    """An answer that was made, what its call held at each turn of others, and how much was made between two."""

    def __init__(self, patch: pytest.MonkeyPatch, *partitions: Sequence[bytes], room: int = ROOM) -> None:
        self.gate, self.held, self.steps = Admission(10, 1 << 30), list[int](), [0]
        patch.setattr(json_pages, "others_turn", self._turn)
        patch.setattr(json_pages, "json_page", self._counted)
        pages = [PartitionPage(n, _page(bodies)) for n, bodies in enumerate(partitions, 1)]
        self.raw = sum([page.size for _, page in pages])
        self.answer, self.body = run(self._make(ReadAnswer(pages, 0, self.raw), room))
        self.bodies = [_body(entry) for entry in orjson.loads(self.body)["messages"]]

    async def _make(self, answer: ReadAnswer, room: int) -> tuple[ReadAnswer, bytes]:
        call = Call("GET", "/", "", {})
        call.ticket = Ticket(self.gate)
        with JsonPage(call, room) as made:
            made.count(0, answer.size)
            return await made.add(answer, entries), made.body()

    async def _turn(self) -> None:
        self.held.append(self.gate.bytes)
        self.steps.append(0)

    def _counted(self, shown: Sequence[dict[str, Any]]) -> bytes:
        self.steps[-1] += sum([len(entry["body"]) for entry in shown if isinstance(entry["body"], str)])
        return orjson.dumps({"status": "ok", "messages": shown})


def _page(bodies: Sequence[bytes]) -> Page:
    return Page([Message(TICKS + n, 7, 1 << 60, None, None, body) for n, body in enumerate(bodies)], False)


def _body(entry: dict[str, Any]) -> bytes:
    text: str = entry["body"]
    return base64.b64decode(text) if "encoding" in entry else text.encode()


@pytest.mark.parametrize(
    "character", [b"x", b'"', b"\\", b"\x01", b"\n", b"\x7f", b"\xff", "é".encode(), "😀".encode()]
)
@pytest.mark.parametrize("count", [1, 4, 4000])
def test_an_answer_takes_what_it_has_room_for_as_json(
    monkeypatch: pytest.MonkeyPatch, character: bytes, count: int
) -> None:
    bodies = [character * (4 * MIB // count // len(character))] * count
    made = Made(monkeypatch, bodies)

    assert made.bodies == bodies[: len(made.bodies)]
    assert len(made.body) <= ROOM + 100 or len(made.bodies) == 1
    ((_, page),) = made.answer.pages
    assert len(page.messages) == len(made.bodies)
    assert page.more == (len(made.bodies) < count)
    assert made.answer.size == page.size
    assert made.gate.bytes == 0


def test_a_message_comes_however_large_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(monkeypatch, [b"\x01" * MIB, b"x"], [b"y"], room=1 << 10)

    assert made.bodies == [b"\x01" * MIB]
    assert [(len(page.messages), page.more) for _, page in made.answer.pages] == [(1, True), (0, True)]


def test_nothing_follows_a_message_that_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(monkeypatch, [b"a", b"\x01" * 1000, b"b"], [b"c"], room=4 << 10)

    assert made.bodies == [b"a"]
    assert [(len(page.messages), page.more) for _, page in made.answer.pages] == [(1, True), (0, True)]


@pytest.mark.parametrize("size", [1 << 10, PIECE, MIB])
def test_others_have_turns_while_a_large_answer_is_made(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    bodies = [b"x" * size] * (3 * MIB // size)
    made = Made(monkeypatch, bodies)

    assert made.bodies == bodies
    assert max(made.steps) <= 2 * PIECE
    assert made.held[0] >= made.raw
    assert made.held == sorted(made.held)
    assert made.held[-1] >= made.raw + len(made.body) - 2 * PIECE


def test_others_have_turns_while_many_partitions_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [b"x" * 600] * 100
    made = Made(monkeypatch, *[bodies] * 48)

    assert made.bodies == bodies * 48
    assert len(made.held) >= 48 * 60_000 // (2 * PIECE)
    assert made.held == sorted(made.held)
    assert made.gate.bytes == 0


def test_a_small_answer_is_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(monkeypatch, [b"x" * 100] * 1000)

    assert not made.held
    assert len(made.bodies) == 1000
