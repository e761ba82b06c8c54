"""Whose share an SQS request uses before its signature can be checked, which covers the body."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.support.client import Server
from tests.support.servers import eventually
from tests.support.sqs_clients import JSON, SqsServer, sqs_client, sqs_server

MIB = 1 << 20
UPLOAD, LARGE = 990_000, 900_000
ELSEWHERE = ("127.0.0.2", 0)
"""Where no key has signed."""
WHOLE_MIB = 16
"""Half of it is for one application, a quarter for strangers."""


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsServer]:
    settings = f"[limits]\nmax_in_flight_mb = {WHOLE_MIB}\n"
    with sqs_server(tmp_path_factory.mktemp("narrow-sqs"), settings) as running:
        yield running


def bytes_in_flight(server: Server) -> float:
    text = server.request("GET", "/metrics").text
    (line,) = [line for line in text.splitlines() if line.startswith("queuey_http_in_flight_bytes ")]
    return float(line.split()[1])


@contextmanager
def liars(sqs: SqsServer, count: int) -> Iterator[None]:
    """Uploads that name an access key of ``queuey``, signed with nothing, of which the last bytes do not come."""
    headers = {"Content-Type": JSON, "X-Amz-Target": "AmazonSQS.SendMessage"}
    named = dict(sqs.signed("POST", "/", b"{}", headers=headers).headers)
    named |= {"Content-Length": str(MIB), "Host": sqs.url.removeprefix("http://")}
    named["Authorization"] = f"{named['Authorization'][:-64]}{'0' * 64}"
    head = "".join([f"{name}: {value}\r\n" for name, value in named.items()])
    with ExitStack() as stack:
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", sqs.running.port), timeout=90, source_address=ELSEWHERE)
            stack.enter_context(one).sendall(f"POST / HTTP/1.1\r\n{head}\r\n".encode())
            _send(one)
        yield


def _send(one: socket.socket) -> None:
    """As much as the server takes: it may refuse the rest, and then closes the connection."""
    try:
        one.sendall(b"x" * UPLOAD)
    except OSError:
        return


def test_naming_a_key_uses_up_nothing_of_its_application(narrow: SqsServer) -> None:
    """More than half of all bytes, in the name of one application: its own requests find their room all the same."""
    client = sqs_client(narrow.url, narrow.keys["queuey"])
    url = client.create_queue(QueueName="large")["QueueUrl"]
    with Server(narrow.running) as server, liars(narrow, WHOLE_MIB // 2 + 1):
        eventually(lambda: bytes_in_flight(server) > UPLOAD)

        assert server.post(server.queue(), b"x" * MIB).status_code == 201
        client.send_message(QueueUrl=url, MessageBody="x" * LARGE)


def test_a_signer_that_is_known_pays_as_its_application(narrow: SqsServer) -> None:
    """Strangers have no room, and it is none of them: its key has signed at this address."""
    client = sqs_client(narrow.url, narrow.keys["other"])
    url = client.create_queue(QueueName="small")["QueueUrl"]
    client.send_message(QueueUrl=url, MessageBody="a small one")

    with Server(narrow.running) as server, liars(narrow, WHOLE_MIB // 4):
        eventually(lambda: bytes_in_flight(server) > UPLOAD)
        sent = [client.send_message(QueueUrl=url, MessageBody="x" * LARGE) for _ in range(3)]

    assert len(sent) == 3
