"""G6: a body comes back as it was sent or an error does: over flipped bits on the disk, and cut uploads."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Callable
from pathlib import Path

from qdo.client import Appended, Client, Message, NewMessage
from queuey.errors import BrokenStream, CorruptMessage
from tests.support import raw
from tests.support.client import authorization
from tests.support.effects import everything
from tests.support.figures import Figures
from tests.support.node import APPLICATION, Node
from tests.support.servers import FIRST_KEY, eventually

MIB = 1 << 20
PIECE = 64
"""Bytes of a body that are looked for in the file; a body longer than a page is spread over several."""


def flip(file: Path, bodies: list[bytes], chance: random.Random) -> None:
    """Flip one bit somewhere in each of these bodies, in every copy that the file has of that part."""
    content = bytearray(file.read_bytes())
    for body in bodies:
        part = part_in(content, body, chance)
        bit = chance.randrange(len(part) * 8)
        flipped = (int.from_bytes(part) ^ 1 << bit).to_bytes(len(part))
        content[:] = content.replace(part, flipped)
    file.write_bytes(content)


def part_in(content: bytearray, body: bytes, chance: random.Random) -> bytes:
    """A part of a body that stands in the file in one piece."""
    while True:
        start = chance.randrange(max(len(body) - PIECE, 0) + 1)
        part = body[start : start + PIECE]
        if part in content:
            return part


def noticed(client: Client, where: Appended) -> bool:
    """Whether every road to one message ends in an error that names it."""
    roads: list[Callable[[], object]] = [
        lambda: client.get("q", where),
        lambda: client.get_raw("q", where),
        lambda: client.read("q", since=where.id, until=where.id),
    ]
    for road in roads:
        try:
            road()
        except CorruptMessage as error:
            if where.id.hex in str(error):
                continue
        return False
    return True


def stepping_over(node: Node) -> tuple[dict[str, bytes], int]:
    """All messages that a reader gets that asks to step over what is corrupt, and the number that the server says it stepped over."""
    got, corrupt, params = {}, 0, {"partitions": "all", "limit": "1000", "skip_corrupt": "true"}
    while True:
        answer = node.call("GET", "q", params=params)
        assert answer.status_code == 200, answer.text
        for entry in answer.json()["messages"]:
            got[entry["message_id"]] = Message.from_wire(entry).body
        corrupt += int(answer.headers.get("Queuey-Corrupt", "0"))
        if answer.headers["Queuey-More"] != "true":
            return got, corrupt
        params = {"cursor": answer.headers["Queuey-Cursor"], "limit": "1000", "skip_corrupt": "true"}


def test_a_flipped_bit_in_a_body_is_noticed_and_harms_no_other_message(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    sizes = [chance.choice((40, 300, 2000, 9000)) for _ in rounds(120)] + [MIB, MIB]
    bodies = [chance.randbytes(size) for size in sizes]
    with Node(tmp_path) as node:
        client = node.client()
        client.create_queue("q", partitions=2)
        placed = [client.append("q", NewMessage(body, content_type="application/x-test")) for body in bodies]
        node.terminate()
        assert node.ended() == 0

        victims = {*chance.sample(range(len(bodies) - 2), len(bodies) // 2), len(bodies) - 1}
        flip(node.database, [bodies[one] for one in victims], chance)

        node.start()
        client = node.client()
        seen = sum(noticed(client, placed[one]) for one in victims)
        whole = {placed[one].id: bodies[one] for one in range(len(bodies)) if one not in victims}
        got, corrupt = stepping_over(node)
        by_id = {where.id.hex: client.get("q", where)[0].body for where in placed if where.id in whole}
        ended_early = stream_ends_early(client)

    wrong = [name for name, body in [*got.items(), *by_id.items()] if body not in bodies]
    figures("G6", flips=len(victims), noticed=seen, stepped_over=corrupt, readable=len(got), wrong_bodies=len(wrong))
    assert seen == len(victims)
    assert corrupt == len(victims)
    assert got == by_id == {message_id.hex: body for message_id, body in whole.items()}
    assert wrong == []
    assert ended_early


def stream_ends_early(client: Client) -> bool:
    """A stream that meets a corrupt message says so, or, once it has begun, ends without its end mark."""
    try:
        with client.stream_ndjson("q") as stream:
            list(stream)
    except (BrokenStream, CorruptMessage):
        return True
    return False


def test_any_bytes_come_back_as_they_were_sent(tmp_path: Path, chance: random.Random) -> None:
    bodies = [b"\0", b" ", b"\n", b"null", b"{}", b"\xff\xfe", b"\xed\xa0\x80", "\u00fc\ufeff".encode(), b"a\r\n\r\nb"]
    bodies += [chance.randbytes(chance.randint(1, 5000)) for _ in range(50)] + [chance.randbytes(MIB)]
    with Node(tmp_path) as node:
        client = node.client()
        client.create_queue("q")
        placed = [client.append("q", NewMessage(body, content_type="text/x-odd")) for body in bodies]
        placed += client.append_batch("q", bodies[:-1])
        sent = bodies + bodies[:-1]

        assert [message.body for message in everything(client, "q")] == sent
        assert [message.body for message in client.stream_ndjson("q")] == sent
        assert [body.as_py() for batch in client.read_arrow("q", columns=["body"]) for body in batch["body"]] == sent
        assert [client.get_raw("q", where).body for where in placed] == sent
        assert {client.get_raw("q", where).content_type for where in placed[: len(bodies)]} == {"text/x-odd"}


def requests_to_cut() -> list[bytes]:
    """A raw message, a batch, an overwrite and a chunked body, each as it stands on the wire."""
    batch = json.dumps({"messages": [{"body": "first"}, {"body": "second"}]}).encode()
    one_id = b"1f9f6640e56711f189bf02fc00000001"
    chunks = b"5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n"
    return [
        wire(b"POST", b"", b"hello world", b"Content-Type: text/plain", b"Content-Length: 11"),
        wire(b"POST", b"", batch, b"Content-Type: application/json", b"Content-Length: %d" % len(batch)),
        wire(b"PUT", b"/" + one_id, b"hello world", b"Content-Length: 11"),
        wire(b"POST", b"", chunks, b"Transfer-Encoding: chunked"),
    ]


def wire(method: bytes, below: bytes, body: bytes, *headers: bytes) -> bytes:
    key = authorization(FIRST_KEY)["Authorization"].encode()
    head = [
        method + b" /v1/" + APPLICATION.encode() + b"/q" + below + b" HTTP/1.1",
        b"Host: q",
        b"Authorization: " + key,
    ]
    return b"\r\n".join([*head, *headers]) + b"\r\n\r\n" + body


def test_an_upload_cut_at_any_byte_stores_nothing(tmp_path: Path, figures: Figures) -> None:
    cuts = 0
    with Node(tmp_path) as node:
        client = node.client()
        client.create_queue("q")
        for request in requests_to_cut():
            head = request.index(b"\r\n\r\n") + 4
            for length in {*range(1, head, 13), *range(head - 4, len(request))}:
                cut_off(node.running.port, request[:length])
                raw.cut(node.running.port, request[:length])
                cuts += 2
        eventually(lambda: b"queuey_http_requests_in_progress 0.0" in node.get("/metrics").content)
        stored = everything(client, "q")

    figures("G6", cut_uploads=cuts, stored=len(stored))
    assert stored == []


def cut_off(port: int, part: bytes) -> None:
    """Send part of a request, say that this is the end, and do not stay for what the server thinks of it."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(part)
        connection.shutdown(socket.SHUT_WR)
