"""``qdo-worker`` of 2012 on the worker of today.

It has the settings, the hooks and the names of 2012 (queuey-api-v1 13).

Its faults are mended: queues with dashes in their names, positions beyond the first partition of ``qdo_status``, 80
requests for 20 messages. Positions are offsets of the group ``qdo-worker`` now. Where the group has no offset yet, it
goes on at the position of qdo 0.1.
"""

from __future__ import annotations

import base64
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from qdo.client import Client, Message
from qdo.compat.positions import STATUS_QUEUE, parse_old_partition, positions, to_offsets
from qdo.groups.assign import Partition
from qdo.groups.coordination import Coordinator, Member, Plan
from qdo.groups.local import LocalCoordinator
from qdo.worker import Worker, WorkerOptions
from qdo.worker.hooks_of_2012 import ERROR_QUEUE
from qdo.worker.job import Context, FailedMessages, RetryPolicy, check_job, load_hook
from queuey.errors import ConfigurationError, QueueNotFound
from queuey.settings.ini import read_ini

__all__ = ["FixedCoordinator", "OldSettings", "OldWorker", "as_dict", "open_coordinator", "read_settings"]

GROUP = "qdo-worker"
SPECIAL_PARTITIONS = 7
_KEYS = {
    "DEFAULT": {"extends"},
    "qdo-worker": {"name", "wait_interval", "ca_bundle", "job", "job_context", "job_failure"},
    "partitions": {"policy", "ids"},
    "queuey": {"connection", "app_key"},
    "zookeeper": {"connection", "party_wait"},
}
_POLICIES = {"manual": False, "all": False, "automatic": True}
_WITHOUT_MEANING = {
    "wait_interval": "new messages arrive without polling",
    "party_wait": "members need not agree before they begin",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OldSettings:
    """What the ini file says."""

    url: str
    application: str
    key: str | None
    name: str
    job: str
    job_context: str
    job_failure: str
    automatic: bool
    partitions: Sequence[Partition]
    """Empty for all."""
    zookeeper: str
    ca_bundle: str
    notices: Sequence[str]
    """Settings that have no meaning any more."""

    def client(self) -> Client:
        return Client(self.url, self.application, self.key)

    def wants(self, partition: Partition) -> bool:
        """Whether the worker works on a partition.

        Queues of qdo itself are never worked on.
        """
        if partition.queue.startswith((STATUS_QUEUE, ERROR_QUEUE)):
            return False
        return not self.partitions or partition in self.partitions


def read_settings(path: Path, environ: Mapping[str, str]) -> OldSettings:
    """:raises ConfigurationError: no such file, an unknown section or key, or an invalid value."""
    sections = read_ini(path, environ)
    notices = []
    for section, entries in sections.items():
        if section == "metlog":
            notices.append("[metlog]: the log is on standard error; 'qdo work --metrics' serves metrics to Prometheus")
            continue
        if section not in _KEYS:
            raise ConfigurationError(f"{path}: section [{section}] is unknown: expected {', '.join(_KEYS)}")
        for key in entries:
            if key not in _KEYS[section]:
                known = ", ".join(sorted(_KEYS[section]))
                raise ConfigurationError(f"{path}: [{section}] {key} is unknown: expected {known}")
            if key in _WITHOUT_MEANING:
                notices.append(f"[{section}] {key} is not needed any more: {_WITHOUT_MEANING[key]}")

    def value(section: str, key: str, default: str = "") -> str:
        entry = sections.get(section, {}).get(key)
        return (entry.text(environ, f"[{section}] {key}") if entry else "") or default

    policy = value("partitions", "policy", "manual")
    if policy not in _POLICIES:
        raise ConfigurationError(f"{path}: [partitions] policy = {policy}: expected manual or automatic")
    ids = sections.get("partitions", {}).get("ids")
    url, application = _parse_connection(path, value("queuey", "connection", "http://127.0.0.1:5000/v1/queuey/"))
    return OldSettings(
        url,
        application,
        value("queuey", "app_key") or None,
        value("qdo-worker", "name"),
        value("qdo-worker", "job"),
        value("qdo-worker", "job_context", "qdo.worker:dict_context"),
        value("qdo-worker", "job_failure", "qdo.worker:log_failure"),
        _POLICIES[policy],
        _parse_ids(path, ids.lines(environ) if ids else []),
        value("zookeeper", "connection", "127.0.0.1:2181/mozilla-qdo"),
        value("qdo-worker", "ca_bundle"),
        notices,
    )


def _parse_connection(path: Path, text: str) -> tuple[str, str]:
    parts = urlsplit(text)
    before, version, application = parts.path.strip("/").rpartition("v1/")
    if not (parts.scheme and parts.netloc and version and application) or "/" in application:
        raise ConfigurationError(f"{path}: [queuey] connection = {text}: expected http://HOST:PORT/v1/APPLICATION/")
    return f"{parts.scheme}://{parts.netloc}/{before}".rstrip("/"), application


def _parse_ids(path: Path, lines: Sequence[str]) -> Sequence[Partition]:
    try:
        return [parse_old_partition(line) for line in lines]
    except ValueError as error:
        raise ConfigurationError(f"{path}: [partitions] ids: {error}") from error


class FixedCoordinator(LocalCoordinator):
    """Policy ``manual``: each process names its own partitions.

    Processes share only claims and offsets.

    Two processes with different partitions do not take them from each other. If both name a partition, one owns it and
    the other waits for it.
    """

    _own_plan = Plan()

    def members(self) -> Sequence[Member]:
        return [member for member in super().members() if member.name == self._file.name]

    def plan(self) -> Plan:
        return self._own_plan

    def propose(self, plan: Plan) -> bool:
        self._own_plan = plan
        return True


def open_coordinator(settings: OldSettings, state: Path | None = None) -> Coordinator:
    """:raises CoordinatorUnavailable: with policy ``automatic``, if no ZooKeeper answers.
    :raises ConfigurationError: kazoo is missing.
    """
    if not settings.automatic:
        return FixedCoordinator(f"{settings.url}/{settings.application}/{GROUP}", state)
    try:
        from qdo.groups.zookeeper import ZooKeeperCoordinator
    except ImportError as error:
        raise ConfigurationError(
            f"policy = automatic needs more: pip install '/path/to/queuey[zookeeper]' ({error})"
        ) from error
    return ZooKeeperCoordinator(settings.zookeeper, settings.application, GROUP)


class OldWorker(Worker):
    """Runs one job at a time and tries each message once.

    A failure goes to ``job_failure`` and counts as processed.
    """

    def __init__(self, settings: OldSettings, coordinator: Coordinator, context: Any, client: Client) -> None:
        """:param context: what ``job_context`` gave.
        :param client: for ``job_failure``, which only the one job thread calls.
        :raises ConfigurationError: a hook names no function, or a function that takes other arguments.
        """
        job, job_failure = load_hook(settings.job), load_hook(settings.job_failure)
        check_job(job, "message", "context")
        check_job(job_failure, "message", "context", "queue", "exc", "queuey_conn")

        def run(message: Message, here: Context) -> None:
            job(as_dict(message), here.value)

        def give_up(failed: FailedMessages, value: Any) -> None:
            for message in failed.messages:
                queue = f"{failed.queue}-{message.partition}"
                job_failure(as_dict(message), value, queue, failed.error, client)

        options = WorkerOptions(
            group=GROUP,
            name="-".join(filter(None, [socket.getfqdn(), str(os.getpid()), settings.name])),
            threads=1,
            retry=RetryPolicy(attempts=1),
            dead_letters=None,
            wants=settings.wants,
            context_value=context,
            on_failure=give_up,
        )
        super().__init__(run, ["*"], coordinator, settings.client, options)


def as_dict(message: Message) -> Mapping[str, Any]:
    """A message as the API of the first Queuey gave it to hooks.

    A body that is not UTF-8 is base64.
    """
    told: dict[str, Any] = {
        "message_id": message.id.hex,
        "partition": message.partition,
        "timestamp": message.timestamp,
    }
    try:
        return told | {"body": message.text}
    except UnicodeDecodeError:
        return told | {"body": base64.b64encode(message.body).decode(), "encoding": "base64"}


def prepare(client: Client, coordinator: Coordinator) -> int:
    """Make the queue for errors, and take over positions of qdo 0.1.

    It takes over positions where the group has neither offset nor owner.

    Of several workers that start at once, one takes a position over. The others find the offset and change nothing.

    :returns: how many positions were taken over.
    """
    client.create_queue(ERROR_QUEUE, partitions=SPECIAL_PARTITIONS)
    try:
        found, _ = to_offsets(client, positions(client))
    except QueueNotFound:
        return 0
    return len(coordinator.begin(found)) if found else 0


def hook_context(settings: OldSettings) -> Any:
    """The context manager that ``job_context`` returns."""
    make: Callable[[], Any] = load_hook(settings.job_context)
    return make()
