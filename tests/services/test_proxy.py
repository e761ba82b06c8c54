"""Each fault of the network, between a client and a server that says what it hears."""

from __future__ import annotations

import random
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from typing import Self

import pytest

from tests.support.services.network import Unclear, obey
from tests.support.services.proxy import BOTH, Proxy, Way

SILENCE_SECONDS = 0.2


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        try:
            while heard := self.request.recv(1 << 16):
                self.request.sendall(heard)
        except ConnectionError:
            pass


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False


@pytest.fixture(scope="module")
def echo() -> Iterator[tuple[str, int]]:
    with Server(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield ("127.0.0.1", server.server_address[1])
        server.shutdown()


@pytest.fixture
def proxy(echo: tuple[str, int]) -> Iterator[Proxy]:
    with Proxy(lambda: echo, chance=random.Random(1)) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[Client]:
    with Client(proxy) as client:
        yield client


class Client:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._socket = socket.create_connection(proxy.address, 10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, text: bytes) -> None:
        self._socket.sendall(text)

    def receive(self, size: int) -> bytes:
        """That many bytes, or as many as come before the end."""
        got = b""
        while len(got) < size and (piece := self._socket.recv(size - len(got))):
            got += piece
        return got

    def says(self, text: bytes) -> bytes:
        """What comes back."""
        self.send(text)
        return self.receive(len(text))

    def hears_nothing(self) -> bool:
        self._socket.settimeout(SILENCE_SECONDS)
        try:
            return not self._socket.recv(1)
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(10)

    def end(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)


def seconds_for(client: Client, text: bytes) -> float:
    began = time.monotonic()
    assert client.says(text) == text
    return time.monotonic() - began


def test_a_fine_network_passes_everything_and_the_end(client: Client) -> None:
    text = random.Random(2).randbytes(3_000_000)
    sender = threading.Thread(target=client.send, args=(text,))
    sender.start()

    assert client.receive(len(text)) == text
    sender.join()
    client.end()
    assert client.receive(1) == b""


def test_what_is_dropped_is_counted_until_it_passes(proxy: Proxy, client: Client) -> None:
    proxy.drop([Way.BACK])
    client.send(b"held")
    deadline = time.monotonic() + 90
    while not proxy.under_way(Way.BACK) and time.monotonic() < deadline:
        time.sleep(0.01)

    assert (proxy.under_way(Way.THERE), proxy.under_way(Way.BACK)) == (0, 1)
    proxy.heal()
    assert client.receive(4) == b"held"
    assert proxy.under_way(Way.BACK) == 0


@pytest.mark.parametrize(("ways", "least"), [(BOTH, 0.4), ([Way.THERE], 0.2), ([Way.BACK], 0.2)])
def test_delay_makes_an_open_connection_slower_until_it_heals(
    proxy: Proxy, client: Client, ways: list[Way], least: float
) -> None:
    assert client.says(b"before") == b"before"

    proxy.delay(0.2, ways)

    assert seconds_for(client, b"slow") >= least
    proxy.heal()
    assert client.says(b"after") == b"after"


def test_delay_keeps_the_order_when_it_becomes_shorter(proxy: Proxy, client: Client) -> None:
    proxy.delay(1.5, [Way.BACK])
    client.send(b"first ")
    assert client.hears_nothing()
    proxy.heal()

    client.send(b"second")

    assert client.receive(12) == b"first second"


def test_throttle_allows_so_many_bytes_a_second(proxy: Proxy, client: Client) -> None:
    proxy.throttle(20_000, [Way.BACK])

    assert seconds_for(client, bytes(6_000)) >= 0.3


@pytest.mark.parametrize("way", list(Way))
def test_what_is_dropped_arrives_when_the_network_heals(proxy: Proxy, client: Client, way: Way) -> None:
    assert client.says(b"before") == b"before"
    proxy.drop([way])

    client.send(b"during")

    assert client.hears_nothing()
    proxy.heal()
    assert client.receive(6) == b"during"


def test_a_connection_made_while_all_is_dropped_works_later(proxy: Proxy) -> None:
    proxy.drop()
    with Client(proxy) as client:
        client.send(b"hello")
        assert client.hears_nothing()

        proxy.heal()

        assert client.receive(5) == b"hello"


def test_cut_resets_old_and_new_connections_until_it_heals(proxy: Proxy, client: Client) -> None:
    assert client.says(b"before") == b"before"

    proxy.cut()

    with pytest.raises(ConnectionResetError):
        client.receive(1)
    with pytest.raises(ConnectionError), Client(proxy) as refused:
        refused.says(b"?")
    proxy.heal()
    with Client(proxy) as again:
        assert again.says(b"after") == b"after"


@pytest.mark.parametrize("way", list(Way))
def test_a_lost_piece_breaks_its_connection_and_is_counted(proxy: Proxy, way: Way) -> None:
    proxy.lose(1, [way])
    for _ in range(8):
        with pytest.raises(ConnectionError), Client(proxy) as client:
            client.says(b"0123456789")

    assert proxy.lost(way) == 8
    (other,) = set(Way) - {way}
    assert proxy.lost(other) == 0


def test_a_server_that_is_away_resets_and_is_asked_for_again(echo: tuple[str, int]) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        where = [nobody.getsockname(), echo]
        with Proxy(lambda: where[0]) as proxy:
            with pytest.raises(ConnectionError), Client(proxy) as client:
                client.says(b"?")
            where.pop(0)
            with Client(proxy) as client:
                assert client.says(b"found") == b"found"


@pytest.mark.parametrize(
    ("line", "least"), [("delay 0.2", 0.4), ("delay 0.2 back", 0.2), ("throttle 20000 there", 0.2), ("heal", 0)]
)
def test_a_line_of_text_does_the_same(proxy: Proxy, client: Client, line: str, least: float) -> None:
    obey(proxy, line)

    assert seconds_for(client, bytes(4_000)) >= least


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("slow down", "slow? One of: delay, throttle, lose, drop, cut, heal"),
        ("delay", "delay takes a number first, for instance: delay 0.5"),
        ("throttle 0", "throttle takes a number first"),
        ("lose nan", "lose takes a number first"),
        ("drop up", "the ways are: there (requests), back (answers)"),
    ],
)
def test_a_line_that_is_not_clear_says_what_would_be(proxy: Proxy, line: str, said: str) -> None:
    with pytest.raises(Unclear) as unclear:
        obey(proxy, line)

    assert said in str(unclear.value)
