"""Rights that end while a caller waits: what comes later is for no key, token or principal that is gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from queuey.security.app_keys import digest_of, label_of
from tests.support import servers
from tests.support.client import Json, Server, refused
from tests.support.commands import done, run_in
from tests.support.live import LINES, read_live, until_waiting
from tests.support.servers import RunningServer, eventually
from tests.support.sqs_clients import SqsServer, sqs_client, sqs_server
from tests.support.trusting import MAKES_TOKENS, asking

JOE = "bid:joe@example.org"
BODY = "for some alone"


@dataclass(frozen=True)
class House:
    """A server that makes tokens, and where its keys are."""

    running: RunningServer
    variables: dict[str, str]

    def caller(self, server: Server, **fields: str) -> Server:
        """A user of the application, with a token."""
        answer = server.request("POST", "/tokens/queuey", data={"principal": JOE, **fields})
        assert answer.status_code == 201, answer.text
        return asking(self.running, f"Bearer {answer.json()['token']}")


def _house(folder: Path, way: str) -> Iterator[House]:
    start = {"shipped": servers.shipped, "wsgi": servers.wsgi}[way]
    with start(folder, settings=MAKES_TOKENS) as running:
        yield House(running, {"QUEUEY_DATA": str(folder / "data")})


@pytest.fixture(scope="module", params=["shipped", "wsgi"])
def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    yield from _house(tmp_path_factory.mktemp("house"), request.param)


@pytest.fixture
def server(house: House) -> Iterator[Server]:
    with Server(house.running) as seen:
        yield seen


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


Wait = Callable[[Server, str], requests.Response]
WAITS: dict[str, Wait] = {
    "poll": lambda caller, queue: caller.get(queue, wait=20),
    "poll of several": lambda caller, queue: caller.call("GET", params={"queues": queue, "wait": 20}),
    "receive": lambda caller, queue: caller.call("POST", queue, "leases", "g", json={"receive": {"wait": 60}}),
    "receive from several": lambda caller, queue: caller.call(
        "POST", params={"receive": "g"}, json={"queues": [queue], "receive": {"wait": 60}}
    ),
}


@pytest.fixture(params=list(WAITS))
def wait(request: pytest.FixtureRequest) -> Wait:
    return WAITS[request.param]


def begun(aside: ThreadPoolExecutor, server: Server, wait: Wait, caller: Server, queue: str) -> Future[Json]:
    """A wait that is under way; its refusal, or the whole answer."""
    until_waiting(server, 0)
    answer = aside.submit(lambda: wait(caller, queue).json())
    until_waiting(server, 1)
    return answer


def codes(said: Json) -> set[str]:
    """All that an answer refuses."""
    return {str(said.get("code")), *[str(one["code"]) for one in said.get("refused", ())]}


def test_a_reader_that_is_named_no_more_gets_nothing_that_comes_later(
    house: House, server: Server, aside: ThreadPoolExecutor, wait: Wait
) -> None:
    queue = server.queue(principles=f"{JOE},app:queuey")
    with house.caller(server) as joe:
        answer = begun(aside, server, wait, joe, queue)

        assert server.call("PUT", queue, data={"principles": "app:queuey"}).status_code == 200
        server.add(queue, BODY)
        said = answer.result()

    assert "Forbidden" in codes(said)
    assert not said.get("messages")
    assert server.everything(queue) == [BODY]


def test_a_queue_that_was_made_anew_is_not_the_one_that_a_reader_waits_for(
    house: House, server: Server, aside: ThreadPoolExecutor, wait: Wait
) -> None:
    queue = server.queue(principles=f"{JOE},app:queuey")
    with house.caller(server) as joe:
        answer = begun(aside, server, wait, joe, queue)

        server.call("DELETE", queue)
        server.create(queue, principles="app:queuey")
        server.add(queue, BODY)

        assert not answer.result().get("messages")


def test_a_token_that_ends_gets_nothing_that_comes_later(
    house: House, server: Server, aside: ThreadPoolExecutor, wait: Wait
) -> None:
    """Waits for the moment that the token itself states."""
    queue = server.queue(principles=f"{JOE},app:queuey")
    ends = time.time() + 3
    with house.caller(server, life="2") as joe:
        answer = begun(aside, server, wait, joe, queue)

        eventually(lambda: time.time() > ends)
        server.add(queue, BODY)

        assert "Unauthenticated" in codes(answer.result())


def test_a_key_that_is_removed_gets_nothing_that_comes_later(
    house: House, server: Server, aside: ThreadPoolExecutor, wait: Wait
) -> None:
    key = done(run_in(house.variables, None, "key", "new", "other")).text.strip()
    queue = server.queue(principles="app:other,app:queuey")
    with Server(house.running, "queuey", key) as caller, Server(house.running, "queuey", key) as same:
        eventually(lambda: caller.get(queue).status_code == 200)
        answer = begun(aside, server, wait, caller, queue)

        done(run_in(house.variables, None, "key", "rm", "other", label_of(digest_of(key)), "--yes"))
        eventually(lambda: same.get(queue).status_code == 401)
        server.add(queue, BODY)

        assert "InvalidApplicationKey" in codes(answer.result())


def test_what_a_receiver_settled_stays_done_if_its_rights_end_while_it_waits(
    house: House, server: Server, aside: ThreadPoolExecutor
) -> None:
    queue = server.queue(principles=f"{JOE},app:queuey")
    server.add(queue, "first")
    with house.caller(server) as joe:
        (first,) = joe.call("POST", queue, "leases", "g", json={"receive": {}}).json()["messages"]
        body = {"acknowledge": [first["receipt"]], "receive": {"wait": 60}}
        answer = begun(
            aside, server, lambda caller, name: caller.call("POST", name, "leases", "g", json=body), joe, queue
        )

        server.call("PUT", queue, data={"principles": "app:queuey"})
        server.add(queue, BODY)
        said = answer.result()

    assert (said["settled"]["acknowledged"], said["messages"]) == (1, [])


@pytest.mark.parametrize("accept", ["text/event-stream", LINES])
def test_a_stream_of_very_many_messages_ends_with_the_right_to_read(house: House, server: Server, accept: str) -> None:
    """The reader takes them slowly: most are with the server when its right ends."""
    queue = server.queue(principles=f"{JOE},app:queuey")
    for _ in range(100):
        server.add(queue, b"x" * 500_000)
    with house.caller(server) as joe, read_live(joe, queue, accept=accept) as stream:
        stream.next("open")
        stream.next()

        server.call("PUT", queue, data={"principles": "app:queuey"})
        names = stream.rest()

    assert names[-1] == "end"
    assert len(names) < 90


@pytest.fixture(scope="module")
def sqs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsServer]:
    with sqs_server(tmp_path_factory.mktemp("sqs")) as running:
        yield running


def _close_policy(sqs: SqsServer, url: str) -> None:
    sqs_client(sqs.url, sqs.keys["queuey"]).remove_permission(QueueUrl=url, Label="other")


def _remove_key(sqs: SqsServer, url: str) -> None:
    key = sqs.keys["other"]
    done(run_in(sqs.variables, None, "key", "rm", "other", key.access_key, "--yes"))
    eventually(lambda: sqs.send("GET", "/?Action=ListQueues", key="other").status_code == 403)


@pytest.mark.parametrize("withdraw", [_close_policy, _remove_key])
def test_an_account_gets_nothing_once_the_policy_or_its_key_is_gone(
    sqs: SqsServer, aside: ThreadPoolExecutor, withdraw: Callable[[SqsServer, str], None]
) -> None:
    owner, other = (sqs_client(sqs.url, sqs.keys[name]) for name in ("queuey", "other"))
    url = owner.create_queue(QueueName=f"shared-{withdraw.__name__}")["QueueUrl"]
    owner.add_permission(QueueUrl=url, Label="other", AWSAccountIds=[sqs.accounts["other"]], Actions=["ReceiveMessage"])
    with Server(sqs.running) as server:
        until_waiting(server, 0)
        answer = aside.submit(lambda: other.receive_message(QueueUrl=url, WaitTimeSeconds=20))
        until_waiting(server, 1)

        withdraw(sqs, url)
        owner.send_message(QueueUrl=url, MessageBody=BODY)

    with pytest.raises(Exception, match=r"AccessDenied|InvalidClientTokenId"):
        answer.result()
    assert owner.receive_message(QueueUrl=url)["Messages"][0]["Body"] == BODY


def test_a_token_that_may_make_queues_changes_none(house: House, server: Server) -> None:
    queue, new = server.queue(), f"{server.queue()}-new"
    answer = server.request("POST", "/tokens/queuey", data={"verbs": "create"})
    with asking(house.running, f"Bearer {answer.json()['token']}") as maker:
        for fields in ({"principles": "app:other"}, {"type": "public"}, {"partitions": 5}, {}):
            refused(maker.create(queue, **fields), 409, "QueueExists")
        assert maker.create(new).status_code == 201
        assert maker.create().status_code == 201

    found = server.settings(queue)
    assert (found["type"], found["partitions"], "principles" in found) == ("user", 1, False)
    assert server.create(queue, partitions=2).status_code == 201


def test_a_token_for_one_queue_learns_nothing_of_where_dead_letters_of_others_go(house: House, server: Server) -> None:
    own, theirs, further = server.queue(), server.queue(), server.queue()
    server.call("PUT", theirs, "leases", "g", json={"dead_letter_queue": further})
    server.call("PUT", further, "leases", "g", json={"dead_letter_queue": own})

    def refusal(queues: str, name: str, *, as_form: bool) -> Json:
        answer = server.request("POST", "/tokens/queuey", data={"queues": queues})
        with asking(house.running, f"Bearer {answer.json()['token']}") as caller:
            if as_form:
                said = caller.call("PUT", own, data={"lease_dead_letter_queue": name}).json()
            else:
                said = caller.call("PUT", own, "leases", "g", json={"dead_letter_queue": name}).json()
        return {name: said[name] for name in ("code", "detail")}

    for as_form in (True, False):
        # One from which dead letters would come back looks like any other, and like none at all.
        assert refusal(own, theirs, as_form=as_form) == refusal(own, server.queue(), as_form=as_form)
        assert refusal(own, theirs, as_form=as_form) == refusal(own, "absent", as_form=as_form)
        said = refusal(f"{own},{theirs}", theirs, as_form=as_form)
        assert said["code"] == "Conflict"
        assert f"from {own} to {theirs} to another queue to {own}:" in said["detail"]
