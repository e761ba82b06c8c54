"""What the server's processor spends on a request more: for a line in the log, for TLS, for a span."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from unittest.mock import patch

from tests.bench.drivers import append_one, drive, in_turn
from tests.bench.measure import alternate, ratios
from tests.bench.plan import CONNECTIONS, PARTITIONS, Plan
from tests.bench.servers import Server, queuey
from tests.bench.table import Row
from tests.support.otlp_receiver import receiving
from tests.support.services.certificates import Authority

_QUEUE = "jobs"
_ONE_IN_A_HUNDRED = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"}


def measure(plan: Plan) -> Iterator[Row]:
    """Processor time of an append, with and without each of them."""
    yield _compared(
        plan, "with a line in the request log", {"QUEUEY_LOG_REQUESTS": "true", "QUEUEY_LOG_FORMAT": "json"}
    )
    authority = Authority(plan.fresh("authority"))
    identity = authority.identity("server", "127.0.0.1")
    identity.key.chmod(0o600)
    files = {"QUEUEY_TLS_CERT": str(identity.cert), "QUEUEY_TLS_KEY": str(identity.key)}
    with patch.dict("os.environ", REQUESTS_CA_BUNDLE=str(authority.file)):
        yield _compared(plan, "over TLS, on open connections", files)
    with receiving() as collector:
        endpoint = {"QUEUEY_TELEMETRY_ENDPOINT": collector.url}
        yield _compared(plan, "with a span for a collector", endpoint)
        yield _compared(plan, "with a span of one append in a hundred", endpoint | _ONE_IN_A_HUNDRED)


def _compared(plan: Plan, what: str, variables: Mapping[str, str]) -> Row:
    with _ready(plan, {}) as plain, _ready(plan, variables) as other:
        without, having = alternate(
            lambda: _microseconds(plain, plan), lambda: _microseconds(other, plan), max(plan.rounds, 3)
        )
    more = median(having) - median(without)
    return Row(
        f"processor time of an append {what}",
        f"{median(without):.0f} us",
        f"{median(having):.0f} us, {more:.0f} more",
        ratios(having, without),
        figures={"more": more},
    )


@contextmanager
def _ready(plan: Plan, variables: Mapping[str, str]) -> Iterator[Server]:
    with queuey(plan.fresh("request"), variables) as server:
        server.create(_QUEUE, PARTITIONS)
        yield server


def _microseconds(server: Server, plan: Plan) -> float:
    """What the server's process spends on one append."""
    server.settle()
    before = server.cpu_seconds()
    load = drive(server, in_turn([append_one(_QUEUE)]), CONNECTIONS, plan.seconds)
    return 1e6 * (server.cpu_seconds() - before) / load.requests
