"""What is lost at a power cut of what was acknowledged."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

from qdo.bench.drivers import Driver, OutgoingMessage
from qdo.bench.promises import PAUSE_SECONDS, NotHere, Trial, TrialResult, beside, drained
from qdo.bench.promises.lossy import LossyDisk
from qdo.bench.systems import EndedAtStart
from qdo.bench.workload import Workload
from queuey.errors import QueueNotFound, QueueyError

CUTS = 3
LOAD_SECONDS = 1.0
"""Of sending before each cut, at least."""
LEAST_MESSAGES = 200
"""Acknowledged before each cut, if that takes :data:`MOST_LOAD_SECONDS` at most."""
MOST_LOAD_SECONDS = 20.0
QUIET_SECONDS = 5.0
"""Longer than a lease of those that were not acknowledged."""


def lost_at_power_cut(trial: Trial) -> TrialResult:
    """Cuts the power of a disk while messages are sent, several times, and receives all that are left."""
    if trial.system_type.data_elsewhere:
        raise NotHere("its data are on another disk: only a system that runs in one folder can lose its power")
    receiving = {"batch": 10, "visibility": 3, "wait": 0.5}
    workload = trial.workload(Workload(name="power"), receiving=receiving)
    trial.system()
    got: set[bytes] = set()
    with LossyDisk(trial.folder) as disk, replace(trial, folder=disk.path).running(workload) as (system, driver):
        _keep_settings(disk.path)
        with _sending(driver) as acknowledged:
            for _ in range(CUTS):
                _load(acknowledged)
                system.kill()
                disk.cut()
                try:
                    system.start()
                except EndedAtStart as error:
                    return _all_lost(acknowledged, f"it does not start again after a power cut: {_end_of(error)}")
        try:
            with closing(driver.consumer(0, 0)) as consumer:
                for handed in drained(consumer, QUIET_SECONDS):
                    got |= {one.body for one in handed}
                    consumer.acknowledge([one.token for one in handed])
        except QueueNotFound:
            return _all_lost(acknowledged, "the queue itself is gone after a power cut")
        system.kill()
    lost = len(acknowledged - got)
    text = f"{lost:,} of {len(acknowledged):,} acknowledged messages were gone after {CUTS} power cuts"
    return TrialResult(lost, len(acknowledged), text)


def _load(acknowledged: set[bytes]) -> None:
    """Wait until enough is acknowledged: systems that have just started are slow."""
    least, give_up = len(acknowledged) + LEAST_MESSAGES, time.monotonic() + MOST_LOAD_SECONDS
    time.sleep(LOAD_SECONDS)
    while len(acknowledged) < least and time.monotonic() < give_up:
        time.sleep(PAUSE_SECONDS)


def _all_lost(acknowledged: set[bytes], said: str) -> TrialResult:
    return TrialResult(len(acknowledged), len(acknowledged), said)


def _end_of(error: QueueyError) -> str:
    return " ".join(str(error).split())[-200:]


def _keep_settings(folder: Path) -> None:
    """Sync the files that the harness itself wrote there, and what else is there before the load."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


@contextmanager
def _sending(driver: Driver) -> Iterator[set[bytes]]:
    """Sends while the block runs; the bodies that were acknowledged."""
    acknowledged: set[bytes] = set()

    def send(leave: threading.Event) -> None:
        with closing(driver.producer()) as producer:
            for at in count():
                if leave.is_set():
                    return
                body = f"{at}".encode()
                try:
                    producer.send(0, [OutgoingMessage(body)])
                    acknowledged.add(body)
                except QueueyError:
                    time.sleep(0.05)

    with beside(send):
        yield acknowledged
