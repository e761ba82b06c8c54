"""Tokens of the server's own: got for another credential, or by an application for its users."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
import requests

from qdo import Client
from queuey.errors import Forbidden, InvalidToken
from queuey.http.exchange import ARROW
from queuey.model.dead_letters import STORY_HEADER, Story
from tests.support import servers
from tests.support.client import Json, Server, refused
from tests.support.servers import APPLICATIONS
from tests.support.trusting import FORMER_KEY, TOKEN_KEY, TrustingServer, asking, login, people

JOE, ANN = "bid:joe@example.org", "oidc:ann@example.org"
OWN_KEY, OTHER_KEY = APPLICATIONS["queuey"][0], APPLICATIONS["other"][0]
VERBS = ["list", "create", "configure", "append", "read", "delete", "commit", "receive"]


@pytest.fixture
def running(trusting_shipped_server: TrustingServer) -> TrustingServer:
    """Tokens are in no store."""
    return trusting_shipped_server


def get(server: Server, application: str = "queuey", **fields: str) -> requests.Response:
    return server.request("POST", f"/tokens/{application}", data=fields)


def token(server: Server, application: str = "queuey", **fields: str) -> str:
    answer = get(server, application, **fields)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


@pytest.fixture
def joe(running: TrustingServer) -> Iterator[Server]:
    """A client that proves to be joe, by an assertion."""
    with asking(running, f"BrowserID {people().whole()}") as seen:
        yield seen


def test_an_assertion_is_exchanged_for_a_token_of_the_same_principal(
    running: TrustingServer, server: Server, joe: Server
) -> None:
    name = server.queue(principles=JOE)
    server.fill(name, "for joe")

    answer = get(joe)

    assert answer.status_code == 201
    assert answer.headers["Cache-Control"] == "no-store"
    told: Json = answer.json()
    assert {key: told[key] for key in told.keys() - {"token", "expires"}} == {
        "status": "ok",
        "token_type": "Bearer",
        "expires_in": 3600,
        "principal": JOE,
        "application": "queuey",
        "queues": None,
        "verbs": VERBS,
    }
    with asking(running, f"Bearer {told['token']}") as later:
        assert later.bodies(name) == ["for joe"]
        refused(later.post(name), 403, "Forbidden")


def test_a_providers_token_is_exchanged_too(running: TrustingServer, server: Server) -> None:
    name = server.queue(principles="oidc:joe@example.org")
    with asking(running, f"Bearer {login().token()}") as joe:
        own = token(joe, verbs="read", life="60")

    with asking(running, f"Bearer {own}") as later:
        assert later.get(name).status_code == 200


def test_an_application_mints_for_its_users(running: TrustingServer, server: Server) -> None:
    """The way notification services work: the user needs no issuer, the application knows the user."""
    name, other = server.queue(principles=ANN), server.queue(principles=ANN)
    server.fill(name, "for ann")

    minted = get(server, principal="oidc:ann@Example.org", queues=f"{name}, {name}", verbs="read", life="90").json()

    assert (minted["principal"], minted["queues"], minted["verbs"]) == (ANN, [name], ["read"])
    assert minted["expires_in"] == 90
    with asking(running, f"Bearer {minted['token']}") as ann:
        assert ann.bodies(name) == ["for ann"]
        (message,) = ann.read(name)
        refused(ann.call("DELETE", name, message["message_id"]), 403, "Forbidden")
        refused(ann.get(other), 403, "Forbidden")
        refused(ann.call("GET", params={"mine": "true"}), 403, "Forbidden")


def test_an_application_mints_parts_of_its_own_rights(running: TrustingServer, server: Server) -> None:
    """A token to append to one queue, for a device that is not trusted with the key."""
    name, other = server.queue(), server.queue()

    with asking(running, f"Bearer {token(server, queues=name, verbs='append')}") as device:
        assert device.post(name, "measured").status_code == 201
        for answer in (device.post(other), device.get(name), device.call("DELETE", name), device.create()):
            refused(answer, 403, "Forbidden")
    assert server.bodies(name) == ["measured"]


def test_no_token_is_made_that_no_server_takes(running: TrustingServer, server: Server) -> None:
    """Long names of queues, as SQS clients make them, made a token of 12,000 characters."""
    names = [f"{number:03d}{'q' * 77}" for number in range(100)]
    answer = get(server, queues=",".join(names))
    refused(answer, 400, "queues")

    with asking(running, f"Bearer {token(server, queues=','.join(names[:70]), verbs='read')}") as reader:
        refused(reader.get("another"), 403, "Forbidden")


def story(queue: str) -> str:
    return json.dumps(Story(queue, 1, "1f9f6640e56711f189bf02fc00000001", "workers", 3, "no reason")._asdict())


def test_a_token_writes_dead_letters_of_its_queues_only(running: TrustingServer, server: Server) -> None:
    """A redrive or a move, which the owner begins, would take such a letter to the queue that its story names."""
    dead, jobs, other = server.queue(), server.queue(), server.queue()
    id_ = server.fill(dead, "first")[0]
    header = f"Queuey-Header-{STORY_HEADER}"

    def each_way(worker: Server, queue: str) -> list[requests.Response]:
        told = story(queue)
        entry = {"body": "x", "headers": {STORY_HEADER: told}}
        table = pa.table(
            {"body": [b"x"], "headers": pa.array([[(STORY_HEADER, told.encode())]], pa.map_(pa.string(), pa.binary()))}
        )
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return [
            worker.call("POST", dead, data=b"x", headers={header: told}),
            worker.call("POST", dead, json={"messages": [{"body": "y"}, entry]}),
            worker.call("POST", dead, params={"batch": "true"}, data=sink.getvalue(), headers={"Content-Type": ARROW}),
            worker.call("PUT", dead, id_, data=b"x", headers={header: told}),
            worker.call("POST", jobs, "leases", "workers", json={"append": [{"queue": dead, "messages": [entry]}]}),
        ]

    with asking(running, f"Bearer {token(server, queues=f'{dead},{jobs}', verbs='append,receive,read')}") as worker:
        assert [answer.status_code for answer in each_way(worker, jobs)] == [201, 201, 201, 200, 200]
        before = server.bodies(dead)
        for answer in each_way(worker, other):
            refused(answer, 403, "Forbidden")
        assert server.bodies(dead) == before
        assert worker.call("POST", dead, data=b"x", headers={header: "no story"}).status_code == 201
    assert {answer.status_code for answer in each_way(server, other)} == {200, 201}


def test_a_token_counts_on_the_paths_of_its_application_only(
    running: TrustingServer, server: Server, other: Server, joe: Server
) -> None:
    mine, theirs = server.queue(principles=JOE), other.queue(principles=JOE)
    assert joe.get(mine).status_code == 200

    for text in (token(joe), token(server, principal=JOE), token(server)):
        with asking(running, f"Bearer {text}", "other") as elsewhere:
            refused(elsewhere.get(theirs), 403, "Forbidden")
            refused(elsewhere.call("GET"), 403, "Forbidden")
            refused(elsewhere.call("GET", params={"mine": "true"}), 403, "Forbidden")
            refused(get(elsewhere, "other"), 403, "Forbidden")
    with asking(running, f"Bearer {token(joe, 'other')}", "other") as there:
        assert there.get(theirs).status_code == 200


def test_no_token_begets_a_token(running: TrustingServer, server: Server, joe: Server) -> None:
    for text in (token(joe), token(server), token(server, principal=JOE)):
        with asking(running, f"Bearer {text}") as later:
            refused(get(later), 403, "Forbidden")
            refused(get(later, principal=JOE), 403, "Forbidden")


@pytest.mark.parametrize(
    ("credential", "principal"),
    [
        (None, None),
        (None, JOE),
        ("joe", ANN),
        ("joe", "app:queuey"),
        ("joe", "oidc:joe@example.org"),
        ("other", "app:queuey"),
        ("other", JOE),
        ("own", "app:other"),
    ],
)
def test_nobody_gets_a_token_of_somebody_else(
    running: TrustingServer, credential: str | None, principal: str | None
) -> None:
    headers = {
        None: None,
        "joe": f"BrowserID {people().whole()}",
        "other": f"Application {OTHER_KEY}",
        "own": f"Application {OWN_KEY}",
    }
    with asking(running, headers[credential]) as caller:
        refused(get(caller, **({"principal": principal} if principal else {})), 403, "Forbidden")


def test_a_listed_application_gets_a_token_of_itself(running: TrustingServer, server: Server) -> None:
    name = server.queue(principles="app:other")
    with asking(running, f"Application {OTHER_KEY}") as other:
        text = token(other, verbs="read")

    with asking(running, f"Bearer {text}") as later:
        assert later.get(name).status_code == 200


def test_who_proves_several_principals_names_one(running: TrustingServer) -> None:
    with asking(running, f"BrowserID {people().whole()}; Bearer {login().token()}") as both:
        refused(get(both), 400, "principal")
        assert get(both, principal="oidc:joe@example.org").json()["principal"] == "oidc:joe@example.org"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"principal": "joe"}, {"principal"}),
        ({"principal": "bid:joe@example.org,app:queuey"}, {"principal"}),
        ({"queues": "a b"}, {"queues"}),
        ({"queues": ",".join(["q"] * 101)}, {"queues"}),
        ({"verbs": "write"}, {"verbs"}),
        ({"verbs": "read,"}, {"verbs"}),
        ({"life": "0"}, {"life"}),
        ({"life": "3601"}, {"life"}),
        ({"life": "1.5"}, {"life"}),
        ({"life": "x", "verbs": "x", "queues": "/"}, {"life", "verbs", "queues"}),
    ],
)
def test_what_is_wrong_in_a_request_is_named(server: Server, fields: dict[str, str], said: set[str]) -> None:
    refused(get(server, **fields), 400, *said)


JSON_FORM = b'{"principal": "bid:joe@example.org", "verbs": "read", "queues": "inbox"}'


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"json": {"principal": JOE, "verbs": "read", "queues": "inbox"}}, "body"),
        ({"data": JSON_FORM, "headers": {"Content-Type": "text/plain"}}, "body"),
        ({"data": JSON_FORM}, "body"),
        ({"data": JSON_FORM, "headers": {"Content-Type": "application/x-www-form-urlencoded"}}, JSON_FORM[:40]),
        ({"data": b"verbs=read", "headers": {"Content-Type": "multipart/form-data"}}, "body"),
        ({"data": b" ", "headers": {"Content-Type": "text/plain"}}, "body"),
        ({"params": {"verbs": "read"}}, "query"),
        ({"params": {"verb": "read"}}, "query"),
        ({"params": {"verbs": ""}}, "query"),
        ({"data": {"verb": "read"}}, "verb"),
        ({"data": {"principal": JOE, "queue": "inbox"}}, "queue"),
        ({"data": {"principal": ""}}, "principal"),
        ({"data": {"verbs": "", "queues": ""}}, "verbs"),
        ({"data": [("verbs", "list"), ("verbs", "read")]}, "verbs"),
        ({"files": {"verb": (None, "read")}}, "verb"),
    ],
)
def test_a_request_that_is_not_understood_makes_no_token(
    server: Server, given: dict[str, Any], field: str | bytes
) -> None:
    """What is left out is no restriction, so nothing that was sent may count as left out."""
    said = refused(server.request("POST", "/tokens/queuey", **given), 400)

    name = field if isinstance(field, str) else field.decode()
    assert any(key.startswith(name) for key in said)


def test_an_empty_request_is_for_everything(server: Server) -> None:
    for given in ({}, {"data": b"", "headers": {"Content-Type": "application/json"}}):
        told = server.request("POST", "/tokens/queuey", **given).json()
        assert (told["principal"], told["queues"], told["verbs"]) == ("app:queuey", None, VERBS)


def test_the_paths_of_tokens(server: Server, anonymous: Server) -> None:
    assert server.request("POST", "/tokens/queuey/").status_code == 201
    for method in ("GET", "PUT", "DELETE"):
        answer = server.request(method, "/tokens/queuey")
        assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    for path in ("/tokens", "/tokens/", "/tokens/queuey/q", "/v1/tokens/x/y/z"):
        assert server.request("POST", path).status_code == 404
    refused(anonymous.request("POST", "/tokens/nobody"), 404, "ApplicationNotFound")
    refused(anonymous.request("POST", "/tokens/queuey"), 403, "Forbidden")


def test_an_application_may_be_called_tokens_and_a_queue_too(server: Server) -> None:
    assert server.create("tokens").status_code == 201
    assert server.post("tokens", "x").status_code == 201


def test_a_server_without_token_keys_makes_none(shipped_server: Any) -> None:
    with Server(shipped_server) as server:
        assert "tokens" in refused(get(server), 404, "NotFound")["NotFound"]


def test_a_former_key_still_verifies_until_it_is_taken_out(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Rotation over restarts: old and new side by side, then the new one alone."""
    folder = tmp_path_factory.mktemp("rotating")
    keys = (f"keys = {FORMER_KEY}", f"keys =\n  {TOKEN_KEY}\n  {FORMER_KEY}", f"keys = {TOKEN_KEY}")
    tokens, taken = list[str](), list[list[int]]()
    for text in keys:
        with servers.shipped(folder, settings=f"[tokens]\n{text}\n") as running, Server(running) as server:
            server.create("q", principles=ANN)
            tokens.append(token(server, principal=ANN))
            seen = []
            for text_of_one in tokens:
                with asking(running, f"Bearer {text_of_one}") as ann:
                    seen.append(ann.get("q").status_code)
            taken.append(seen)

    assert taken == [[200], [200, 200], [401, 200, 200]]


def test_the_client_gets_and_shows_tokens(running: TrustingServer, server: Server) -> None:
    name = server.queue(principles=ANN)
    server.fill(name, "for ann")

    with Client(running.url, "queuey", OWN_KEY) as application:
        minted = application.new_token(ANN, queues=[name], verbs=["read"], life_seconds=60)

    assert (minted.principal, minted.application, minted.queues, minted.verbs) == (ANN, "queuey", (name,), ("read",))
    assert minted.text not in repr(minted)
    with Client(running.url, "queuey", OWN_KEY, token=minted.text) as ann:
        assert [message.text for message in ann.iterate(name)] == ["for ann"]
        with pytest.raises(Forbidden):
            ann.append(name, "x")
    with Client(running.url, "queuey", token="x") as nobody, pytest.raises(InvalidToken):
        nobody.read(name)
    with pytest.raises(InvalidToken, match="characters"):
        Client(running.url, "queuey", token="a\nb")


def test_the_client_lists_the_queues_that_name_it(running: TrustingServer, fresh: Server) -> None:
    for number in range(5):
        fresh.create(f"q{number}", principles=ANN)
    fresh.create("other")
    with Client(running.url, fresh.application, fresh.key) as application:
        minted = application.new_token(ANN, verbs=["list"])

    with Client(running.url, fresh.application, token=minted.text) as ann:
        assert [queue.name for queue in ann.queues(mine=True, page_size=2)] == [f"q{number}" for number in range(5)]
