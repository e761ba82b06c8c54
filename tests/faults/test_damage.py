"""G18: of a damaged file a server refuses to start, or says so, or gives errors; it never gives wrong data."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from qdo.client import Appended, Client
from queuey.errors import QueueyError
from queuey.storage.sqlite.connections import PAGE_BYTES
from tests.support.figures import Figures
from tests.support.node import Node
from tests.support.servers import EndedEarly

PAGE = PAGE_BYTES
HEADER = 100
"""Bytes at the start of an SQLite file that describe it."""
Damage = Callable[[bytearray, random.Random], None]


def cut_at(share: float) -> Damage:
    def cut(content: bytearray, _: random.Random) -> None:
        del content[int(len(content) * share) :]

    return cut


def flip_between(low: int, high: int | None) -> Damage:
    def flip(content: bytearray, chance: random.Random) -> None:
        content[chance.randrange(low, high or len(content))] ^= 1 << chance.randrange(8)

    return flip


def zero_a_page(content: bytearray, chance: random.Random) -> None:
    at = chance.randrange(1, len(content) // PAGE) * PAGE
    content[at : at + PAGE] = bytes(PAGE)


def swap_pages(content: bytearray, chance: random.Random) -> None:
    one, other = (PAGE * page for page in chance.sample(range(1, len(content) // PAGE), 2))
    first = content[one : one + PAGE]
    content[one : one + PAGE] = content[other : other + PAGE]
    content[other : other + PAGE] = first


DAMAGES: Mapping[str, Damage] = {
    "empty": cut_at(0.0),
    "cut early": cut_at(0.01),
    "cut in half": cut_at(0.5),
    "cut late": cut_at(0.99),
    "bit in the header": flip_between(0, HEADER),
    "bit in the schema": flip_between(HEADER, PAGE),
    "bit anywhere": flip_between(PAGE, None),
    "page of zeros": zero_a_page,
    "pages swapped": swap_pages,
}


def fill(node: Node, chance: random.Random) -> dict[Appended, bytes]:
    """Messages of all sizes, as they were sent; the server has ended and put its log away."""
    client = node.client()
    client.create_queue("q", partitions=2)
    bodies = [chance.randbytes(chance.choice((20, 200, 6000))) for _ in range(120)]
    placed = client.append_batch("q", bodies)
    node.terminate()
    assert node.ended() == 0
    return dict(zip(placed, bodies, strict=True))


def look_at(client: Client, sent: Mapping[Appended, bytes]) -> Counter[str]:
    """What comes of reading each message: ``whole``, ``error``, ``missing``, or ``wrong``."""
    found: Counter[str] = Counter()
    for where, body in sent.items():
        try:
            got = client.get("q", where)
        except QueueyError:
            found["error"] += 1
            continue
        found["missing" if not got else "whole" if got[0].body == body else "wrong"] += 1
    try:
        page = client.read("q", limit=1000)
    except QueueyError:
        found["page error"] += 1
    else:
        by_id = {(where.partition, where.id): body for where, body in sent.items()}
        found["wrong"] += sum(by_id.get((message.partition, message.id)) != message.body for message in page.messages)
    return found


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_gives_no_wrong_data(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures, name: str
) -> None:
    (tmp_path / "sound").mkdir()
    with Node(tmp_path / "sound") as node:
        sent = fill(node, chance)
    told: Counter[str] = Counter()
    for number in rounds(1):
        folder = tmp_path / f"damaged-{number}"
        shutil.copytree(tmp_path / "sound", folder)
        damaged = Node(folder)
        content = bytearray(damaged.database.read_bytes())
        DAMAGES[name](content, chance)
        damaged.database.write_bytes(content)
        told += outcome(damaged, sent)

    figures("G18", damage=name.replace(" ", "_"), **{key.replace(" ", "_"): told[key] for key in sorted(told)})
    assert told["wrong"] == 0


def refused_with_a_sentence(ended: EndedEarly) -> None:
    """Settings or store (2), or a store that cannot be read (5); never a failure that nobody foresaw."""
    assert ended.code in (2, 5), ended.said
    assert "Traceback" not in ended.said, ended.said


def outcome(damaged: Node, sent: Mapping[Appended, bytes]) -> Counter[str]:
    """What comes of starting a server on a damaged file and reading it."""
    try:
        damaged.start()
    except EndedEarly as ended:
        refused_with_a_sentence(ended)
        return Counter(refused=1)
    with contextlib.closing(damaged):
        found = look_at(damaged.client(), sent)
        found["flagged"] = damaged.get("/__heartbeat__").status_code == 503
        assert damaged.get("/__lbheartbeat__").status_code == 200
        return found
