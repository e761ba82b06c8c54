"""The WSGI application and what PEP 3333 asks of one."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote
from wsgiref.util import is_hop_by_hop

import pytest
from webob import Request

from queuey.future import run
from queuey.http.admission import Ticket
from queuey.server.faces import open_pipeline
from queuey.server.wsgi import decoded_path, headers_of, wsgi_application
from queuey.service import Service
from queuey.service.queues import QueueSettings
from queuey.settings import load_settings

KEY = "b" * 32


def test_an_upload_without_room_is_refused_and_the_connection_is_left_to_the_server() -> None:
    service = Service.open(
        load_settings(None, {}, {"storage": {"backend": "memory"}, "limits": {"max_in_flight_mb": 1}})
    )
    try:
        run(service.start(KEY))
        run(service.queues.create("demo", "q", QueueSettings()))
        pipeline = open_pipeline(service)
        Ticket(pipeline.admission, ("app:other",)).hold(1 << 20, owed=True)
        started: list[Any] = []
        environ = {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": "/v1/demo/q",
            "QUERY_STRING": "",
            "SERVER_NAME": "q",
            "SERVER_PORT": "80",
            "HTTP_AUTHORIZATION": f"Application {KEY}",
            "CONTENT_LENGTH": "5",
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(b"hello"),
        }

        wsgi_application(pipeline)(environ, lambda *given: started.append(given))
    finally:
        service.close()

    ((status, headers),) = started
    assert status.startswith("429 ")
    assert [name for name, _ in headers if is_hop_by_hop(name)] == []


@pytest.mark.parametrize(
    ("path", "query", "target"),
    [
        ("/\xff", "", {"HTTP_X_AMZ_TARGET": "AmazonSQS.ListQueues"}),
        ("/123456789012/\xc3(", "Action=GetQueueUrl&QueueName=q", {}),
    ],
)
def test_a_path_that_is_no_text_is_any_path_to_a_client_of_sqs(path: str, query: str, target: dict[str, str]) -> None:
    """Its request is not about the path, so the path alone does not refuse it. Pyramid fails on such a path."""
    service = Service.open(load_settings(None, {}, {"storage": {"backend": "memory"}}))
    try:
        run(service.start(KEY))
        environ = {"PATH_INFO": path, "QUERY_STRING": query, "CONTENT_LENGTH": "0", **target}
        request = Request.blank("/", environ, method="POST")

        answer = request.get_response(wsgi_application(open_pipeline(service)))
    finally:
        service.close()

    assert (answer.status_code, "MissingAuthenticationToken" in answer.text) == (403, True)


@pytest.mark.parametrize("chosen", ["", KEY, "short"])
def test_its_first_key_is_one_that_somebody_knows(tmp_path: Path, chosen: str) -> None:
    """It drew one that it showed to nobody, and a later `queuey serve` had nothing to show any more."""
    environment = os.environ | {"QUEUEY_DATA": str(tmp_path), "QUEUEY_KEY": chosen}

    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "import queuey.wsgi; print('runs')"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    if chosen == "short":
        assert "the variable QUEUEY_KEY must be at least 16" in ended.stderr
    else:
        assert ended.stdout == "runs\n", ended.stderr
        service = Service.open(load_settings(None, {"QUEUEY_DATA": str(tmp_path)}))
        try:
            made = run(service.start())
            assert (made, service.keys.applications) == (None, ["demo"] if chosen else [])
        finally:
            service.close()


def test_where_the_wsgi_server_ends_tls_calls_say_so() -> None:
    """The cookie of the console is secure there, and the URLs of SQS queues begin with https."""
    assert headers_of({"wsgi.url_scheme": "https", "HTTP_HOST": "q"}) == {"host": "q", "x-forwarded-proto": "https"}
    assert headers_of({"wsgi.url_scheme": "http", "HTTP_HOST": "q"}) == {"host": "q"}


@pytest.mark.parametrize("raw", ["RAW_URI", "REQUEST_URI", None])
@pytest.mark.parametrize(
    ("script", "path"), [("", "/v1/demo"), ("/queues", "/v1/demo/"), ("/queues", ""), ("/qu\u00e4", "/v1/demo")]
)
def test_below_a_prefix_the_path_is_what_follows(raw: str | None, script: str, path: str) -> None:
    """gunicorn, waitress and others pass the whole raw path, prefix included."""
    environ = {"SCRIPT_NAME": script.encode().decode("latin-1"), "PATH_INFO": path}
    if raw is not None:
        environ[raw] = f"{quote(script + path)}?limit=1"

    assert decoded_path(environ) == path


def test_a_path_without_the_prefix_stays_whole() -> None:
    """A proxy may have taken it off."""
    assert decoded_path({"SCRIPT_NAME": "/queues", "RAW_URI": "/v1/demo"}) == "/v1/demo"
