"""Clients of SQS: boto3 as it is installed, and requests that no SDK makes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

import boto3
import requests
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest, AWSResponse
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from webob import Request

from queuey.clock import ManualClock
from queuey.future import run
from queuey.server.faces import open_pipeline
from queuey.server.wsgi import wsgi_application
from queuey.service import Service
from queuey.settings import load_settings
from tests.support.client import TIMEOUT_SECONDS
from tests.support.commands import done, run_in
from tests.support.in_process import URL
from tests.support.servers import RunningServer, shipped, write_ini

REGION = "eu-west-1"
JSON = "application/x-amz-json-1.0"
FORM = "application/x-www-form-urlencoded"
NAMESPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"
_ANY_SIGNATURE = (
    f"AWS4-HMAC-SHA256 Credential=queuey/20270115/{REGION}/sqs/aws4_request, SignedHeaders=host, Signature={'0' * 64}"
)
"""It names the caller, where no signature is checked."""
_KEYS = ("queuey", "other")
"""Applications that get an access key."""

Json = dict[str, Any]


class Signing(TypedDict, total=False):
    """How a request is signed."""

    key: str | None
    """Of this application; None for no signature."""
    presigned: bool
    """In the query, not in a header."""
    headers: Mapping[str, str] | None
    """That are signed, too."""


@dataclass(frozen=True)
class SqsServer:
    """A server with access keys for two applications."""

    running: RunningServer
    keys: Mapping[str, Credentials]
    accounts: Mapping[str, str]
    variables: dict[str, str]
    """What commands need to find its store."""

    @property
    def url(self) -> str:
        return self.running.url

    def send(self, method: str, path: str = "/", body: bytes = b"", **signing: Unpack[Signing]) -> requests.Response:
        """One request, with the signature of an application."""
        ready = self.signed(method, path, body, **signing)
        with requests.Session() as session:
            session.trust_env = False
            return session.request(
                method,
                ready.url,
                headers=dict(ready.headers),
                data=body,
                timeout=TIMEOUT_SECONDS,
                allow_redirects=False,
            )

    def signed(
        self,
        method: str,
        path: str = "/",
        body: bytes = b"",
        *,
        key: str | None = "queuey",
        presigned: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> AWSPreparedRequest:
        """A request that is not sent yet; for the rest see :class:`Signing`."""
        asked = AWSRequest(method, self.url + path, headers=dict(headers or {}), data=body)
        if key is not None:
            signer = SigV4QueryAuth if presigned else SigV4Auth
            signer(self.keys[key], "sqs", REGION).add_auth(asked)
        return asked.prepare()

    def json(
        self, action: str, values: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> requests.Response:
        """As an SDK sends it, but for the header ``x-amzn-query-mode``, which older ones do not send."""
        given = {"Content-Type": JSON, "X-Amz-Target": f"AmazonSQS.{action}", **(headers or {})}
        return self.send("POST", "/", json.dumps(values or {}).encode(), headers=given)

    def query(self, path: str = "/", *, method: str = "POST", **parameters: str) -> requests.Response:
        """:param parameters: with ``__`` for ``.``."""
        named = urlencode({name.replace("__", "."): value for name, value in parameters.items()})
        if method == "GET":
            return self.send("GET", f"{path}?{named}")
        return self.send(method, path, named.encode(), headers={"Content-Type": FORM})


@contextmanager
def sqs_server(folder: Path, settings: str = "") -> Iterator[SqsServer]:
    """The shipped server, whose access keys the command line makes before it starts."""
    environment = {"QUEUEY_CONFIG": str(write_ini(folder / "queuey.ini", folder / "data"))}
    rows = {name: done(run_in(environment, None, "key", "new", name, "--sqs", "-o", "jsonl")).rows[0] for name in _KEYS}
    keys = {name: Credentials(row["access_key_id"], row["secret_access_key"]) for name, row in rows.items()}
    accounts = {name: str(row["account"]) for name, row in rows.items()}
    with shipped(folder, settings=settings) as running:
        yield SqsServer(running, keys, accounts, environment)


def sqs_client(url: str, key: Credentials, region: str = REGION) -> Any:
    """boto3's client, which repeats nothing."""
    return boto3.client(
        "sqs",
        region_name=region,
        endpoint_url=url,
        aws_access_key_id=key.access_key,
        aws_secret_access_key=key.secret_key,
        config=Config(retries={"total_max_attempts": 1}, proxies={}),
    )


@dataclass(frozen=True)
class TimedSqs:
    """boto3 and a server in this process, whose time the test moves."""

    client: Any
    clock: ManualClock
    service: Service
    application: Any
    """The WSGI application."""

    def send(self, headers: Mapping[str, str], body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        """A request without boto3: the status, the headers by lower-case names, and the body of its answer."""
        signed = {**headers, "Authorization": _ANY_SIGNATURE, "X-Amz-Date": "20270115T080000Z"}
        asked = Request.blank("/", base_url=URL, method="POST", headers=signed, body=body)
        given = asked.get_response(self.application)
        return given.status_int, {name.lower(): value for name, value in given.headers.items()}, given.body


@contextmanager
def timed_sqs(folder: Path) -> Iterator[TimedSqs]:
    """A service of its own over a store in memory, asked as ``queuey``. It checks no signature, for its time is another."""
    settings = "[storage]\nbackend = memory\n\n[sqs]\nauth = open\nopen_to_network = true\n"
    ini = write_ini(folder / "queuey.ini", folder / "data", settings=settings)
    clock = ManualClock()
    service = Service.open(load_settings(str(ini), {}, {}), clock=clock)
    try:
        run(service.start())
        yield timed_client(service, clock)
    finally:
        service.close()


def timed_client(service: Service, clock: ManualClock) -> TimedSqs:
    """boto3 for a service in this process, as ``queuey``."""
    client = sqs_client(URL, Credentials("queuey", "any"))
    application = wsgi_application(open_pipeline(service))
    client.meta.events.register("before-send.sqs", partial(_send_in_process, application))
    return TimedSqs(client, clock, service, application)


def _send_in_process(application: Any, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
    headers = {name: value.decode() if isinstance(value, bytes) else value for name, value in request.headers.items()}
    path = request.url.removeprefix(URL) or "/"
    asked = Request.blank(path, base_url=URL, method=request.method, headers=headers, body=request.body or b"")
    asked.remote_addr = "127.0.0.1"
    given = asked.get_response(application)
    answer = AWSResponse(request.url, given.status_int, given.headers, None)
    answer._content = given.body
    return answer


def refused(call: Any, **values: Any) -> tuple[str, str]:
    """The exception class and the text of a call that the server refuses."""
    try:
        found = call(**values)
    except ClientError as error:
        return type(error).__name__, error.response["Error"]["Message"]
    raise AssertionError(f"it was not refused: {found}")


def code_of(call: Any, **values: Any) -> str:
    """The code of a call that the server refuses, as older SDKs name it."""
    return _refusal(call, **values)["Code"]


def told_by(call: Any, **values: Any) -> str:
    """The sentence of a call that the server refuses."""
    return _refusal(call, **values)["Message"]


def _refusal(call: Any, **values: Any) -> Mapping[str, str]:
    try:
        found = call(**values)
    except ClientError as error:
        told: Mapping[str, str] = error.response["Error"]
        return told
    raise AssertionError(f"it was not refused: {found}")


def bodies(answer: Mapping[str, Any]) -> list[str]:
    return [message["Body"] for message in answer.get("Messages", ())]


def tree(answer: requests.Response) -> ET.Element:
    """The XML of an answer."""
    return ET.fromstring(answer.content)  # noqa: S314 - it is our own server's


def texts(answer: requests.Response, name: str) -> list[str | None]:
    """What all elements of a name have."""
    return [one.text for one in tree(answer).iter(NAMESPACE + name)]
