"""Which caller may do what (queuey-api-v1 section 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import requests

from tests.support.client import Server, new_name, refused
from tests.support.servers import APPLICATIONS, RunningServer

OWN_KEY, OWN_SECOND_KEY = APPLICATIONS["queuey"]
OTHER_KEY = APPLICATIONS["other"][0]
WRONG_KEY = "ab" * 20

CALLS: dict[str, Callable[[Server, str, str], requests.Response]] = {
    "add": lambda server, queue, _: server.post(queue),
    "add batch": lambda server, queue, _: server.post_batch(queue, {"body": "x"}),
    "overwrite": lambda server, queue, key: server.call("PUT", queue, key, data=b"x"),
    "read": lambda server, queue, _: server.get(queue),
    "fetch": lambda server, queue, key: server.call("GET", queue, key),
    "delete message": lambda server, queue, key: server.call("DELETE", queue, key),
    "change queue": lambda server, queue, _: server.call("PUT", queue, data={"partitions": 2}),
    "delete queue": lambda server, queue, _: server.call("DELETE", queue),
}

# One row per line of the table in 3.3: the queue, the caller's key, then what each call answers.
ADD, OVERWRITE, READ, DELETE, CHANGE = (
    ("add", "add batch"),
    ("overwrite",),
    ("read", "fetch"),
    ("delete message",),
    ("change queue", "delete queue"),
)
COLUMNS = (ADD, OVERWRITE, READ, DELETE, CHANGE)
PRIVATE: dict[str, str] = {}
LISTED = {"principles": "app:other"}
PUBLIC = {"type": "public"}
PUBLIC_LISTED = {"type": "public", "principles": "app:other"}
TABLE: list[tuple[str, dict[str, str], str | None, tuple[int, int, int, int, int]]] = [
    ("private, owner", PRIVATE, OWN_KEY, (201, 200, 200, 200, 200)),
    ("private, owner's second key", PRIVATE, OWN_SECOND_KEY, (201, 200, 200, 200, 200)),
    ("private, other", PRIVATE, OTHER_KEY, (403, 403, 403, 403, 403)),
    ("private, anonymous", PRIVATE, None, (403, 403, 403, 403, 403)),
    ("listed, owner not listed", LISTED, OWN_KEY, (201, 200, 403, 403, 200)),
    ("listed, listed principal", LISTED, OTHER_KEY, (403, 403, 200, 200, 403)),
    ("listed, anonymous", LISTED, None, (403, 403, 403, 403, 403)),
    ("owner listed, owner", {"principles": "app:queuey"}, OWN_KEY, (201, 200, 200, 200, 200)),
    ("owner listed, other", {"principles": "app:queuey"}, OTHER_KEY, (403, 403, 403, 403, 403)),
    ("public, owner", PUBLIC, OWN_KEY, (201, 200, 200, 200, 200)),
    ("public, other", PUBLIC, OTHER_KEY, (403, 403, 200, 403, 403)),
    ("public, anonymous", PUBLIC, None, (403, 403, 200, 403, 403)),
    ("public and listed, owner not listed", PUBLIC_LISTED, OWN_KEY, (201, 200, 200, 403, 200)),
    ("public and listed, listed principal", PUBLIC_LISTED, OTHER_KEY, (403, 403, 200, 200, 403)),
    ("public and listed, anonymous", PUBLIC_LISTED, None, (403, 403, 200, 403, 403)),
]


@pytest.fixture
def running(shipped_server: RunningServer) -> RunningServer:
    """Permissions are looked up before a store is asked; ``test_isolation`` has them over Cassandra as well."""
    return shipped_server


@pytest.mark.parametrize(("fields", "key", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_the_permission_table(
    server: Server, fields: dict[str, str], key: str | None, expected: tuple[int, ...]
) -> None:
    name = server.queue(**fields)
    (message,) = server.fill(name, "x")

    with server.seen_by(key) as caller:
        found = {
            call: CALLS[call](caller, name, message).status_code
            for calls in (ADD, READ, OVERWRITE, DELETE, CHANGE)
            for call in calls
        }

    assert found == {call: status for calls, status in zip(COLUMNS, expected, strict=True) for call in calls}


@pytest.mark.parametrize("key", [OTHER_KEY, None], ids=["other", "anonymous"])
def test_listing_and_creating_is_for_the_owner_only(server: Server, key: str | None) -> None:
    with server.seen_by(key) as caller:
        refused(caller.call("GET"), 403, "Forbidden")
        refused(caller.call("POST"), 403, "Forbidden")


def test_a_refusal_for_want_of_permission_says_access_was_denied(server: Server, anonymous: Server) -> None:
    name = server.queue()

    answer = anonymous.get(name)

    assert "Access was denied" in refused(answer, 403, "Forbidden")["Forbidden"]
    assert answer.headers["WWW-Authenticate"].startswith("Application")


@pytest.mark.parametrize("header", [None, "Basic {key}", "{key}"])
def test_a_credential_of_no_known_scheme_is_told_to_be_none(
    server: Server, anonymous: Server, header: str | None
) -> None:
    """In the same words for a queue that there is and one that there is not."""
    sent = {} if header is None else {"Authorization": header.format(key=server.key)}

    told = {anonymous.call("GET", name, headers=sent).json()["detail"] for name in (server.queue(), new_name())}

    assert len(told) == 1
    assert "no credential came that this server can use" in told.pop()


def test_a_listed_application_acts_through_the_owners_path(server: Server, other: Server) -> None:
    name = server.queue(principles="app:other")
    server.fill(name, "for other")

    with server.seen_by(OTHER_KEY) as caller:
        assert caller.bodies(name) == ["for other"]
    refused(other.get(name), 404, "InvalidQueueName")


def test_an_owner_is_told_that_only_the_principals_of_its_queue_may(server: Server) -> None:
    name = server.queue(principles="app:other")

    told = refused(server.get(name), 403, "Forbidden")["Forbidden"]

    assert f"Add app:{server.application} to them" in told
    with server.seen_by(APPLICATIONS["mirror"][0]) as caller:
        assert "principals" not in refused(caller.get(name), 403, "Forbidden")["Forbidden"]


def test_an_application_with_a_dash_can_be_listed(server: Server) -> None:
    name = server.queue(principles="app:with-dash")
    server.fill(name, "x")

    with server.seen_by(APPLICATIONS["with-dash"][0]) as caller:
        assert caller.bodies(name) == ["x"]


@pytest.fixture
def public(server: Server) -> str:
    return server.queue(type="public")


class Credentials:
    """Asks with any Authorization header at all."""

    def __init__(self, running: RunningServer) -> None:
        self._server = Server(running, key=None)

    def status(self, header: str, queue: str) -> int:
        return self._server.call("GET", queue, headers={"Authorization": header}).status_code

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def credentials(running: RunningServer) -> Iterator[Credentials]:
    asking = Credentials(running)
    yield asking
    asking.close()


def test_every_key_of_an_application_is_taken(server: Server, credentials: Credentials) -> None:
    name = server.queue()

    for key in APPLICATIONS["queuey"]:
        assert credentials.status(f"Application {key}", name) == 200


@pytest.mark.parametrize(
    "header",
    [
        f"Application {WRONG_KEY}",
        f"Application {OWN_KEY[:-1]}",
        f"Application {OWN_KEY}0",
        f"Application {OWN_KEY.upper()}",
        f"Application {OWN_KEY} {OWN_KEY}",
        f"Application {OWN_KEY}; Application {WRONG_KEY}",
        f"Application {WRONG_KEY};Application {OWN_KEY}",
        f"BrowserID x;Application {WRONG_KEY}",
        "Application ",
        "Application",
        "Application " + "a" * 9000,
    ],
    ids=lambda header: header[:40],
)
def test_a_wrong_key_is_401_also_on_a_public_queue(
    server: Server, credentials: Credentials, public: str, header: str
) -> None:
    assert credentials.status(header, public) == 401
    assert credentials.status(header, server.queue()) == 401


def test_a_wrong_key_is_named_first_among_the_errors(server: Server) -> None:
    with server.seen_by(WRONG_KEY) as caller:
        answer = caller.call("GET", "anything")

    texts = refused(answer, 401, "InvalidApplicationKey")
    assert next(iter(texts)) == "InvalidApplicationKey"
    assert WRONG_KEY not in answer.text
    assert "WWW-Authenticate" in answer.headers


@pytest.mark.parametrize(
    "header",
    [
        "Basic cXVldWV5OnB3",
        f"Bearer {OWN_KEY}",
        f"Applications {OWN_KEY}",
        OWN_KEY,
        "",
        ";",
        "BrowserID eyJhbGciOiJ9",
    ],
)
def test_an_unknown_scheme_is_ignored(server: Server, credentials: Credentials, public: str, header: str) -> None:
    assert credentials.status(header, server.queue()) == 403
    assert credentials.status(header, public) == 200


@pytest.mark.parametrize(
    "header",
    [
        f"Application {OWN_KEY};Application {OWN_SECOND_KEY}",
        f"Application {OWN_KEY}; Application {OTHER_KEY}",
        f"Basic cXVldWV5OnB3; Application {OWN_KEY}",
        f"Application {OWN_KEY}; BrowserID x",
        f"Application {OWN_KEY};",
        f"Application   {OWN_KEY} ",
        f"application {OWN_KEY}",
        f"APPLICATION {OWN_KEY}",
    ],
)
def test_several_credentials_may_stand_side_by_side(server: Server, credentials: Credentials, header: str) -> None:
    assert credentials.status(header, server.queue()) == 200


def test_two_credentials_give_two_principals(server: Server, credentials: Credentials) -> None:
    name = server.queue(principles="app:other")

    assert credentials.status(f"Application {OWN_KEY}", name) == 403
    assert credentials.status(f"Application {OWN_KEY}; Application {OTHER_KEY}", name) == 200


def test_a_key_of_letters_that_the_scheme_word_has_is_taken_whole(running: RunningServer) -> None:
    """The first Queuey cut these letters off both ends (queuey-api-v1 W2b)."""
    with Server(running, "letters") as seen:
        assert seen.call("GET").status_code == 200


def test_the_queue_of_another_application_is_not_ones_own(server: Server, other: Server) -> None:
    name = server.queue()
    other.create(name)
    server.fill(name, "of queuey")

    assert other.everything(name) == []
