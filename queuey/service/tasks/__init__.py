"""Tasks: starts, runs, shows and cancels work that takes longer than a request.

Each server looks for tasks that no living server runs. A server that runs one keeps it by changing its row with each
step, and another may take it over half a minute after the last change. A server that was taken over finds that out with
its next change.
"""

from __future__ import annotations

import logging
import secrets
import threading
import uuid
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any, NamedTuple

from queuey.clock import Clock
from queuey.errors import (
    OutcomeUnknown,
    QueueNotFound,
    QueueyError,
    TaskNotFound,
    TaskRunning,
    TooManyTasks,
)
from queuey.future import Future, run
from queuey.ids import TICKS_PER_SECOND
from queuey.model import Queue
from queuey.model.tasks import StoredTask, TaskState
from queuey.monitor.metrics import TASKS_ENDED, Monitor
from queuey.service.leases import Leases
from queuey.service.log import Log
from queuey.service.queues import Queues
from queuey.service.tasks.kinds import MOST_OPEN, Stepped, TaskKind
from queuey.service.tasks.letters import MOVE, REDRIVE
from queuey.service.tasks.move import MoveKind
from queuey.service.tasks.purge import PURGE, PurgeKind
from queuey.service.tasks.redrive import LetterFilter, Previewed, RedriveKind, redrive_name
from queuey.storage import Stores

__all__ = ["MOST_TASKS", "MOVE", "PURGE", "LetterFilter", "Previewed", "Tasks", "redrive_name"]

log = logging.getLogger(__name__)

MOST_TASKS = 100
"""Tasks of one application that run at once."""
_KEPT_SECONDS = 30.0
"""How long a task is its server's after its last change."""
_RENEW_SECONDS = 10.0
"""A task that waits is changed so often, to stay its server's."""
_LOOK_SECONDS = 5.0
"""How often a server looks for tasks that others began."""
_PATIENCE_SECONDS = 600.0
"""How long a step is repeated while the store is unavailable or full."""
_RETRY_SECONDS = (0.5, 15.0)
"""The pause after a failed step, at first and at most."""


class _Trouble(NamedTuple):
    """Steps of a task that failed in a row."""

    since: float
    rest_seconds: float


class _SaidOnce:
    """Logs the trouble of each task, and nothing again that it said last."""

    def __init__(self) -> None:
        self._said: dict[uuid.UUID, str] = {}

    def say(self, task: StoredTask, trouble: str) -> None:
        if self._said.get(task.id) != trouble:
            self._said[task.id] = trouble
            log.info("%s of %s/%s %s", task.name, task.application, task.queue_name, trouble)

    def forget(self, task: StoredTask) -> None:
        self._said.pop(task.id, None)

    def keep(self, known: Container[uuid.UUID]) -> None:
        """Forget all other tasks."""
        self._said = {id_: said for id_, said in self._said.items() if id_ in known}


class Tasks:
    """The tasks of all queues."""

    def __init__(
        self, stores: Stores, queues: Queues, log: Log, leases: Leases, clock: Clock, monitor: Monitor
    ) -> None:
        self._store, self._queues, self._log = stores.tasks, queues, log
        self._clock, self._monitor = clock, monitor
        self.redrives = RedriveKind(stores, queues, log, clock, monitor)
        self._kinds: Mapping[str, TaskKind] = {
            PURGE: PurgeKind(log, leases, clock, monitor),
            REDRIVE: self.redrives,
            MOVE: MoveKind(stores, leases, queues, log, clock, monitor),
        }
        self._server = secrets.token_hex(8)
        """Names this process among all that ever ran tasks."""
        self._due: dict[uuid.UUID, float] = {}
        """The elapsed time of each task's next step."""
        self._troubles: dict[uuid.UUID, _Trouble] = {}
        self._said = _SaidOnce()
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    # For callers

    async def purge(self, queue: Queue, upto: int | None = None) -> StoredTask:
        """Begin to remove all messages that a queue has now; see :meth:`begin` for what is raised.

        :param upto: ticks: those that it had at this earlier moment.
        """
        states = await self._queues.inspect(queue)
        asked = {"upto": self._log.newest_ticks(queue) if upto is None else upto}
        return await self.begin(queue, PURGE, asked, total=sum([state.depth for state in states]))

    async def redrive(self, queue: Queue, group: str, asked: Mapping[str, Any]) -> StoredTask:
        """Begin to move the dead letters that a group has now; see :meth:`begin` for what is raised.

        :param asked: ``from``, the dead-letter queue; ``match``, the fields of a :class:`LetterFilter` behind the first
            two; ``rate``, letters a second, 0 for any number; ``queue``, where they go in place of the group's queue;
            ``group_only``, whether no other group gets them. Other members are for those that watch.
        """
        dead = await self._queues.find(queue.application, asked["from"])
        states = [] if dead is None else await self._queues.inspect(dead)
        asked = {**asked, "upto": self._log.newest_ticks(dead or queue)}
        return await self.begin(queue, redrive_name(group), asked, total=sum([state.depth for state in states]))

    async def begin(self, queue: Queue, name: str, asked: Mapping[str, Any], *, total: int) -> StoredTask:
        """Start a task.

        :param total: messages that it will look at.
        :raises TaskRunning: a task of this name runs on this queue.
        :raises TooManyTasks: the application has :data:`MOST_TASKS` running ones.
        """
        before = await self._store.find_task(queue.uuid, name)
        if before is not None and before.is_open:
            raise TaskRunning(f"{name} of {queue.name} has run since it was asked for as {before.id.hex}")
        running = await self._store.open_tasks(MOST_OPEN)
        if sum(task.application == queue.application for task in running) >= MOST_TASKS or len(running) >= MOST_OPEN:
            raise TooManyTasks
        now = self._clock.now_ticks()
        task = StoredTask(queue.uuid, name, queue.application, queue.name, uuid.uuid4(), now, asked, total=total)
        if not await self._store.change_task(before, task):
            raise TaskRunning(f"{name} of {queue.name} was started by another request")
        self._wake.set()
        return task

    async def find(self, queue: Queue, name: str) -> StoredTask:
        """The newest task of this name.

        :raises TaskNotFound: there is none.
        """
        found = await self._store.find_task(queue.uuid, name)
        if found is None:
            raise TaskNotFound
        return found

    def page(self, queue: Queue, *, start: str, limit: int) -> Future[Sequence[StoredTask]]:
        """Tasks of a queue by name, starting with ``start``."""
        return self._store.list_tasks(queue.uuid, start=start, limit=limit)

    async def cancel(self, queue: Queue, name: str, id_: uuid.UUID | None = None) -> StoredTask:
        """Let a task do nothing new. What it has done stays done; a task that has ended stays as it is.

        :param id_: the task that is meant; None for any.
        :raises TaskNotFound: there is none.
        """
        while True:
            task = await self.find(queue, name)
            if id_ not in (None, task.id):
                raise TaskNotFound
            if task.state is not TaskState.RUNNING:
                return task
            cancelled = task.changed(state=TaskState.CANCELLING)
            if await self._store.change_task(task, cancelled):
                self._due.pop(task.id, None)
                self._wake.set()
                return cancelled

    async def abandon(self, queue: uuid.UUID) -> None:
        """A queue is being removed, and its tasks with it: they leave nothing behind elsewhere. May be repeated.

        :raises StorageUnavailable: some of it may be left.
        """
        start = ""
        while tasks := await self._store.list_tasks(queue, start=start):
            for task in tasks:
                if task.is_open:
                    await self._abandon(task)
            start = tasks[-1].name + "\0"

    async def _abandon(self, task: StoredTask) -> None:
        kind = self._kinds.get(task.kind)
        if kind is not None:
            await kind.abandon(task)

    # Running

    def start(self) -> None:
        """Run tasks in a thread, those of earlier processes too."""
        self._thread = threading.Thread(target=self._work, name="tasks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the step under way. May be called again."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        said = ""
        while not self._stopping:
            try:
                rest = run(self.turn())
                said = ""
            except QueueyError as error:
                rest = _LOOK_SECONDS
                if str(error) != said:  # log a repeated failure only once
                    said = str(error)
                    log.warning("tasks of queues could not be run: %s", error)
            except Exception:
                rest = _LOOK_SECONDS
                log.exception("tasks of queues could not be run")  # go on: others may work
            self._wake.wait(None if rest == inf else rest)
            self._wake.clear()

    async def turn(self) -> float:
        """One step of each task that may be run here now.

        :returns: seconds until the next turn is due; infinite if nothing is to be done until another task begins.
        """
        rest = inf if self._queues.hears_of_changes else _LOOK_SECONDS
        tasks = await self._store.open_tasks(MOST_OPEN)
        known = {task.id for task in tasks}
        self._due = {id_: due for id_, due in self._due.items() if id_ in known}
        self._troubles = {id_: trouble for id_, trouble in self._troubles.items() if id_ in known}
        self._said.keep(known)
        for task in tasks:
            if self._stopping:
                return 0.0
            if self._due.get(task.id, 0.0) <= self._clock.elapsed():
                try:
                    seconds = await self._advance(task)
                except QueueyError as error:
                    seconds = _LOOK_SECONDS
                    self._said.say(task, f"is looked at later: {error}")
                self._due[task.id] = self._clock.elapsed() + seconds
            rest = min(rest, max(self._due[task.id] - self._clock.elapsed(), 0.0))
        return rest

    async def _advance(self, task: StoredTask) -> float:
        """Take a task, or do one step of it.

        :returns: seconds until its next step.
        """
        if task.runner != self._server:
            left = (task.runner_until - self._clock.now_ticks()) / TICKS_PER_SECOND
            if task.runner and left > 0 and not self._queues.hears_of_changes:
                return min(left, _LOOK_SECONDS)
            await self._keep(task, task.changed())
            return 0.0
        kind = self._kinds.get(task.kind)
        queue = await self._queues.find(task.application, task.queue_name)
        if kind is None or queue is None or queue.uuid != task.queue:
            reason = "this server does not know such tasks" if kind is None else "the queue was removed"
            await self._abandon(task)
            return await self._ended(task, task.changed(state=TaskState.FAILED, reason=reason))
        try:
            if task.state is TaskState.CANCELLING:
                after = (await kind.end(task, queue)).changed(state=TaskState.CANCELLED)
                return await self._ended(task, after)
            stepped = await kind.step(task, queue)
        except QueueyError as error:
            return await self._failed(task, queue, kind, error)
        except Exception:
            log.exception("%s of %s/%s failed", task.name, task.application, task.queue_name)
            return await self._given_up(task, queue, kind, "an error of the server: see its log")
        self._troubles.pop(task.id, None)
        self._said.forget(task)
        return await self._stepped(task, stepped)

    async def _stepped(self, task: StoredTask, stepped: Stepped) -> float:
        if not stepped.task.is_open:
            return await self._ended(task, stepped.task)
        left = (task.runner_until - self._clock.now_ticks()) / TICKS_PER_SECOND
        if stepped.task != task or left < _KEPT_SECONDS - _RENEW_SECONDS:
            await self._keep(task, stepped.task.changed())
        return min(stepped.rest_seconds, _RENEW_SECONDS)

    async def _failed(self, task: StoredTask, queue: Queue, kind: TaskKind, error: QueueyError) -> float:
        """A step failed. It is repeated if that may help, but not for ever."""
        trouble = self._troubles.get(task.id)
        if _may_help(error) and (trouble is None or self._clock.elapsed() - trouble.since < _PATIENCE_SECONDS):
            self._said.say(task, f"is tried again: {error}")
            return self._rest(task)
        return await self._given_up(task, queue, kind, str(error))

    def _rest(self, task: StoredTask) -> float:
        """Seconds until a task is tried again, more each time."""
        first, most = _RETRY_SECONDS
        trouble = self._troubles.get(task.id, _Trouble(self._clock.elapsed(), first / 2))
        self._troubles[task.id] = trouble._replace(rest_seconds=min(2 * trouble.rest_seconds, most))
        return self._troubles[task.id].rest_seconds

    async def _given_up(self, task: StoredTask, queue: Queue, kind: TaskKind, reason: str) -> float:
        """Bring what is under way to an end first. What a redrive has moved and not deleted, the next would move again."""
        after = task
        try:
            after = await kind.end(task, queue)
        except QueueyError as error:
            if _may_help(error):
                self._said.say(task, f"ends later: {error}")
                return self._rest(task)
            log.warning("%s of %s/%s left something behind", task.name, task.application, task.queue_name)
        except Exception:
            log.exception("%s of %s/%s left something behind", task.name, task.application, task.queue_name)
        return await self._ended(task, after.changed(state=TaskState.FAILED, reason=reason))

    async def _ended(self, task: StoredTask, after: StoredTask) -> float:
        done = after.changed(finished=self._clock.now_ticks(), place={})
        if await self._change(task, done):
            self._monitor.count(TASKS_ENDED, 1, task.application, task.kind, str(after.state))
        return 0.0

    async def _keep(self, task: StoredTask, after: StoredTask) -> None:
        """Store a task as this server's. If another has changed it meanwhile, it is looked at again."""
        until = self._clock.now_ticks() + round(_KEPT_SECONDS * TICKS_PER_SECOND)
        await self._change(task, after.changed(runner=self._server, runner_until=until))

    async def _change(self, before: StoredTask, after: StoredTask) -> bool:
        """Store a task. If its queue was removed during the last step, what the step made goes after it."""
        with suppress(QueueNotFound):
            if await self._store.change_task(before, after):
                return True
        if await self._store.find_task(before.queue, before.name) is None:
            await self._abandon(before)
        return False


def _may_help(error: QueueyError) -> bool:
    """Whether the same may succeed later."""
    return error.retriable or isinstance(error, OutcomeUnknown)
