"""Beside ElasticMQ, a server for clients of SQS that keeps messages in memory, or in its file store.

The same requests go to both, in turns. No signature is checked on either side: ElasticMQ has no keys.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from string import Template

import requests
from botocore.credentials import Credentials

from tests.bench.drivers import NUMBER, Load, drive
from tests.bench.measure import BenchFailed, alternate, ratios, until
from tests.bench.plan import CONNECTIONS, Plan
from tests.bench.servers import START_SECONDS, Server, access_key, end, queuey
from tests.bench.sqs import OPEN, ask, cycle, make_queue
from tests.bench.table import Row, number
from tests.support.services.jars import RECIPES, jars
from tests.support.services.ports import free_ports

QUEUE = f"q{NUMBER}"
_WARM_SECONDS = 20
"""For ElasticMQ alone: the compilers of Java have to see the code first."""
_SHARE_LEFT = 0.05
"""Of the messages, at most: more would mean that receives came back empty."""


@contextmanager
def elasticmq(folder: Path, *, on_disk: bool) -> Iterator[Server]:
    """One server with its defaults."""
    (port,) = free_ports(1, ["127.0.0.1"])
    settings = Template((RECIPES / "elasticmq" / "elasticmq.conf").read_text())
    config = folder / "elasticmq.conf"
    config.write_text(settings.substitute(port=port, folder=folder.resolve(), on_disk=str(on_disk).lower()))
    options = [f"-Dconfig.file={config}", f"-Dlogback.configurationFile={RECIPES / 'quiet.xml'}"]
    command = ["java", *options, "-cp", f"{jars('elasticmq')}/*", "org.elasticmq.server.Main"]
    url, began = f"http://127.0.0.1:{port}", time.perf_counter()
    with (folder / "said.txt").open("wb") as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        until(lambda: _answers(process, url, folder / "said.txt"), START_SECONDS, "ElasticMQ to answer")
        yield Server(process, url, time.perf_counter() - began)
    finally:
        end(process)


def _answers(process: subprocess.Popen[bytes], url: str, said: Path) -> bool:
    if process.poll() is not None:
        raise BenchFailed(f"ElasticMQ ended with {process.returncode} and said:\n{said.read_text()[-1000:]}")
    try:
        return requests.get(f"{url}/?Action=ListQueues", timeout=10).ok
    except requests.ConnectionError:
        return False


def measure(plan: Plan) -> Iterator[Row]:
    """Messages sent, received and deleted, one by one and by ten, beside each of its stores."""
    for on_disk in (False, True):
        folder = plan.fresh("beside")
        key = Credentials(*access_key(folder))
        with (
            queuey(folder, OPEN) as ours,
            elasticmq(plan.fresh("elasticmq"), on_disk=on_disk) as theirs,
        ):
            for messages in (1, 10):
                yield _row(ours, theirs, key, messages, plan, on_disk=on_disk)


def _row(ours: Server, theirs: Server, key: Credentials, messages: int, plan: Plan, *, on_disk: bool) -> Row:
    def run(server: Server, seconds: float = plan.seconds) -> Load:
        url = make_queue(server, key, QUEUE)
        script = cycle(key, url, messages, "return 0")
        found = drive(server, script, CONNECTIONS, seconds)
        _check_rest(server, key, url, found.requests * messages / 3)
        ask(server, key, "DeleteQueue", {"QueueUrl": url})
        server.settle()
        return found

    run(theirs, _WARM_SECONDS)
    below, above = alternate(lambda: run(theirs), lambda: run(ours), plan.rounds)
    slower = ratios([load.p99_ms for load in above], [load.p99_ms for load in below])
    store = "with its file store" if on_disk else "in memory"
    bars = {"first": "ratio >= 1"} if on_disk else {"goal": "ratio >= 1, p99 <= 1"}
    return Row(
        f"SQS: send, receive and delete, three requests for {messages}, beside ElasticMQ {store}",
        _told(below, messages),
        f"{_told(above, messages)}, {slower.middle:.2f} times as long",
        ratios([load.rate for load in above], [load.rate for load in below]),
        figures={"p99": slower.middle},
        **bars,
    )


def _told(loads: list[Load], messages: int) -> str:
    rate = number(median(load.rate for load in loads) * messages / 3)
    return f"{rate} msg/s, p99 {median(load.p99_ms for load in loads):.1f} ms"


def _check_rest(server: Server, key: Credentials, url: str, messages: float) -> None:
    """:raises BenchFailed: much of what was sent was not received."""
    name = "ApproximateNumberOfMessages"
    found = ask(server, key, "GetQueueAttributes", {"QueueUrl": url, "AttributeNames": [name]})
    left = int(found["Attributes"][name])
    if left > messages * _SHARE_LEFT + 100 * CONNECTIONS:
        raise BenchFailed(f"{left} of {messages:.0f} messages were not received")
