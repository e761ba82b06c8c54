"""A trace goes from an append through the message to the job, and a collector gets spans and metrics."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import requests
from botocore.credentials import Credentials
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from qdo.client import Client, NewMessage
from tests.support import servers
from tests.support.client import new_name
from tests.support.commands import done, run_in
from tests.support.otlp_receiver import Receiver, receiving
from tests.support.raw import TIMEOUT_SECONDS
from tests.support.servers import APPLICATIONS, RunningServer, eventually
from tests.support.sqs_clients import sqs_client

KEY = APPLICATIONS["queuey"][0]
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{CALLER}-01"
XRAY = f"Root=1-{TRACE[:8]}-{TRACE[8:]};Parent={CALLER};Sampled=1"
OTHER = TRACE[::-1]
OTHER_XRAY = f"Root=1-{OTHER[:8]}-{OTHER[8:]};Parent={CALLER};Sampled=1"
JOBS = """
from opentelemetry import trace

import qdo


def process(message, context):
    with trace.get_tracer("shop").start_as_current_span("inside"):
        if context.can_append:
            context.append("results", "done")


def look(message, context):
    pass


@qdo.task
def greet(name: str) -> None:
    trace.get_tracer("shop").start_span("greeting").end()
"""


def text(value: str) -> dict[str, str]:
    """An attribute of a message of SQS."""
    return {"DataType": "String", "StringValue": value}


class Traced(NamedTuple):
    running: RunningServer
    collector: Receiver
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"QUEUEY_URL": self.running.url, "QUEUEY_APPLICATION": "queuey", "QUEUEY_KEY": KEY}

    def client(self) -> Client:
        return Client(self.running.url, "queuey", KEY)

    def post(self, queue: str, body: str, **headers: str) -> None:
        given = {"Authorization": f"Application {KEY}", "Content-Type": "text/plain"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        url = f"{self.running.url}/v1/queuey/{queue}"
        requests.post(url, body, headers=given, timeout=TIMEOUT_SECONDS).raise_for_status()

    def work(self, *options: str) -> None:
        """A worker that ends when everything is done."""
        ended = run_in(
            {**self.environment, "QDO_STATE": str(self.folder / "state")},
            self.folder,
            *("work", *options, "--exit-at-end", "--telemetry", self.collector.url),
            module="qdo.cli",
        )
        assert done(ended).code == 0


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    folder = tmp_path_factory.mktemp("traced")
    (folder / "jobs.py").write_text(JOBS)
    with pytest.MonkeyPatch.context() as patched, receiving() as collector:
        patched.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        patched.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
        settings = f"[telemetry]\nendpoint = {collector.url}\n[sqs]\nauth = open\n"
        with servers.shipped(folder, settings=settings, name="traced") as running:
            yield Traced(running, collector, folder)


def test_a_trace_goes_from_the_append_through_the_message_to_the_job_and_on(traced: Traced) -> None:
    queue = new_name()
    with traced.client() as client:
        client.create_queue(queue)
        client.create_queue("results")
        client.set_lease_group(queue, "default")
        traced.post(queue, "one", traceparent=PARENT, tracestate="shop=1", X_Request_Id="append-1")
        traced.work("jobs:process", "--lease", "--queue", queue)
        (message,) = client.read(queue).messages
        (result,) = client.read("results").messages

    (process,) = eventually(lambda: traced.collector.named(f"process {queue}"))
    (inside,) = eventually(lambda: traced.collector.named("inside"))
    (append,) = eventually(
        lambda: [
            one for one in traced.collector.named("POST queue") if one.attributes["queuey.request_id"] == "append-1"
        ]
    )
    assert {one.trace for one in (append, process, inside)} == {TRACE}
    assert [append.parent, process.parent, inside.parent] == [CALLER, append.id, process.id]
    assert (append.kind, process.kind) == (Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CONSUMER)
    assert [append.service, process.service, inside.service] == ["queuey", "qdo", "qdo"]
    assert append.attributes["http.response.status_code"] == 201
    assert process.attributes["messaging.message.id"] == message.id.hex
    assert message.headers == {"traceparent": f"00-{TRACE}-{append.id}-01".encode(), "tracestate": b"shop=1"}
    assert result.headers["traceparent"] == f"00-{TRACE}-{inside.id}-01".encode()


def test_a_worker_on_owned_partitions_goes_on_with_the_trace_too(traced: Traced) -> None:
    queue = new_name()
    with traced.client() as client:
        client.create_queue(queue)
        client.append_batch(queue, ["one", NewMessage("two", headers={"traceparent": PARENT})])
    traced.work("jobs:process", "--queue", queue)

    eventually(lambda: len(traced.collector.named(f"process {queue}")) == 2)
    spans = traced.collector.named(f"process {queue}")
    assert sorted(one.trace == TRACE for one in spans) == [False, True]
    assert [one.parent for one in spans if one.trace == TRACE] == [CALLER]


def test_what_clients_of_sqs_send_belongs_to_their_trace(traced: Traced) -> None:
    """By a message attribute, by the trace of X-Ray, or by a header of the request, as their libraries do it."""
    queue, system, attribute = new_name(), {"AWSTraceHeader": text(XRAY)}, {"traceparent": text(PARENT)}
    sqs = sqs_client(traced.running.url, Credentials("queuey", "any"))
    url = sqs.create_queue(QueueName=queue)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="attribute", MessageAttributes=attribute)
    sqs.send_message(QueueUrl=url, MessageBody="x-ray", MessageSystemAttributes=system)
    sqs.send_message(QueueUrl=url, MessageBody="none")
    sqs.meta.events.register(
        "before-sign.sqs.*", lambda request, **_: request.headers.add_header("traceparent", PARENT)
    )
    sqs.send_message(QueueUrl=url, MessageBody="header")
    sqs.send_message(QueueUrl=url, MessageBody="both", MessageSystemAttributes={"AWSTraceHeader": text(OTHER_XRAY)})
    with traced.client() as client:
        found = {one.text: one for one in client.read(queue).messages}
    traced.work("jobs:look", "--lease", "--group", "sqs", "--queue", queue)

    eventually(lambda: len(traced.collector.named(f"process {queue}")) == len(found))
    spans = traced.collector.named(f"process {queue}")
    of = {one.attributes["messaging.message.id"]: one for one in spans}
    traces = {body: of[one.id.hex].trace for body, one in found.items()}
    assert {body for body, trace in traces.items() if trace == TRACE} == {"attribute", "x-ray", "header"}
    assert traces["both"] == OTHER
    assert [of[found[body].id.hex].parent for body in ("attribute", "x-ray")] == [CALLER, CALLER]


def test_a_task_has_a_span_of_its_name(traced: Traced) -> None:
    sent = "import jobs; jobs.greet.send('Ann')"
    environment = os.environ | traced.environment
    subprocess.run([sys.executable, "-c", sent], cwd=traced.folder, env=environment, check=True)
    traced.work("--tasks", "jobs")

    (task,) = eventually(lambda: traced.collector.named("task jobs.greet"))
    (inside,) = eventually(lambda: traced.collector.named("greeting"))
    assert (inside.trace, inside.parent) == (task.trace, task.id)


def test_a_collector_gets_the_metrics_of_server_and_worker(traced: Traced) -> None:
    queue = new_name()
    with traced.client() as client:
        client.create_queue(queue)
        client.set_lease_group(queue, "default")
        client.append_batch(queue, ["one", "two"])
    traced.work("jobs:process", "--lease", "--queue", queue)

    collector = traced.collector
    eventually(lambda: collector.value("queuey", "queuey_messages_appended", app="queuey") >= 2)
    eventually(lambda: collector.value("queuey", "queuey_http_request_duration_seconds", code="201") >= 1)
    eventually(lambda: collector.value("qdo", "qdo_jobs", result="done") == 2)
    units = {metric.name: metric.unit for _, metric in collector.metrics}
    assert (units["queuey_http_request_duration_seconds"], units["queuey_messages_appended"]) == ("s", "1")


def test_without_a_collector_a_message_keeps_what_its_client_sent(shipped_server: RunningServer) -> None:
    plain, queue = Traced(shipped_server, Receiver(""), Path()), new_name()
    with plain.client() as client:
        client.create_queue(queue)
        plain.post(queue, "one", traceparent=PARENT)
        plain.post(queue, "two", traceparent="mine")
        plain.post(queue, "three", traceparent=PARENT, Queuey_Header_traceparent=PARENT.replace("b7", "b8"))
        found = client.read(queue).messages

    assert [one.headers.get("traceparent", b"").decode() for one in found] == [PARENT, "", PARENT.replace("b7", "b8")]


def test_a_program_without_a_collector_loads_nothing_for_it() -> None:
    loaded = "import sys, queuey.server.run, queuey.wsgi, qdo.worker, qdo.tasks; print([n for n in sys.modules if 'opentel' in n])"
    ended = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)

    assert ended.stdout == "[]\n"
