"""What a program tells a collector of OpenTelemetry: spans of calls, and its metrics.

The libraries are those of the extra ``telemetry``. They take a third of a second to load and 20 MiB, so only a program that
has a collector loads them: :mod:`queuey.monitor.collector` uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from queuey.errors import ConfigurationError
from queuey.monitor.declared import MetricSet

__all__ = ["CallSpan", "Telemetry", "open_telemetry"]


class CallSpan(Protocol):
    """The span of one call under way."""

    @property
    def carried(self) -> Mapping[str, str]:
        """The trace context for what the call stores; empty if the span is not recorded."""

    def end(self, status: int) -> None:
        """The call is answered.

        :param status: of HTTP.
        """


class Telemetry(Protocol):
    """The way to a collector. Thread-safe."""

    def call_span(self, name: str, headers: Mapping[str, str], attributes: Mapping[str, str]) -> CallSpan:
        """Begin the span of a call that a client has sent.

        :param headers: of the request, by lower-case name; its trace context is the span's parent.
        """

    def use_everywhere(self) -> None:
        """Let all spans of this program go there, also those of other libraries."""

    def report(self, look: Callable[[], MetricSet]) -> None:
        """Send metrics from now on, once a minute.

        :param look: brings the figures up to date, and gives them. It may block.
        """

    def close(self) -> None:
        """Send what is left, for a few seconds at most, and end."""


def open_telemetry(endpoint: str, name: str) -> Telemetry:
    """Begin to send to a collector.

    :param endpoint: its address for OTLP over HTTP, such as ``http://127.0.0.1:4318``.
    :param name: of the service, if OTEL_SERVICE_NAME gives none.
    :raises ConfigurationError: the extra is missing.
    """
    try:
        from queuey.monitor.collector import Collector
    except ImportError as error:
        raise ConfigurationError(
            f"telemetry for {endpoint} needs the libraries of OpenTelemetry: pip install '/path/to/queuey[telemetry]' ({error})"
        ) from error
    return Collector(endpoint, name)
