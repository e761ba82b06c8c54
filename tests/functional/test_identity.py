"""Identity cannot be forged (G20), and a proven user reads what is theirs."""

from __future__ import annotations

import time

import pytest

from tests.support import servers
from tests.support.bad_credentials import bad_assertions, bad_own_tokens, bad_tokens
from tests.support.client import Server, refused
from tests.support.figures import Figures
from tests.support.key_site import Site
from tests.support.servers import APPLICATIONS, eventually
from tests.support.signers import OwnTokens
from tests.support.trusting import (
    FORMER_KEY,
    TOKEN_AUDIENCE,
    TrustingServer,
    asking,
    login,
    own,
    people,
    settings,
    subjects,
    token_key_name,
)

OWN_KEY = APPLICATIONS["queuey"][0]
JOE = "joe@example.org"


@pytest.fixture
def running(trusting_shipped_server: TrustingServer) -> TrustingServer:
    """Credentials are in no store."""
    return trusting_shipped_server


@pytest.fixture
def queue(server: Server) -> str:
    """One queue of joe's, by each way to prove to be joe, with a message in it."""
    name = server.queue(principles=f"bid:{JOE},oidc:{JOE},oidc:subjects:248289761001")
    server.fill(name, "for joe")
    return name


@pytest.fixture
def public(server: Server) -> str:
    return server.queue(type="public")


@pytest.fixture
def kid(server: Server) -> str:
    return token_key_name(server)


def credentials() -> dict[str, str]:
    """One good credential of each kind."""
    return {
        "oidc by address": f"Bearer {login().token()}",
        "oidc by subject": f"Bearer {subjects().token()}",
        "browserid": f"BrowserID {people().whole()}",
    }


@pytest.mark.parametrize("way", list(credentials()))
def test_who_proves_to_be_somebody_reads_and_deletes_what_is_theirs(
    running: TrustingServer, server: Server, queue: str, way: str
) -> None:
    with asking(running, credentials()[way]) as joe:
        assert joe.bodies(queue) == ["for joe"]
        (message,) = joe.read(queue)
        assert joe.call("DELETE", queue, message["message_id"]).status_code == 200
        assert joe.bodies(queue) == []
        for answer in (
            joe.post(queue, "x"),
            joe.call("PUT", queue, data={"partitions": "2"}),
            joe.call("DELETE", queue),
        ):
            refused(answer, 403, "Forbidden")
        refused(joe.get(server.queue()), 403, "Forbidden")
        refused(joe.call("GET"), 403, "Forbidden")
        refused(joe.create(), 403, "Forbidden")


def test_an_address_is_compared_with_its_domain_in_lower_case_and_its_name_as_it_is(
    running: TrustingServer, server: Server
) -> None:
    name = server.queue(principles="bid:Ann+news@Example.ORG,oidc:Ann+news@EXAMPLE.org")
    assert server.settings(name)["principles"] == "bid:Ann+news@example.org,oidc:Ann+news@example.org"

    def status(address: str) -> tuple[int, int]:
        found = []
        for credential in (
            f"BrowserID {people().whole(principal={'email': address})}",
            f"Bearer {login().token(email=address)}",
        ):
            with asking(running, credential) as ann:
                found.append(ann.get(name).status_code)
        return found[0], found[1]

    assert status("Ann+news@eXample.org") == (200, 200)
    assert status("ann+news@example.org") == (403, 403)
    assert status("Ann@example.org") == (403, 403)


def test_several_credentials_add_up_and_one_bad_one_refuses_all(running: TrustingServer, queue: str) -> None:
    good = credentials()
    joined = f"{good['browserid']}; Application {OWN_KEY};{good['oidc by subject']}"
    with asking(running, joined) as both:
        assert both.bodies(queue) == ["for joe"]
        assert both.post(queue, "more").status_code == 201

    for bad, code in ((f"{joined};Bearer x", "InvalidToken"), (f"BrowserID x~y;{joined}", "InvalidBrowserID")):
        with asking(running, bad) as caller:
            refused(caller.get(queue), 401, code)


def test_the_challenge_names_every_scheme(running: TrustingServer, queue: str) -> None:
    expected = 'Application realm="queuey", BrowserID realm="queuey", Bearer realm="queuey"'
    for credential in (None, "Bearer x"):
        with asking(running, credential) as caller:
            assert caller.get(queue).headers["WWW-Authenticate"] == expected


def test_a_refusal_says_what_is_wrong_and_repeats_nothing(running: TrustingServer, queue: str) -> None:
    said = {
        "Bearer": (login().token(aud="somebody"), "for another audience"),
        "BrowserID": (f"{people().certificate()}~{people().assertion(aud='http://x')}", "for another audience"),
    }
    for scheme, (credential, text) in said.items():
        with asking(running, f"{scheme} {credential}") as caller:
            answer = caller.get(queue)
        assert text in answer.json()["detail"]
        assert credential[:20] not in answer.text


def test_credentials_of_many_kinds_of_wrong_prove_nothing(
    running: TrustingServer, server: Server, key_site: Site, queue: str, public: str, kid: str, figures: Figures
) -> None:
    """Every case of the corpus, on a queue of the one they pretend to be and on a public one; no store is asked for them."""
    listener = key_site.url.rpartition("/")[0]
    former = OwnTokens(FORMER_KEY, "abcdef012345", TOKEN_AUDIENCE, int(time.time()))
    cases = [
        *((f"Bearer {token}", "InvalidToken", what) for what, token in bad_tokens(login(), listener)),
        *((f"Bearer {token}", "InvalidToken", what) for what, token in bad_own_tokens(own(kid), former, login())),
        *((f"BrowserID {text}", "InvalidBrowserID", what) for what, text in bad_assertions(people(), listener)),
    ]
    asked, connections = len(key_site.asked), running.connections()
    accepted, other, failed = [], [], []
    with asking(running, None) as caller:
        for credential, code, what in cases:
            for name in (queue, public):
                answer = caller.call("GET", name, headers={"Authorization": credential})
                if answer.status_code < 400:
                    accepted.append(what)
                elif answer.status_code >= 500:
                    failed.append(f"{what}: {answer.status_code}")
                elif (answer.status_code, [*answer.json()["error_msg"]]) != (401, [code]):
                    other.append(f"{what}: {answer.status_code} {answer.text[:100]}")
    outgoing = len(key_site.asked) - asked + len(running.connections()) - len(connections)
    figures(
        "G20",
        server=running.name,
        cases=len(cases),
        accepted_wrongly=len(accepted),
        outgoing=outgoing,
        status_5xx=len(failed),
    )

    assert (accepted, failed, other, outgoing) == ([], [], [], 0)
    assert len(cases) > 450
    for credential in credentials().values():
        with asking(running, credential) as joe:
            assert joe.bodies(queue) == ["for joe"]


def test_the_watch_on_connections_sees_them(running: TrustingServer, key_site: Site) -> None:
    """The keys that are fetched at start are seen: a watch that sees nothing would prove nothing."""
    port = key_site.url.rpartition("/")[0].rpartition(":")[2]

    assert any(port in line for line in running.connections())
    assert key_site.asked


def test_looks_at_credentials_are_counted_by_scheme_and_outcome(running: TrustingServer, queue: str) -> None:
    for credential in (*credentials().values(), "Bearer x"):
        with asking(running, credential) as caller:
            caller.get(queue)
            text = caller.request("GET", "/metrics").text

    for kind in ("application", "bearer", "browserid"):
        assert f'queuey_auth_total{{kind="{kind}",result="accepted"}}' in text
    assert 'queuey_auth_total{kind="bearer",result="refused"}' in text


def test_a_token_ends_while_it_is_remembered(running: TrustingServer, queue: str) -> None:
    """Waits for the moment that the token itself states."""
    ends = int(time.time()) + 4
    with asking(running, f"Bearer {login().token(exp=ends)}") as joe:
        assert joe.get(queue).status_code == 200
        eventually(lambda: joe.get(queue).status_code != 200)
        refused(joe.get(queue), 401, "InvalidToken")
        assert time.time() >= ends


# The queues that name the caller.


def test_a_user_lists_the_queues_that_name_them(running: TrustingServer, fresh: Server) -> None:
    for number in range(5):
        fresh.create(f"joe-{number}", principles=f"{('oidc', 'bid')[number % 2]}:{JOE},app:other")
    fresh.create("ann", principles="oidc:ann@example.org")
    fresh.create("nobody")

    def names(credential: str | None, **params: str) -> list[str]:
        with asking(running, credential, fresh.application) as caller:
            answer = caller.call("GET", params={"mine": "true", **params})
            assert answer.status_code == 200, answer.text
            return [found["queue_name"] for found in answer.json()["queues"]]

    good = credentials()
    assert names(good["oidc by address"]) == ["joe-0", "joe-2", "joe-4"]
    assert names(good["browserid"]) == ["joe-1", "joe-3"]
    assert names(f"{good['browserid']};{good['oidc by address']}") == [f"joe-{number}" for number in range(5)]
    assert names(good["oidc by subject"]) == []
    assert names(f"Application {APPLICATIONS['other'][0]}") == [f"joe-{number}" for number in range(5)]
    assert names(f"Application {fresh.key}") == []
    assert names(good["oidc by address"], offset="joe-1") == ["joe-2", "joe-4"]
    with asking(running, None, fresh.application) as anybody:
        refused(anybody.call("GET", params={"mine": "true"}), 403, "Forbidden")


def test_the_list_of_ones_queues_comes_in_pages_and_follows_changes(running: TrustingServer, fresh: Server) -> None:
    for number in range(5):
        fresh.create(f"q{number}", principles=f"oidc:{JOE}")
    with asking(running, credentials()["oidc by address"], fresh.application) as joe:
        listed, path = list[str](), f"/v1/{fresh.application}?mine=true&limit=2"
        sizes = []
        while path:
            answer = joe.request("GET", path)
            listed += [found["queue_name"] for found in answer.json()["queues"]]
            sizes.append(len(answer.json()["queues"]))
            path = answer.links["next"]["url"] if "next" in answer.links else ""
        assert (listed, sizes) == ([f"q{number}" for number in range(5)], [2, 2, 1])

        fresh.call("PUT", "q1", data={"principles": "oidc:ann@example.org"})
        fresh.call("DELETE", "q2")
        fresh.create("q9", principles=f"oidc:{JOE}")

        answer = joe.call("GET", params={"mine": "true"})
        assert [found["queue_name"] for found in answer.json()["queues"]] == ["q0", "q3", "q4", "q9"]
        refused(joe.call("GET", params={"mine": "true", "limit": "1001"}), 400, "limit")


def test_whom_else_a_queue_names_is_not_told_to_a_user(running: TrustingServer, fresh: Server) -> None:
    fresh.create("q", principles=f"oidc:{JOE},oidc:ann@example.org", partitions="3")
    with asking(running, credentials()["oidc by address"], fresh.application) as joe:
        answer = joe.call("GET", params={"mine": "true", "details": "true", "include_count": "true"})

    (found,) = answer.json()["queues"]
    assert found["partitions"] == 3
    assert "ann" not in answer.text
    assert "count" not in found


def test_a_flood_of_bad_credentials_is_turned_away(tmp_path_factory: pytest.TempPathFactory, key_site: Site) -> None:
    """G17: a server that looks at a few bad ones a second goes on for those it knows."""
    folder = tmp_path_factory.mktemp("flooded")
    text = settings(folder, key_site).replace("bad_credentials_per_second = 1000000", "bad_credentials_per_second = 3")
    with servers.shipped(folder, settings=text) as running, Server(running) as server:
        name = server.queue(principles=f"oidc:{JOE}")
        with asking(running, f"Bearer {login().token()}") as joe, asking(running, "Bearer x") as flood:
            assert joe.get(name).status_code == 200
            found = [flood.get(name) for _ in range(60)]
            statuses = {answer.status_code for answer in found}
            throttled = [answer for answer in found if answer.status_code == 429]
            assert joe.get(name).status_code == 200
        assert server.settings(name)["queue_name"] == name
        told = server.request("GET", "/metrics").text

    assert statuses == {401, 429}
    assert {answer.headers["Retry-After"] for answer in throttled} == {"1"}
    assert 'queuey_auth_total{kind="bearer",result="throttled"}' in told
