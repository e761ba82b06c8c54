"""How fast the generator and the judge are by themselves: the limit below which a system can be measured at all.

Times are those of the processor, in one process of the generator. So they say what one core does, whatever else the machine
does meanwhile.
"""

from __future__ import annotations

import gc
import multiprocessing
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from qdo.bench.beginning import signals_wait
from qdo.bench.drivers import MeasuredSystem, OutgoingMessage, Producer, driver_class
from qdo.bench.judge import all_received, all_sent, judged
from qdo.bench.records import RECEIVED, SENT, STORED, ReceivedRow, SentRow, Writer
from qdo.bench.senders import LoadSender, LoadShare, texts_of
from qdo.bench.workload import Workload, changed
from queuey.errors import QueueyError, StorageUnavailable

__all__ = ["LEAST_RATE", "MOST_OVERHEAD", "OwnSpeed", "own_speed"]

LEAST_RATE = 60_000.0
"""Requests a second that the generator makes by itself."""
MOST_OVERHEAD = 0.05
"""Of the time of a request: what is written down for the judge."""
ROWS = 50_000
"""That the judge reads."""
TURNS = 5
_ANSWER = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"


class OwnSpeed(NamedTuple):
    """All of it, as medians of the turns."""

    alone: float
    """Requests a second of one core to a producer that does nothing: drawing what is due, bodies, clocks, rows."""
    over_http: float
    """The same with a connection to a server that answers each request at once, with nothing."""
    written: float
    """Of the time of a request over HTTP, the share that writing rows for the judge takes, the receipt's row included."""
    judged: float
    """Receipts a second that the judge reads after the run."""


class _Nowhere(Producer):
    """Its system takes everything, and does nothing."""

    def send(self, topic: int, messages: Sequence[OutgoingMessage]) -> None:
        return

    def close(self) -> None:
        return


def own_speed(seconds: float) -> OwnSpeed:
    """Measure each in turns of this length.

    :raises QueueyError: the server that does nothing could not be started.
    """
    workload = changed(Workload(name="speed", message_size=256), seconds=seconds, warmup=0)
    with TemporaryDirectory(prefix="queuey-bench-") as folder, _silent_server() as url:
        there = Path(folder)
        target = MeasuredSystem(workload, 1, {"url": url, "application": "bench", "key": "none"})
        http = driver_class("queuey")(target).producer()
        alone, over_http, rows = [], [], []
        for _ in range(TURNS):
            alone.append(_rate(target, _Nowhere(), there))
            over_http.append(_rate(target, http, there))
            rows.append(_seconds_of_rows(there))
        http.close()
        middle = median(over_http)
        return OwnSpeed(median(alone), middle, median(rows) * middle, _judged(workload, there))


def _rate(target: MeasuredSystem, producer: Producer, folder: Path) -> float:
    """Requests a second of processor time, by the sender that runs have."""
    sender = LoadSender(target, producer, LoadShare(0, 1), texts_of(target.workload))
    gc.collect()
    with Writer(folder / "sent-rate", SENT) as out:
        began = time.process_time()
        sender.run(target.clock.now(), None, out.write, lambda: False)
        took = time.process_time() - began
    if sender.refusals:
        raise QueueyError(f"the server that does nothing refused: {sender.refusals.most_common(1)[0][0]}")
    return sender.stored / took


def _sent(number: int) -> SentRow:
    at = 10_000 * number
    return SentRow(0, number, 1, STORED, at, at, at + 1000, at + 9000)


def _received(number: int) -> ReceivedRow:
    at = 10_000 * number
    return ReceivedRow(0, 0, 0, number, 0, 0, at, at, at, at + 1000, at + 9000, at + 10**9, at + 9500, at + 9100)


def _seconds_of_rows(folder: Path) -> float:
    """Processor seconds of the two rows of one message: that of its request, and that of its receipt."""
    sent, received = [*map(_sent, range(5000))], [*map(_received, range(5000))]
    with Writer(folder / "rows-sent", SENT) as out, Writer(folder / "rows-received", RECEIVED) as more:
        began = time.process_time()
        for one in sent:
            out.write(one)
        for receipt in received:
            more.write(receipt)
        return (time.process_time() - began) / 5000


def _judged(workload: Workload, folder: Path) -> float:
    """Receipts a second."""
    _fill(folder / "sent-judged", SENT, _sent)
    _fill(folder / "received-judged", RECEIVED, _received)
    began = time.process_time()
    judged(workload, all_sent([folder / "sent-judged"]), all_received([folder / "received-judged"]))
    return ROWS / (time.process_time() - began)


def _fill(path: Path, form: object, row: Callable[[int], SentRow | ReceivedRow]) -> None:
    with Writer(path, form) as out:  # type: ignore[arg-type]
        for number in range(ROWS):
            out.write(row(number))


@contextmanager
def _silent_server() -> Iterator[str]:
    """The address of a server that answers each request at once, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    with signals_wait():
        process.start()
    theirs.close()
    try:
        try:
            port = ours.recv()
        except EOFError as error:
            raise StorageUnavailable("the server that does nothing did not start") from error
        yield f"http://127.0.0.1:{port}"
    finally:
        ours.close()
        process.terminate()
        process.join()


def _serve(pipe: Pipe) -> None:
    """Take connections one after the other, until the process is ended."""
    sys.setswitchinterval(1.0)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        pipe.send(listening.getsockname()[1])
        while True:
            line, _ = listening.accept()
            with line:
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _answer_all(line)


def _answer_all(line: socket.socket) -> None:
    rest = b""
    while piece := line.recv(1 << 16):
        rest += piece
        while (end := rest.find(b"\r\n\r\n")) >= 0:
            at = rest.find(b"Content-Length: ") + len(b"Content-Length: ")
            whole = end + 4 + int(rest[at : rest.find(b"\r", at)])
            if len(rest) < whole:
                break
            rest = rest[whole:]
            line.sendall(_ANSWER)
