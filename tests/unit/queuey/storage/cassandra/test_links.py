"""Calls between servers: each end proves that it knows the key, and each call has its answer or a clear end."""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from uuid import UUID, uuid4

import pytest

from queuey.errors import ConfigurationError
from queuey.future import Future
from queuey.storage.cassandra import _links, link_channel
from queuey.storage.cassandra import links as module
from queuey.storage.cassandra.cluster import AUTO, OFF, Options
from queuey.storage.cassandra.link_channel import Contact, Entries
from queuey.storage.cassandra.links import Link, LinkLost, Links, NotTaken, towards
from queuey.storage.cassandra.socket_loop import SocketLoop
from tests.support.servers import eventually
from tests.support.turning_loop import in_turn, turning_loop

CALLER = uuid4()
PATIENCE = 30.0


class Echo:
    """Answers each call with what it got, once it is let."""

    def __init__(self) -> None:
        self.got: list[tuple[UUID, bytes]] = []
        self.waiting: list[tuple[Future[bytes], bytes]] = []
        self.holds = False

    def take(self, server: UUID, payload: bytes) -> Future[bytes]:
        self.got.append((server, payload))
        if not self.holds:
            return Future.of(payload[::-1])
        future: Future[bytes] = Future()
        self.waiting.append((future, payload))
        return future

    def answer(self) -> None:
        for future, payload in self.waiting:
            future.set_result(payload[::-1])
        self.waiting.clear()


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def links(echo: Echo) -> Iterator[Links]:
    links, home = Links("127.0.0.1"), SocketLoop("links")
    links.start(echo.take, home)
    yield links
    links.stop(0.0)
    home.close()


@pytest.fixture
def link_to() -> Iterator[Callable[..., Link]]:
    made: list[Link] = []
    home = SocketLoop("links")

    def link_to(contact: Contact, patience: float = PATIENCE) -> Link:
        made.append(Link(contact, CALLER, patience, home))
        return made[-1]

    yield link_to
    for link in made:
        link.end()
    home.close()


def test_each_call_has_its_own_answer(links: Links, echo: Echo, link_to: Callable[..., Link]) -> None:
    link = link_to(links.contact)
    calls = {b"%d" % number: link.call(b"%d" % number) for number in range(500)}
    calls[b"large"] = link.call(b"x" * (3 << 20))
    assert calls.pop(b"large").wait(PATIENCE) == b"x" * (3 << 20)
    assert {call.wait(PATIENCE)[::-1]: call for call in calls.values()} == calls
    assert {server for server, _ in echo.got} == {CALLER}


def test_answers_may_come_in_any_order(links: Links, echo: Echo, link_to: Callable[..., Link]) -> None:
    link = link_to(links.contact)
    echo.holds = True
    slow = link.call(b"slow")
    eventually(lambda: echo.waiting)
    echo.holds = False
    assert link.call(b"quick").wait(PATIENCE) == b"kciuq"
    assert not slow.done
    echo.answer()
    assert slow.wait(PATIENCE) == b"wols"


def test_nobody_calls_without_the_key(links: Links, echo: Echo, link_to: Callable[..., Link]) -> None:
    with pytest.raises(NotTaken):
        link_to(links.contact._replace(key=b"k" * 32)).call(b"a").wait(PATIENCE)
    assert not echo.got
    assert link_to(links.contact).call(b"ab").wait(PATIENCE) == b"ba"


def test_a_caller_that_believes_anybody_is_refused(links: Links, echo: Echo) -> None:
    """It has not looked at the server's proof, and has none of its own."""
    with closing(socket.create_connection((links.contact.host, links.contact.port), PATIENCE)) as stranger:
        stranger.sendall(link_channel._MAGIC + b"n" * 32 + CALLER.bytes)
        assert len(stranger.recv(64)) == 64
        stranger.sendall(b"p" * 32)
        assert stranger.recv(1) == b""
    assert not echo.got


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n", b"x" * 1000])
def test_a_stranger_is_sent_away(links: Links, said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_channel, "GREET_SECONDS", 0.2)
    with closing(socket.create_connection((links.contact.host, links.contact.port), PATIENCE)) as stranger:
        stranger.sendall(said)
        try:
            assert stranger.recv(1) == b""
        except ConnectionResetError:
            assert said, "what it sent was not read"


def test_strangers_keep_no_server_out(
    links: Links, link_to: Callable[..., Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They had all connections, each for as long as it may take to prove the key."""
    monkeypatch.setattr(module, "MOST_LINKS", 3)
    assert link_to(links.contact).call(b"before").wait() == b"erofeb"
    address, silent = (links.contact.host, links.contact.port), link_channel.GREET_SECONDS / 2
    with closing(socket.create_connection(address)) as first, closing(socket.create_connection(address)) as second:
        assert link_to(links.contact).call(b"abc").wait() == b"cba"
        first.settimeout(silent)
        assert first.recv(1) == b"", "the oldest one has made room"
        assert link_to(links.contact).call(b"def").wait() == b"fed"
        assert second.recv(1) == b""
    with pytest.raises(NotTaken):
        link_to(links.contact).call(b"one too many").wait()


def test_a_call_is_not_taken_where_nobody_listens(links: Links, link_to: Callable[..., Link]) -> None:
    links.stop(0.0)
    link = link_to(links.contact)
    with pytest.raises(NotTaken):
        link.call(b"a").wait(PATIENCE)
    eventually(lambda: link.has_ended)
    with pytest.raises(NotTaken):
        link.call(b"b").wait(PATIENCE)


def test_a_server_that_stops_answers_what_it_has_begun(links: Links, echo: Echo, link_to: Callable[..., Link]) -> None:
    link = link_to(links.contact)
    echo.holds = True
    begun = link.call(b"begun")
    eventually(lambda: echo.waiting)
    stopping = threading.Thread(target=links.stop, args=[PATIENCE])
    stopping.start()
    eventually(links._stopped.is_set)
    with pytest.raises(NotTaken):
        link.call(b"late").wait(PATIENCE)
    echo.answer()
    stopping.join(PATIENCE)
    assert begun.wait(PATIENCE) == b"nugeb"
    assert [payload for _, payload in echo.got] == [b"begun"]


def test_a_call_that_comes_while_a_server_stops_is_not_taken(
    links: Links, echo: Echo, link_to: Callable[..., Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was sent, and the server said goodbye before it read it."""
    link, take, came = link_to(links.contact), module._Caller._take, list[Callable[[], None]]()
    assert link.call(b"ab").wait(PATIENCE) == b"ba"

    def takes_late(caller: module._Caller, number: int, payload: bytes) -> None:
        came.append(partial(take, caller, number, payload))

    monkeypatch.setattr(module._Caller, "_take", takes_late)
    late = link.call(b"late")
    eventually(lambda: came)
    monkeypatch.setattr(module, "_GOODBYE_SECONDS", 0.1)
    links.stop(PATIENCE)
    came[0]()
    with pytest.raises(NotTaken):
        late.wait(PATIENCE)
    assert [payload for _, payload in echo.got] == [b"ab"]


def test_nobody_knows_of_a_call_whose_link_is_lost(links: Links, echo: Echo, link_to: Callable[..., Link]) -> None:
    link = link_to(links.contact)
    echo.holds = True
    begun = link.call(b"begun")
    eventually(lambda: echo.waiting)
    links.stop(0.0)
    with pytest.raises(LinkLost):
        begun.wait(PATIENCE)
    echo.answer()


def test_a_call_that_is_not_answered_is_given_up_alone(links: Links, echo: Echo, link_to: Callable[..., Link]) -> None:
    """Its late answer goes to nobody."""
    link = link_to(links.contact, patience=PATIENCE)
    echo.holds = True
    slow = link.call(b"slow")
    eventually(lambda: echo.waiting)
    later = link.call(b"later")
    link._calls[1].since -= PATIENCE
    with pytest.raises(LinkLost):
        slow.wait(PATIENCE)
    eventually(lambda: len(echo.waiting) == 2)
    echo.answer()
    assert later.wait(PATIENCE) == b"retal"
    assert not link.has_ended


def test_a_call_of_which_was_said_that_it_is_not_begun_is_not_sent(
    links: Links, echo: Echo, link_to: Callable[..., Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link ends in another thread, after the loop took the call out to send it. Its step would be done twice."""
    gathered = link_channel._gathered

    def ends(outbox: deque[tuple[int, bytes]]) -> Entries:
        entries = gathered(outbox)
        if entries[0][1] == b"late":
            monkeypatch.setattr(link._channel, "close", lambda: None)  # what was sent before that arrives
            link.end()
        return entries

    monkeypatch.setattr(link_channel, "_gathered", ends)
    link = link_to(links.contact)
    assert link.call(b"ab").wait(PATIENCE) == b"ba"
    late = link.call(b"late")
    with pytest.raises(NotTaken):
        late.wait(PATIENCE)
    monkeypatch.undo()
    eventually(lambda: link.has_ended)
    link.end()
    eventually(lambda: not links._callers)
    assert [payload for _, payload in echo.got] == [b"ab"]


def test_a_slow_server_says_that_it_is_there(
    links: Links, echo: Echo, link_to: Callable[..., Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(module, "SILENT_SECONDS", 5.0)
    link = link_to(links.contact)
    echo.holds = True
    slow, begun = link.call(b"slow"), link._heard
    eventually(lambda: link._heard > begun)
    assert not slow.done
    echo.answer()
    assert slow.wait(PATIENCE) == b"wols"


def test_a_server_that_stands_still_is_given_up(
    links: Links, link_to: Callable[..., Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine still takes what is sent."""
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.2)
    stands_still = threading.Event()
    monkeypatch.setattr(module._Caller, "_take", lambda *_: stands_still.wait(PATIENCE))
    link = link_to(links.contact)
    with pytest.raises(LinkLost):
        link.call(b"a").wait(PATIENCE)
    stands_still.set()
    assert link.has_ended


@pytest.mark.parametrize("stood_still", [True, False])
def test_a_server_that_stood_still_itself_gives_no_other_one_up(
    stood_still: bool, links: Links, echo: Echo, link_to: Callable[..., Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came meanwhile is still to be read."""
    link = link_to(links.contact)
    assert link.call(b"ab").wait(PATIENCE) == b"ba"
    monkeypatch.setattr(module, "_LOOK_SECONDS", 60.0)
    echo.holds = True
    slow = link.call(b"slow")
    eventually(lambda: echo.waiting)
    silent = 121.0 if stood_still else 100.0
    link._calls[2].since -= silent
    for name in ("_heard", "_looked"):
        setattr(link, name, getattr(link, name) - silent)
    link._patience = 1000.0
    link._home.loop.call_soon_threadsafe(link._look)
    if stood_still:
        echo.answer()
        assert slow.wait(PATIENCE) == b"wols"
    else:
        with pytest.raises(LinkLost):
            slow.wait(PATIENCE)


def test_a_server_that_takes_no_byte_is_given_up(
    links: Links, link_to: Callable[..., Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_channel, "SEND_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        link = link_to(links.contact._replace(port=listener.getsockname()[1]))
        large = [link.call(b"x" * (1 << 20)) for _ in range(32)]
        connection, _ = listener.accept()
        with connection:
            link_channel.answer_call(connection, links.contact.key)
            with pytest.raises(LinkLost):
                large[0].wait(PATIENCE)
            assert link.has_ended


def test_calls_go_on_while_their_connections_move_to_another_loop(links: Links, link_to: Callable[..., Link]) -> None:
    link = link_to(links.contact)
    calls: list[Future[bytes]] = []
    with turning_loop() as inbox:
        for turn in range(40):
            calls += [link.call(b"%d" % (100 + 10 * turn + number)) for number in range(10)]
            for home in (link._home, links._home):
                in_turn(inbox, partial(home.use, None if turn % 2 else inbox))
        assert [call.wait(PATIENCE)[::-1] for call in calls] == [b"%d" % number for number in range(100, 500)]
    assert link.call(b"ab").wait(PATIENCE) == b"ba"


def test_a_frame_that_is_due_is_sent_though_the_loop_that_was_about_to_send_it_stands_still(
    links: Links, link_to: Callable[..., Link]
) -> None:
    """A server that stops moves its connections, and then waits for what is under way."""
    link = link_to(links.contact)
    assert link.call(b"ab").wait(PATIENCE) == b"ba"

    def move() -> None:
        call = link.call(b"cd")
        link._home.use(None)
        assert call.wait(PATIENCE) == b"dc"

    with turning_loop() as inbox:
        in_turn(inbox, lambda: link._home.use(inbox))
        assert link.call(b"ef").wait(PATIENCE) == b"fe"
        in_turn(inbox, move)


def test_answers_that_nobody_takes_count_as_under_way_and_are_not_gathered(links: Links, echo: Echo) -> None:
    with closing(socket.create_connection((links.contact.host, links.contact.port), PATIENCE)) as connection:
        nonce = b"n" * 32
        connection.sendall(link_channel._MAGIC + nonce + CALLER.bytes)
        both = nonce + connection.recv(64, socket.MSG_WAITALL)[:32] + CALLER.bytes
        connection.sendall(link_channel._proof(links.contact.key, b"caller" + both))
        key = link_channel._proof(link_channel._proof(links.contact.key, both), b"call")
        for number in range(1, 33):
            body = link_channel._encode([(number, b"x" * (1 << 20))])
            head = link_channel._HEAD.pack(len(body), link_channel._digest(key, number, body))
            connection.sendall(head + body)
        assert eventually(lambda: len(echo.got) == 32)
        (caller,) = links._callers
        channel = caller._channel
        assert eventually(lambda: channel._unsent)
        assert links._under_way > 16
        assert sum(map(len, channel._unsent)) <= 2 << 20


@pytest.mark.parametrize("port", [70_000, -1])
def test_a_server_whose_address_makes_no_sense_is_not_called(
    port: int, links: Links, link_to: Callable[..., Link]
) -> None:
    with pytest.raises(NotTaken):
        link_to(links.contact._replace(port=port)).call(b"a").wait(PATIENCE)


def test_an_idle_link_ends(links: Links, link_to: Callable[..., Link], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.1)
    link = link_to(links.contact)
    assert link.call(b"ab").wait(PATIENCE) == b"ba"
    eventually(lambda: link.has_ended)
    eventually(lambda: not links._callers)


def test_calls_of_a_link_are_bounded(
    links: Links, echo: Echo, link_to: Callable[..., Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_CALLS", 3)
    echo.holds = True
    link = link_to(links.contact)
    taken = [link.call(b"%d" % number) for number in range(3)]
    with pytest.raises(NotTaken):
        link.call(b"more").wait(PATIENCE)
    eventually(lambda: len(echo.waiting) == 3)
    echo.answer()
    assert [call.wait(PATIENCE) for call in taken] == [b"0", b"1", b"2"]


class _Between:
    """Passes bytes on between two ends, and changes some of those that callers send."""

    def __init__(self, contact: Contact, change: Callable[[bytes], bytes]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.contact = contact._replace(port=self._listener.getsockname()[1])
        self._to, self.change = (contact.host, contact.port), change
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with self._listener, self._listener.accept()[0] as here, socket.create_connection(self._to) as there:
            back = threading.Thread(target=self._pass, args=[there, here, bytes], daemon=True)
            back.start()
            self._pass(here, there, lambda data: self.change(data))  # noqa: PLW0108 - the test replaces it
            back.join(PATIENCE)

    def _pass(self, source: socket.socket, sink: socket.socket, change: Callable[[bytes], bytes]) -> None:
        try:
            while data := source.recv(1 << 16):
                sink.sendall(change(data))
            sink.shutdown(socket.SHUT_WR)
        except OSError as error:
            logging.getLogger(__name__).debug("%s", error)


@pytest.mark.parametrize(
    "change", [lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: data + data], ids=["changed", "repeated"]
)
def test_nobody_between_the_servers_changes_or_repeats_a_call(
    links: Links, echo: Echo, link_to: Callable[..., Link], change: Callable[[bytes], bytes]
) -> None:
    between = _Between(links.contact, bytes)
    link = link_to(between.contact)
    assert link.call(b"ab").wait(PATIENCE) == b"ba"
    between.change = change
    call = link.call(b"cd")
    eventually(lambda: link.has_ended)
    if change(b"x") == b"xx":
        assert [payload for _, payload in echo.got] == [b"ab", b"cd"]
    else:
        assert [payload for _, payload in echo.got] == [b"ab"]
        with pytest.raises(LinkLost):
            call.wait(PATIENCE)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])  # noqa: S104 - they are refused
def test_nobody_listens_at_an_address_that_others_cannot_find(host: str) -> None:
    with pytest.raises(OSError, match="the address of no machine"):
        Links(host)


def test_the_address_towards_a_node_on_another_machine_comes_first() -> None:
    outside = towards([("192.0.2.1", 9042)])  # an address for examples, to which nothing is sent
    if outside is None:
        pytest.skip("this machine reaches no other one")
    assert towards([("127.0.0.1", 9042), ("192.0.2.1", 9042)]) == outside != "127.0.0.1"


def test_the_address_towards_a_node_is_one_of_this_machine() -> None:
    assert towards([("127.0.0.1", 9042)]) == "127.0.0.1"
    assert towards([("no such host.invalid", 9042)]) is None


@pytest.mark.parametrize(
    "asked",
    ["", "0.0.0.0", "[::]:0", "192.0.2.254", "127.0.0.1:x", "127.0.0.1:99999", "a..b"],  # noqa: S104 - they are refused
)
def test_an_address_that_cannot_be_used_is_refused(asked: str) -> None:
    with pytest.raises(ConfigurationError, match=r"\[cassandra\] peer_address: .*; give an address of this machine"):
        _links(Options(peer_address=asked))


def test_a_port_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"cannot listen at '127.0.0.1:{port}': .*in use"):
            _links(Options(peer_address=f"127.0.0.1:{port}"))


@pytest.mark.parametrize(
    ("asked", "host"),
    [("127.0.0.1", "127.0.0.1"), ("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), (AUTO, "127.0.0.1")],
)
def test_a_server_is_reached_at_its_address(asked: str, host: str) -> None:
    links = _links(Options(peer_address=asked))
    assert links is not None
    try:
        assert links.contact.host == host
    finally:
        links.stop(0.0)


def test_a_server_that_is_not_asked_to_does_not_listen() -> None:
    assert _links(Options(peer_address=OFF)) is None
    assert _links(Options(peer_address=AUTO, tls_ca="ca.pem")) is None
