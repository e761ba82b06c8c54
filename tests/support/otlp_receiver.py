"""A collector of OpenTelemetry for tests: it takes spans and metrics by OTLP over HTTP, on a free port of this machine."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it came."""

    service: str
    name: str
    kind: int
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]


@dataclass
class Receiver:
    """What has come so far. Each list only grows."""

    url: str
    spans: list[ReceivedSpan] = field(default_factory=list)
    metrics: list[tuple[str, Any]] = field(default_factory=list)
    """The service and a metric of it."""
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Path and headers of each request."""

    def named(self, name: str) -> list[ReceivedSpan]:
        return [one for one in list(self.spans) if one.name == name]

    def value(self, service: str, name: str, **labels: str) -> float:
        """The newest value of a metric's series; 0 as long as none has come."""
        found = 0.0
        for of, metric in list(self.metrics):
            data = getattr(metric, metric.WhichOneof("data"))
            for point in data.data_points if (of, metric.name) == (service, name) else ():
                if labels.items() <= _attributes(point).items():
                    found = point.as_double if hasattr(point, "as_double") else point.count
        return found

    def take(self, path: str, body: bytes, headers: dict[str, str]) -> None:
        self.asked.append((path, headers))
        if path.endswith("/v1/traces"):
            for of in ExportTraceServiceRequest.FromString(body).resource_spans:
                service = _attributes(of.resource)["service.name"]
                for span in [span for scope in of.scope_spans for span in scope.spans]:
                    ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
                    self.spans.append(ReceivedSpan(service, span.name, span.kind, *ids, _attributes(span)))
        else:
            for told in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                service = _attributes(told.resource)["service.name"]
                self.metrics += [(service, metric) for scope in told.scope_metrics for metric in scope.metrics]


def _attributes(of: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in of.attributes}


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A collector that listens."""
    found = Receiver("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            plain = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            found.take(self.path, plain, {name.lower(): value for name, value in self.headers.items()})
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
