"""Calls about tasks of queues: part of each client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict, Unpack

from qdo.client.encoding import to_json
from qdo.client.endpoint import Endpoint
from qdo.client.moments import Moment, moment_to_wire
from qdo.client.steps import FORBIDDEN, Items, Listing, Pause, Reply, Steps, call, listing
from qdo.client.wire import group_path, queue_path, task_path

__all__ = ["LetterOptions", "QueueTask", "RedrivePreview", "TaskCalls"]

_LOOK_SECONDS = (0.05, 2.0)
"""Pauses between two looks at a task, at first and at most."""


@dataclass(frozen=True, slots=True)
class QueueTask:
    """A task of a queue: the server works on it, also after a restart."""

    name: str
    """``purge``, ``move``, or ``redrive:GROUP``."""
    id: str
    """32 hexadecimal digits: another for each task of this name."""
    state: str
    """``running``, ``cancelling``, ``done``, ``failed`` or ``cancelled``."""
    reason: str | None
    """Why it failed, or why it could not move some message."""
    started: str
    """Decimal seconds since 1970."""
    finished: str | None
    left: int
    """Messages that it has not looked at, approximately."""
    done: int
    """Messages that it has removed or moved."""
    failed: int
    """Messages that could not be moved."""
    asked: Mapping[str, Any] = field(hash=False)
    """What it was asked for."""

    @property
    def is_open(self) -> bool:
        """Whether the server still works on it."""
        return self.state in ("running", "cancelling")

    @classmethod
    def from_wire(cls, entry: Mapping[str, Any]) -> QueueTask:
        known = {name: entry[name] for name in ("name", "id", "state", "reason", "started", "finished", "left")}
        done = entry["removed"] if "removed" in entry else entry["moved"]
        asked = {name: value for name, value in entry.items() if name not in {*known, "removed", "moved", "failed"}}
        return cls(**known, done=done, failed=entry.get("failed", 0), asked=asked)


class LetterOptions(TypedDict, total=False):
    """Which dead letters are meant."""

    reason: str
    """A part of the reason for which they were given up."""
    key: str
    message_headers: Mapping[str, str]
    """Headers that the messages have, and their values."""
    since: Moment
    """They became dead letters then or later."""
    until: Moment
    """They became dead letters before."""


class RedrivePreview(NamedTuple):
    """What a redrive would do."""

    matching: int
    """Dead letters that it would move."""
    looked: int
    """Dead letters that the server has looked at."""
    more: bool
    """There are more than these."""


class TaskCalls:
    """Starts, watches and cancels tasks of queues."""

    application: str
    _endpoint: Endpoint

    @call
    def purge(self, queue: str) -> Steps[QueueTask]:
        """Begin to remove all messages that the queue has now, scheduled and leased ones too.

        A lost answer is not repeated: :meth:`task` shows what became of it.

        :raises TaskRunning: a purge of the queue runs already. Nothing was started.
        """
        path = (*queue_path(self.application, queue), "messages")
        return _task((yield from self._endpoint.ask("DELETE", *path, repeats=FORBIDDEN)))

    @call
    def task(self, queue: str, name: str) -> Steps[QueueTask]:
        """The newest task of a name, as it is now.

        :param name: as in :class:`QueueTask`.
        :raises TaskNotFound: there was none.
        """
        return _task((yield from self._endpoint.ask("GET", *task_path(self.application, queue, name))))

    @call
    def cancel_task(self, queue: str, name: str) -> Steps[QueueTask]:
        """Let a task stop. What it has done stays done, and a task that has ended stays as it is.

        A lost answer is not repeated, since it could stop a task of this name that was begun in between: :meth:`task` shows
        what became of it.

        :raises TaskNotFound: there was none.
        """
        return _task(
            (yield from self._endpoint.ask("DELETE", *task_path(self.application, queue, name), repeats=FORBIDDEN))
        )

    @call
    def redrive(
        self,
        queue: str,
        group: str,
        *,
        to: str | None = None,
        group_only: bool = False,
        rate: float | None = None,
        **wanted: Unpack[LetterOptions],
    ) -> Steps[QueueTask]:
        """Begin to move the dead letters that a lease group has now back to its queue, each once.

        Those that receivers of the dead-letter queue hold are moved, too.

        A lost answer is not repeated: :meth:`task` shows what became of it. Its name is ``redrive:GROUP``.

        :param to: another queue that they go to.
        :param group_only: no other lease group of the queue gets them.
        :param rate: letters a second; None for as many as the server can move.
        :param wanted: which letters; by default all that come from this queue and this group.
        :raises TaskRunning: a redrive of the group runs already. Nothing was started.
        :raises LeaseGroupNotFound, QueueNotFound, Conflict: nothing was started.
        """
        asked: dict[str, Any] = {"queue": to, "group_only": group_only, "rate": rate, "filter": _filter(wanted)}
        path, data = self._redrive_path(queue, group), _json(asked)
        return _task((yield from self._endpoint.ask("POST", *path, data=data, headers=_JSON, repeats=FORBIDDEN)))

    @call
    def preview_redrive(self, queue: str, group: str, **wanted: Unpack[LetterOptions]) -> Steps[RedrivePreview]:
        """How many dead letters a redrive would move. Nothing is done."""
        data = _json({"preview": True, "filter": _filter(wanted)})
        answer = yield from self._endpoint.ask("POST", *self._redrive_path(queue, group), data=data, headers=_JSON)
        told = answer.json()
        return RedrivePreview(told["matching"], told["looked"], told["more"])

    def _redrive_path(self, queue: str, group: str) -> tuple[str, ...]:
        return (*group_path(self.application, queue, "leases", group), "redrive")

    @listing
    def tasks(self, queue: str, *, page_size: int = 1000) -> Listing[QueueTask]:
        """The tasks of a queue by name, the newest of each name.

        Each page is requested when the iteration reaches it.
        """
        path, params = queue_path(self.application, queue), {"limit": page_size, "offset": ""}
        return self._endpoint.listed(
            *path, "tasks", params=params, read=lambda page: map(QueueTask.from_wire, page["tasks"])
        )

    @listing
    def watch_task(self, queue: str, name: str) -> Listing[QueueTask]:
        """A task as it is now, again and again until it has ended, which is the last one.

        :param name: as in :class:`QueueTask`.
        :raises TaskNotFound: there was no such task.
        """
        pause, most = _LOOK_SECONDS
        while True:
            task = _task((yield from self._endpoint.ask("GET", *task_path(self.application, queue, name))))
            yield Items([task])
            if not task.is_open:
                return
            yield Pause(pause)
            pause = min(2 * pause, most)


def _task(answer: Reply) -> QueueTask:
    return QueueTask.from_wire(answer.json()["task"])


_JSON = {"Content-Type": "application/json"}


def _json(members: Mapping[str, Any]) -> bytes:
    """The members that are given."""
    return to_json({name: value for name, value in members.items() if value is not None})


def _filter(wanted: LetterOptions) -> dict[str, Any] | None:
    members: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    if "message_headers" in members:
        members["headers"] = members.pop("message_headers")
    for name in {"since", "until"} & members.keys():
        members[name] = moment_to_wire(members[name], name)
    return members or None
