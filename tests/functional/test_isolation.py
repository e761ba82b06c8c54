"""No application touches another's (G19): every route, every identity, every kind of queue."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
import requests

from queuey.api import routes, stats
from queuey.api.face import V1
from queuey.api.routes import ROUTES as ROUTES_OF_V1
from queuey.http.exchange import JSON, Call
from queuey.http.face import Operation
from queuey.security.permissions import Permission
from tests.support.client import Server, authorization, new_name, refused
from tests.support.drawn import Drawn
from tests.support.figures import Figures
from tests.support.isolation import (
    ABSENT_ID,
    BAD_REQUESTS,
    IDENTITIES,
    JOE,
    LISTED,
    NO_QUEUE,
    OPERATOR,
    OWNER,
    ROUTES,
    TASKS,
    Caller,
    Route,
)
from tests.support.servers import APPLICATIONS, RunningServer
from tests.support.signers import rsa_key
from tests.support.trusting import TrustingServer, login, own, people, token_key_name
from tests.support.trusting import asking as asking_with

# What stands at the name that is asked for: fields of its creation, or None for nothing at all.
QUEUES: dict[str, dict[str, str] | None] = {
    "private": {},
    "listing": {"principles": LISTED},
    "public": {"type": "public"},
    "public and listing": {"type": "public", "principles": LISTED},
    "absent": None,
    "of another application": None,
}


def may(caller: Caller, route: Route, queue: str) -> bool:
    """The permission table of queuey-api-v1 3.3, as one rule for each column."""
    principal = caller.acts(route.verb)
    if principal == OPERATOR:
        return route.name != "get a token"  # none proves an operator
    if route.needs == "operator":
        return False
    if route.needs == "owner of tokens":
        return principal in {OWNER, JOE}
    if route.needs == "proven":
        return principal is not None
    if route.needs in {"application", "owner"}:
        return principal == OWNER
    by_name = principal in LISTED.split(",") if "listing" in queue else principal == OWNER
    return by_name or (route.needs == "view" and queue.startswith("public"))


def expected(caller: Caller, route: Route, queue: str) -> int:
    if caller.refused:
        return 401
    exists = QUEUES[queue] is not None
    known = exists or route.needs in NO_QUEUE
    if not (may(caller, route, queue) if known else caller.acts(route.verb) in {OWNER, OPERATOR}):
        return 403
    if not known:
        return 404
    if route.name in BAD_REQUESTS:
        return 400
    return 201 if route.created else 202 if route.name in TASKS else 200


def header_of(identity: str, queue: str, kid: str, operator: str) -> str | None:
    """What this identity sends, asking for a queue of this name."""
    caller, now = IDENTITIES[identity], int(time.time())
    if identity.startswith("token"):
        signer = own(kid)
        restriction: dict[str, Any] = {"verbs": sorted(caller.verbs or ())}
        if caller.queues != "all":
            restriction["queues"] = [queue if caller.queues == "this" else f"{queue}x", "some-other"]
        if "another server" in identity:
            restriction["aud"] = "staging"
        application = "queuey" if caller.here else "other"
        return f"Bearer {signer.token(sub=caller.principal or OWNER, app=application, **restriction)}"
    address = "joe@example.org" if "stranger" not in identity else "ann@example.org"
    forged = rsa_key("somebody else's")
    makers: dict[str, Callable[[], str | None]] = {
        "none": lambda: None,
        "wrong key": lambda: f"Application {'f' * 40}",
        "own": lambda: f"Application {APPLICATIONS['queuey'][0]}",
        "operator": lambda: f"Application {operator}",
        "another": lambda: f"Application {APPLICATIONS['with-dash'][0]}",
        "listed": lambda: f"Application {APPLICATIONS['other'][0]}",
        "browserid": lambda: f"BrowserID {people().whole(principal={'email': address})}",
        "browserid of a stranger": lambda: f"BrowserID {people().whole(principal={'email': address})}",
        "browserid forged": lambda: f"BrowserID {people().whole(key=forged)}",
        "oidc": lambda: f"Bearer {login().token(email=address)}",
        "oidc of a stranger": lambda: f"Bearer {login().token(email=address, iat=now)}",
        "oidc forged": lambda: f"Bearer {login().token(key=forged)}",
    }
    return makers[identity]()


@pytest.fixture
def running(trusting_server: TrustingServer) -> TrustingServer:
    return trusting_server


@pytest.fixture
def kid(server: Server) -> str:
    return token_key_name(server)


@pytest.fixture
def asking(running: RunningServer, kid: str, operator: str) -> Iterator[dict[str, Server]]:
    """The path of ``queuey``, as each identity sees it."""
    servers = {identity: asking_with(running, header_of(identity, "none", kid, operator)) for identity in IDENTITIES}
    yield servers
    for server in servers.values():
        server.close()


def send(server: Server, route: Route, queue: str, message: str) -> requests.Response:
    if route.path is not None:
        return server.request(route.method, route.path, **dict(route.given))
    names = {"Q": queue, "M": message}
    return server.call(route.method, *(names.get(part, part) for part in route.below), **dict(route.given))


Some = Callable[[Iterable[str]], list[str]]


@pytest.fixture
def some(running: RunningServer, drawn: Drawn) -> Some:
    """All identities; rights do not depend on the store, so over Cassandra the shorter run draws four."""
    return lambda names: drawn(names, 4) if running.name == "cassandra" else [*names]


def test_every_route_for_every_identity_on_every_kind_of_queue(
    asking: dict[str, Server], other: Server, kid: str, operator: str, some: Some, figures: Figures
) -> None:
    identities = some(asking)
    cells, wrong = 0, []
    for kind, fields in QUEUES.items():
        for identity in identities:
            server = asking[identity]
            name, message = new_name(), ABSENT_ID
            if kind == "of another application":
                other.create(name, principles=LISTED)
                message = other.add(name)["key"]
            elif fields is not None:
                asking["own"].create(name, **fields)
                message = asking["own"].add(name)["key"]
                asking["own"].call("PUT", name, "leases", "work", json={})
            header = header_of(identity, name, kid, operator)
            if header is not None:
                server.session.headers["Authorization"] = header
            for route in ROUTES:
                status = send(server, route, name, message).status_code
                cells += 1
                right = expected(IDENTITIES[identity], route, kind)
                if status != right:
                    wrong.append(f"{kind} / {identity} / {route.name}: {status}, not {right}")

    figures("G19", server=other.running.name, cells=cells, wrong=len(wrong))
    assert not wrong, "\n".join(wrong)
    assert cells == len(QUEUES) * len(identities) * len(ROUTES)


def test_the_table_has_every_operation_of_v1() -> None:
    """What a caller needs a permission for, and a way to ask for it in this table."""
    known = {one for one in vars(routes).values() if isinstance(one, Operation)}
    for route, method in ROUTES_OF_V1.methods():
        choice = route.methods[method]
        known |= {choice} if isinstance(choice, Operation) else set()
    asked = {_operation_of(route).function for route in ROUTES}

    assert {one.function for one in known if one.permission is not Permission.NONE} - asked == FUNCTIONS_OF_STREAMS


def _operation_of(route: Route) -> Operation:
    """What v1 finds for a request of the table."""
    given = dict(route.given)
    names = {"Q": "q", "M": ABSENT_ID}
    path = route.path or "/".join(["/v1/queuey", *[names.get(part, part) for part in route.below]])
    headers = {name.lower(): value for name, value in given.get("headers", {}).items()}
    if "json" in given:
        headers["content-type"] = JSON
    call = Call(route.method, path, urlencode(given.get("params", {})), headers)
    call.body = json.dumps(given.get("json")).encode()
    found = V1().resolve(call)
    return found if found.by_body is None else found.by_body(call)


FUNCTIONS_OF_STREAMS = {stats.live_of_application, stats.live_of_server}
"""They go by the rights of the figures of which they send more."""

STRANGERS = [
    name
    for name, caller in IDENTITIES.items()
    if caller.principal not in {OWNER, OPERATOR} or caller.queues == "another" or caller.verbs == frozenset({"read"})
]


def test_an_absent_queue_looks_to_a_stranger_exactly_as_a_private_one(asking: dict[str, Server], some: Some) -> None:
    private = asking["own"].queue()
    message = asking["own"].add(private)["key"]

    for identity in some(STRANGERS):
        for route in ROUTES:
            if route.needs in NO_QUEUE or (IDENTITIES[identity].acts(route.verb) == OWNER):
                continue
            seen = {
                _told(send(asking[identity], route, queue, message), queue, message)
                for queue in (private, new_name(), "x" * 51, "a:b")
            }
            assert len(seen) == 1, (identity, route)


def _told(answer: requests.Response, queue: str, message: str) -> tuple[Any, ...]:
    """All that an answer tells, the request's own words and its id left out."""
    text = answer.text.replace(answer.headers["X-Request-Id"], "").replace(queue, "").replace(message, "")
    headers = {
        name.lower(): value
        for name, value in answer.headers.items()
        if name.lower() not in {"date", "x-request-id", "content-length"}
    }
    return answer.status_code, text, tuple(sorted(headers.items()))


def test_nobody_learns_from_a_name_on_another_applications_path(asking: dict[str, Server], other: Server) -> None:
    name = other.queue()
    other.add(name, "of other")

    assert asking["own"].get(name).status_code == 404
    assert asking["listed"].get(name).status_code == 403


def test_names_differ_by_exact_match_only(asking: dict[str, Server]) -> None:
    own = asking["own"]
    base = f"Case-{uuid.uuid4().hex[:8]}"
    names = [base, base.lower(), base.upper(), base + ".", base + "_", base + "-", base[:-1], base + "0"]
    for name in names:
        own.create(name)
        own.add(name, name)

    for name in names:
        assert own.everything(name) == [name]


def test_joined_names_do_not_meet(running: RunningServer) -> None:
    """Application ``with-dash`` and queue ``q`` must not be another's ``with`` and ``dash-q``, however they are kept."""
    tail = uuid.uuid4().hex[:8]
    with Server(running, "with-dash") as one, Server(running, "queuey") as two:
        for server in (one, two):
            for name in (f"q-{tail}", f"dash-q-{tail}", f"queuey-{tail}", f"with-dash-{tail}", f"1-{tail}"):
                server.create(name, partitions=11)
                server.fill(name, f"{server.application}/{name}/1")
                server.fill(name, f"{server.application}/{name}/11", partition=11)
        for server in (one, two):
            for name in (f"q-{tail}", f"dash-q-{tail}", f"queuey-{tail}", f"with-dash-{tail}", f"1-{tail}"):
                assert server.everything(name) == [f"{server.application}/{name}/{part}" for part in (1, 11)]


def test_the_list_shows_no_other_applications_queues(fresh: Server, other: Server) -> None:
    other.queue()
    name = fresh.queue()

    assert (
        fresh.call("GET", params={"details": "true", "include_count": "true"}).json()["queues"][0]["queue_name"] == name
    )
    assert len(fresh.call("GET").json()["queues"]) == 1
    assert fresh.call("GET", params={"offset": ""}).json() == fresh.call("GET").json()


def test_a_message_id_opens_no_other_queue(asking: dict[str, Server], other: Server) -> None:
    theirs, mine = other.queue(), asking["own"].queue()
    key = other.add(theirs, "theirs")["key"]
    own = asking["own"]

    assert own.fetch(mine, key) == []
    assert own.call("DELETE", mine, key).status_code == 200
    assert own.call("PUT", mine, key, data=b"mine").status_code == 200

    assert other.everything(theirs) == ["theirs"]
    assert own.everything(mine) == ["mine"]


def test_a_cursor_opens_no_other_queue(asking: dict[str, Server], other: Server) -> None:
    theirs, mine = other.queue(), asking["own"].queue()
    other.add(theirs, "theirs")
    cursor = other.get(theirs).headers["Queuey-Cursor"]

    answer = asking["own"].get(mine, cursor=cursor)

    assert answer.status_code in {400, 409}
    assert "theirs" not in answer.text


def test_groups_of_one_name_are_each_queues_own(asking: dict[str, Server], other: Server) -> None:
    name, own = new_name(), asking["own"]
    queues = [(own, name), (other, name), (own, f"{name}-mail")]
    for server, queue in queues:
        server.create(queue)
        message = {"partition": 1, "message_id": server.add(queue)["key"]}
        generation = len(queue)
        answer = server.call("PUT", queue, "offsets", "mail", json={"offsets": [message], "generation": generation})
        assert answer.status_code == 200, answer.text
        server.call("PUT", queue, "offsets", queue, json={"offsets": [message]})

    seen = [server.call("GET", queue, "offsets", "mail").json()["offsets"][0] for server, queue in queues]
    listed = [server.call("GET", queue, "offsets").json()["groups"] for server, queue in queues]

    assert len({entry["message_id"] for entry in seen}) == 3
    assert [entry["generation"] for entry in seen] == [len(name), len(name), len(name) + 5]
    assert listed == [[{"group": group} for group in sorted(["mail", queue])] for _, queue in queues]
    assert own.call("DELETE", name, "offsets", "mail").status_code == 200
    assert other.call("GET", name, "offsets", "mail").json()["offsets"][0] == seen[1]


def test_an_idempotency_key_is_each_applications_own(asking: dict[str, Server], other: Server) -> None:
    name = new_name()
    for server in (asking["own"], other):
        server.create(name)

    first = asking["own"].post(name, "mine", idempotency_key="shared")
    second = other.post(name, "theirs", idempotency_key="shared")

    assert (first.status_code, second.status_code) == (201, 201)
    assert asking["own"].everything(name) == ["mine"]
    assert other.everything(name) == ["theirs"]


def test_an_operator_lists_the_applications_in_pages(asking: dict[str, Server]) -> None:
    found: list[str] = []
    path: str | None = "/v1/?limit=3"
    while path is not None:
        answer = asking["operator"].request("GET", path)
        page = [entry["application"] for entry in answer.json()["applications"]]
        assert 1 <= len(page) <= 3
        found += page
        path = answer.links["next"]["url"] if "next" in answer.links else None

    assert found == sorted(found)
    assert set(APPLICATIONS) <= set(found)
    assert not any(":" in name or name == "root" for name in found)
    assert asking["operator"].request("GET", "/v1?limit=0").status_code == 400
    assert asking["operator"].request("GET", "/v1/root").status_code == 404


def test_what_an_operator_moves_counts_as_the_operators(asking: dict[str, Server]) -> None:
    operator, name = asking["operator"], asking["own"].queue()

    operator.add(name, "by the operator")
    assert operator.everything(name) == ["by the operator"]

    text = asking["own"].request("GET", "/metrics").text
    assert f'queuey_messages_appended_total{{app="{OPERATOR}"}}' in text
    assert f'queuey_messages_delivered_total{{app="{OPERATOR}"' in text


def test_no_queue_can_name_an_operator_and_no_application_mint_one(asking: dict[str, Server]) -> None:
    refused(asking["own"].create(new_name(), principles=OPERATOR), 400, "principles")
    for identity in ("own", "operator"):
        refused(asking[identity].request("POST", "/tokens/queuey", data={"principal": OPERATOR}), 400, "principal")


@pytest.mark.parametrize("identity", ["none", "wrong key", "another", "operator"])
def test_an_unknown_application_is_404_whoever_asks(asking: dict[str, Server], identity: str) -> None:
    for path in ("/v1/nobody", "/v1/nobody/q", f"/v1/nobody/q/{ABSENT_ID}"):
        for method in ("GET", "POST", "PUT", "DELETE"):
            answer = asking[identity].request(method, path, data=b"x")
            assert answer.status_code in {404, 405}
            if answer.status_code == 404:
                assert "ApplicationNotFound" in answer.json()["error_msg"]


@pytest.mark.parametrize("identity", ["none", "another"])
def test_a_refusal_costs_one_look_up_whether_or_not_there_is_such_a_queue(
    asking: dict[str, Server], identity: str
) -> None:
    """Without it the time of an answer tells: a queue that is in use is at hand, an absent one never is."""
    asking["own"].fill(used := asking["own"].queue(), "mine")
    unused, absent = asking["own"].queue(), new_name()

    def looked_up() -> float:
        text = asking["own"].request("GET", "/metrics").text
        (line,) = [line for line in text.splitlines() if line.startswith("queuey_queue_cache_total")]
        return float(line.rpartition(" ")[2])

    costs: dict[str, list[float]] = {}
    for name in (used, unused, absent):
        costs[name] = []
        for _ in range(3):
            before = looked_up()
            refused(asking[identity].get(name), 403, "Forbidden")
            costs[name].append(looked_up() - before)

    assert costs == {name: [1, 1, 1] for name in (used, unused, absent)}


def test_the_metrics_tell_no_queue(asking: dict[str, Server], anonymous: Server) -> None:
    name = asking["own"].queue()
    asking["own"].add(name)

    text = anonymous.request("GET", "/metrics", headers=authorization(None)).text

    assert name not in text
