"""The WSGI application on other servers: what is its own; ``test_alike`` has the answers that all ways to serve have in common.

Its own are threads that wait for commits and readers, streams that a thread hands on piece by piece, and calls that come
as an environ: path, headers, body and the peer's address.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

from qdo.client import Client, NewMessage
from tests.support import raw, servers
from tests.support.client import Server, new_name, refused
from tests.support.key_site import Site
from tests.support.live import EVENTS, LINES, read_live, until_waiting
from tests.support.servers import APPLICATIONS, RunningServer, eventually
from tests.support.trusting import TrustingServer, asking, login, people, settings, subjects, token_key_name, watched

PAGE = "https://app.example.org"
FORMS = pytest.mark.parametrize("accept", [EVENTS, LINES])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, key_site: Site) -> Iterator[TrustingServer]:
    """``pserve`` with an ini file of PasteDeploy; it trusts issuers and pages of one origin."""
    folder = tmp_path_factory.mktemp("pserve")
    text = f"cors_origins = {PAGE}\n{settings(folder, key_site)}"
    with watched(folder, lambda: servers.pserve(folder, settings=text)) as found:
        yield found


@pytest.fixture(scope="module")
def gunicorn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with servers.gunicorn(tmp_path_factory.mktemp("gunicorn")) as found:
        yield found


@pytest.mark.parametrize("served", ["wsgi_server", "gunicorn"])
def test_a_server_needs_the_name_of_the_application_only(request: pytest.FixtureRequest, served: str) -> None:
    with Server(request.getfixturevalue(served)) as server:
        name = server.queue()
        server.fill(name, "a")
        assert server.bodies(name) == ["a"]
        refused(server.request("GET", "/v1/queuey/%C3%BC"), 404, "InvalidQueueName")
        with read_live(server, name) as stream:
            stream.next("open")
            assert stream.next().body == "a"


def test_a_client_does_all_that_there_is_to_do(server: Server) -> None:
    with Client(server.url, server.application, server.key) as client:
        name = client.create_queue(new_name(), partitions=2).name
        placed = client.append(name, NewMessage("one", partition=1, content_type="text/plain"))
        client.append_batch(name, [NewMessage(f"{number}", partition=2) for number in range(2500)])
        client.put(name, placed, "new")

        assert [message.text for message in client.get(name, placed)] == ["new"]
        assert client.get_raw(name, placed).body == b"new"
        assert len(list(client.iterate(name, limit=100))) == 2501
        with client.stream_ndjson(name) as lines:
            assert sum(1 for _ in lines) == 2501
        with client.read_arrow(name) as batches:
            assert sum(batch.num_rows for batch in batches) == 2501
        client.delete(name, placed)
        assert client.queue_info(name).depth == 2500
        assert client.update_queue(name, partitions=3).partitions == 3
        client.delete_queue(name)
        assert client.find_queue(name) is None


@pytest.mark.parametrize("size", [1, 100_000, 1 << 20])
def test_bodies_of_any_size_come_back_as_they_were(server: Server, size: int) -> None:
    name = server.queue()
    body = bytes(number % 251 for number in range(size))
    key = server.add(name, body)["key"]

    assert server.call("GET", name, key, params={"raw": "true"}).content == body


@pytest.mark.parametrize("segment", [b"%zz", b"%", b"a%2", b"%ff", b"%c3%28", b"%ed%a0%80", b"%00", b"a%00b"])
def test_a_path_that_is_no_text_is_400(gunicorn: RunningServer, segment: bytes) -> None:
    """A server that hands on the path as it stood: one that has decoded it hides broken escapes."""
    for path in (b"/v1/queuey/" + segment, b"/v1/" + segment, b"/v1/queuey/q/" + segment, b"/" + segment):
        status, said = raw.ask(gunicorn.port, "GET", path, APPLICATIONS["queuey"][0])
        assert (status, set(said["error_msg"])) == (400, {"path"}), path


@pytest.mark.parametrize("segment", [b"%ff", b"%c3%28", b"%ed%a0%80", b"%00", b"a%00b", b"x" * 8000])
def test_a_decoded_path_that_is_no_text_is_refused(running: RunningServer, segment: bytes) -> None:
    for path in (b"/v1/queuey/" + segment, b"/v1/" + segment, b"/v1/queuey/q/" + segment, b"/" + segment):
        status, said = raw.ask(running.port, "GET", path, APPLICATIONS["queuey"][0])
        assert (status, set(said["error_msg"])) == (414 if len(segment) > 4096 else 400, {"path"}), path


def test_an_upload_in_chunks_is_taken(server: Server) -> None:
    """The server below gathers it; the server as shipped asks for a length."""
    name = server.queue()

    answer = server.call("POST", name, data=iter([b"in ", b"chunks"]))

    assert answer.status_code == 201
    assert server.bodies(name) == ["in chunks"]


def test_an_upload_that_is_cut_short_stores_nothing(server: Server, running: RunningServer) -> None:
    name = server.queue()
    head = f"POST /v1/queuey/{name} HTTP/1.1\r\nHost: q\r\nAuthorization: Application {server.key}\r\n"

    raw.send(running.port, f"{head}Content-Length: 10\r\n\r\nhell".encode(), half_close=True)
    raw.cut(running.port, f"{head}Content-Length: 10\r\n\r\nhell".encode())

    assert server.info(name)["depth"] == 0
    assert running.beats()


def test_many_writers_at_once_lose_nothing(server: Server, running: RunningServer) -> None:
    name = server.queue()

    def write(number: int) -> None:
        with Server(running) as writer:
            for each in range(20):
                writer.add(name, f"{number}-{each}")

    writers = [Thread(target=write, args=(number,)) for number in range(12)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    found = server.everything(name)
    assert sorted(found) == sorted(f"{number}-{each}" for number in range(12) for each in range(20))
    for number in range(12):
        assert [body for body in found if body.startswith(f"{number}-")] == [f"{number}-{each}" for each in range(20)]


# Live reading


@FORMS
def test_a_stream_gives_what_is_there_then_what_comes_and_each_cursor_goes_on(server: Server, accept: str) -> None:
    name = server.queue(partitions=2)
    server.fill(name, "there")
    with read_live(server, name, accept=accept) as stream:
        opened = stream.next("open")
        events = [stream.next()]
        for body in "ab":
            server.fill(name, body, partition=2)
            events.append(stream.next())

    assert (opened.said["queue"], [event.body for event in events]) == (name, ["there", "a", "b"])
    assert stream.answer.headers["Content-Type"] == accept
    assert stream.answer.headers["X-Accel-Buffering"] == "no"
    cursor = str(events[1].cursor)
    given: dict[str, Any] = {"headers": {"Last-Event-ID": cursor}} if accept == EVENTS else {"cursor": cursor}
    with read_live(server, name, accept=accept, **given) as again:
        again.next("open")
        assert again.next().body == "b"


@FORMS
def test_a_deleted_queue_ends_its_stream(server: Server, accept: str) -> None:
    name = server.queue()

    with read_live(server, name, accept=accept) as stream:
        stream.next("open")
        server.call("DELETE", name)
        assert stream.next("reset").said["code"] == "QueueNotFound"
        assert stream.rest() == ["end"]


def test_a_head_of_a_stream_has_no_end_to_wait_for(server: Server) -> None:
    answer = server.call("HEAD", server.queue(), headers={"Accept": EVENTS})

    assert (answer.status_code, answer.headers["Content-Type"], answer.content) == (200, EVENTS, b"")
    until_waiting(server, 0)


def test_an_append_wakes_a_poll(server: Server, running: RunningServer) -> None:
    name, found = server.queue(), list[str]()

    def poll() -> None:
        with Server(running) as reader:
            found.extend(reader.bodies(name, wait=20))

    reader = Thread(target=poll)
    reader.start()
    until_waiting(server, 1)
    server.fill(name, "a")
    reader.join()

    assert found == ["a"]


def test_threads_that_wait_leave_one_for_others(wsgi_server: RunningServer) -> None:
    with Server(wsgi_server) as server:
        name = server.queue()
        with read_live(server, name) as a, read_live(server, name) as b, read_live(server, name) as c:
            for stream in (a, b, c):
                stream.next("open")
            fourth = server.get(name, wait=20)
            server.fill(name, "a")
            assert [stream.next().body for stream in (a, b, c)] == ["a"] * 3
        until_waiting(server, 0)

    assert (fourth.status_code, fourth.headers["Queuey-Wait"]) == (200, "refused")


# Callers


def test_every_kind_of_credential_counts(running: TrustingServer, server: Server) -> None:
    principals = "bid:joe@example.org,oidc:joe@example.org,oidc:subjects:248289761001,app:other"
    name = server.queue(principles=principals)
    server.fill(name, "for joe")
    good = {
        "key": f"Application {APPLICATIONS['other'][0]}",
        "oidc by address": f"Bearer {login().token()}",
        "oidc by subject": f"Bearer {subjects().token()}",
        "browserid": f"BrowserID {people().whole()}",
    }
    with asking(running, good["browserid"]) as joe:
        good["token"] = f"Bearer {joe.request('POST', '/tokens/queuey').json()['token']}"

    for what, credential in good.items():
        with asking(running, credential) as joe:
            assert joe.bodies(name) == ["for joe"], what
            refused(joe.post(name, "x"), 403, "Forbidden")
    for bad, code in (("Bearer x", "InvalidToken"), (f"{good['key']};BrowserID x~y", "InvalidBrowserID")):
        with asking(running, bad) as caller:
            refused(caller.get(name), 401, code)
    with asking(running, None) as anybody:
        refused(anybody.get(name), 403, "Forbidden")
    assert token_key_name(server)


def test_a_page_of_a_named_origin_may_ask(server: Server) -> None:
    name = server.queue()
    asks = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}

    asked = server.call("OPTIONS", name, headers={"Origin": PAGE, **asks})
    other = server.call("OPTIONS", name, headers={"Origin": "https://evil.example.org", **asks})
    with read_live(server, name, headers={"Origin": PAGE}) as stream:
        stream.next("open")

    assert (asked.status_code, asked.content) == (204, b"")
    assert "authorization" in asked.headers["Access-Control-Allow-Headers"]
    refused(other, 405, "MethodNotAllowed")
    assert "Access-Control-Allow-Origin" not in other.headers
    for answer in (asked, stream.answer, server.call("GET", "absent", headers={"Origin": PAGE})):
        assert answer.headers["Access-Control-Allow-Origin"] == PAGE


def test_the_metrics_are_for_this_machine_and_count_what_it_does(server: Server) -> None:
    name = server.queue()

    def appended() -> float:
        text = server.request("GET", "/metrics").text
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("queuey_messages_appended"))

    before = appended()
    server.add(name)

    assert eventually(lambda: appended() > before)
