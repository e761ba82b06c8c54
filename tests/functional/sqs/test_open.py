"""A server that checks no signature: programs of this machine may do everything there, and pages of browsers nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
import requests

from queuey.http.exchange import Call
from queuey.settings import load_settings
from queuey.sqs.errors import SqsError
from queuey.sqs.local import check_sender
from tests.support.client import Server
from tests.support.servers import RunningServer, shipped, wsgi
from tests.support.sqs_clients import JSON

PAGE = "https://app.example.org"
SETTINGS = f"cors_origins = {PAGE}\n\n[sqs]\nauth = open\nhost = sqs.example.org\n"
FORM = {"Action": "ListQueues"}
OF_PROGRAMS: list[Mapping[str, str]] = [
    {},
    {"Host": "localhost:5000"},
    {"Host": "[::1]:5000"},
    {"Host": "sqs.example.org"},
    {"Host": "sqs.example.org:80"},
    {"Origin": PAGE},
    {"Sec-Fetch-Site": "none"},
]
OF_PAGES: list[Mapping[str, str]] = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": f"{PAGE}.evil.example"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Host": "evil.example:5000"},
]


@pytest.fixture(scope="module", params=["shipped", "wsgi"])
def open_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    start = {"shipped": shipped, "wsgi": wsgi}[request.param]
    with start(tmp_path_factory.mktemp("open"), settings=SETTINGS) as running:
        yield running


def asked(running: RunningServer, headers: Mapping[str, str], way: str) -> requests.Response:
    with Server(running, key=None) as anybody:
        named = {"Authorization": f"AWS4-HMAC-SHA256 Credential=queuey/20270115/x/sqs/aws4_request, {_REST}"}
        given = {**named, "X-Amz-Date": "20270115T080000Z", **headers}
        if way == "link":
            return anybody.request("GET", "/", params=FORM, headers=given)
        if way == "form":
            return anybody.request("POST", "/", data=FORM, headers=given)
        given |= {"Content-Type": JSON, "X-Amz-Target": "AmazonSQS.ListQueues"}
        return anybody.request("POST", "/", data=b"{}", headers=given)


_REST = f"SignedHeaders=host, Signature={'0' * 64}"


@pytest.mark.parametrize("way", ["link", "form", "JSON"])
def test_pages_that_no_setting_names_are_refused_and_programs_are_not(open_server: RunningServer, way: str) -> None:
    for headers in OF_PROGRAMS:
        assert asked(open_server, headers, way).status_code == 200, headers
    for headers in OF_PAGES:
        answer = asked(open_server, headers, way)
        assert (answer.status_code, "AccessDenied" in answer.text) == (403, True), headers
        assert "auth = open" in answer.text


@pytest.mark.parametrize(
    ("peer", "headers"),
    [
        ("192.0.2.7", {}),
        ("::ffff:192.0.2.7", {}),
        ("", {}),
        ("127.0.0.1", {"x-forwarded-for": "192.0.2.7"}),
        ("::1", {"via": "1.1 proxy"}),
    ],
)
def test_what_comes_from_another_machine_is_refused_whatever_host_it_names(peer: str, headers: dict[str, str]) -> None:
    """A WSGI server listens where it likes, and a proxy on this machine is reached from others."""
    call = Call("POST", "/", "", {"host": "localhost", **headers})
    call.peer = peer
    alone = load_settings(None, {}, {"sqs": {"auth": "open"}})
    opened = load_settings(None, {}, {"sqs": {"auth": "open", "open_to_network": True}})

    with pytest.raises(SqsError, match=r"\[sqs\] open_to_network"):
        check_sender(call, alone)
    check_sender(call, opened)
