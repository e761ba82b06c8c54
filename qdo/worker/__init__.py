"""A worker: one member of a group, with the jobs that it runs.

::

    subscribe ─► Group (who owns what) ─► Fetcher (pages ahead) ─► Prefetched ─► job threads ─► commits, grouped

A message that was fetched and not committed when a worker dies is done again by whoever owns its
partition next: at least once, in order within the partition (G16). A job begins only while the worker
knows that nobody else can own its partition (G15).
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import inf
from typing import Any

from qdo.client import Client
from qdo.client.transport import may_pass
from qdo.client.values import Message
from qdo.compat.hooks import dict_context, log_failure, save_failed_message
from qdo.groups.assign import STRATEGIES, Partition
from qdo.groups.coordination import Claim, Coordinator, Offset
from qdo.groups.member import Group
from qdo.groups.waking import Waker
from qdo.worker.buffers import KeyQueue, PartitionBuffer, Prefetched
from qdo.worker.dead_letters import DEFAULT_DEAD_LETTERS, DeadLetters
from qdo.worker.fetching import Fetcher
from qdo.worker.job import Context, Failed, Job, RetryPolicy, StopWorker, check_job
from qdo.worker.runners import caller_of
from qdo.worker.slots import Slots, every_slot, is_slot
from qdo.worker.subscription import each_queue, is_meant, is_pattern, matching
from queuey.clock import Clock, SystemClock
from queuey.errors import ConfigurationError, CoordinatorUnavailable, QueueyError
from queuey.ids import MessageId, format_timestamp

# The names of hooks in settings of 2012 are qdo.worker:log_failure and so on.
__all__ = ["Counts", "StopWorker", "Worker", "dict_context", "log_failure", "save_failed_message"]

log = logging.getLogger(__name__)

TURN_SECONDS = 0.05
"""How long one lane may keep a thread while others wait."""
LIST_SECONDS = 5.0
"""Between two looks at which queues there are, while this member leads."""
LED_SECONDS = 0.5
"""Between two looks whether this member leads, and so has to list them."""
UNTRUSTED_SECONDS = 0.1
MOST_QUEUES_IN_A_COMMIT = 200
"""With slots each queue's offsets are a request: others wait for the next round."""
TELL_SECONDS = 2.0
"""Between two times that a member says how it does."""
MOST_TROUBLES_TOLD = 20
"""Of one member: what it says of itself is held by all others."""


@dataclass
class Counts:
    """What happened so far."""

    done: int = 0
    failed: int = 0
    """Attempts that raised."""
    dead: int = 0
    """Messages given up."""
    commits: int = 0
    refused: int = 0
    """Commits that were too late: somebody else has the partition (G14)."""
    held: int = 0
    """Partitions that stand still since their dead letter can never be written."""


class Worker:
    """Runs ``job`` for each message of the subscribed queues, as one member of ``group``."""

    def __init__(
        self,
        job: Job,
        queues: Sequence[str],
        coordinator: Coordinator,
        make_client: Callable[[], Client],
        *,
        group: str = "default",
        name: str | None = None,
        threads: int = 4,
        processes: int = 0,
        batch: int = 1,
        by_key: int = 1,
        retry: RetryPolicy | None = None,
        dead_letters: str | None = DEFAULT_DEAD_LETTERS,
        at_most_once: bool = False,
        from_end: bool = False,
        exit_at_end: bool = False,
        strategy: str = "sticky",
        slots: bool = False,
        commit_seconds: float = 0.25,
        drain_seconds: float = 30.0,
        hung_seconds: float = 300.0,
        prefetch_messages: int = 2000,
        prefetch_bytes: int = 32 << 20,
        context_value: Any = None,
        on_failure: Callable[[Failed, Any], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """:param queues: names, or patterns with ``*``, ``?`` and ``[...]``; queues that come later are found within ten seconds.
        :param make_client: called once for each thread that talks to Queuey; of one application.
        :param threads: jobs at once at most; one in each partition.
        :param processes: if not 0, jobs run in so many processes, beside the threads that wait for them; job and messages must be picklable.
        :param batch: if not 1, the job is called with a list of up to so many messages of one partition.
        :param by_key: if not 1, up to so many messages of one partition at once: those of one key still one after the
            other, those without a key in no order.
        :param dead_letters: name of the queue for what fails again and again, ``{queue}`` being where it came from;
            None passes it over with an error in the log.
        :param at_most_once: commit before the job begins: a crash loses the message under way instead of repeating it.
        :param from_end: a group that is new begins with messages to come; of queues and partitions that come later it gets all.
        :param exit_at_end: end when everything that is there is done; :attr:`all_done` says whether it is.
        :param slots: divide queues by hash slots instead of partitions: for very many of them. Their offsets are in Queuey.
        :param commit_seconds: between two commits, each for all partitions that moved.
        :param drain_seconds: for jobs under way at the end, or when their partition goes to somebody else.
        :param hung_seconds: a job that takes longer is reported; others go on.
        :param on_failure: called in place of writing a dead letter, with the failure and the context value.
        :raises ConfigurationError: an argument is out of range, the job takes other arguments, or the dead letters of a
            queue that is named would need a name that no queue can have.
        """
        check_job(job, "message" if batch == 1 else "messages", "context")
        if on_failure is not None:
            check_job(on_failure, "failed", "context_value")
        if strategy not in STRATEGIES:
            raise ConfigurationError(f"strategy {strategy!r}: expected one of {', '.join(STRATEGIES)}")
        numbers = {"threads": threads, "batch": batch, "by_key": by_key, "prefetch_messages": prefetch_messages}
        for what, value in numbers.items():
            if value < 1:
                raise ConfigurationError(f"{what} is {value}: expected 1 or more")
        if at_most_once and by_key > 1:
            raise ConfigurationError("at_most_once records before the job begins, and so goes one by one: no by_key")
        if not queues:
            raise ConfigurationError("no queue to work on: name one, or a pattern")
        self._clock = clock or SystemClock()
        self._patterns = list(queues)
        self._coordinator = coordinator
        self._make_client = make_client
        self._retry = retry or RetryPolicy()
        self._dead = None if dead_letters is None else DeadLetters(dead_letters, group)
        self._left_out: dict[str, str] = {}
        """Queues that a pattern means and that cannot be worked on, and why."""
        if self._dead is not None:
            for queue in queues:
                if not is_pattern(queue):
                    self._dead.queue_for(queue)
        self._on_failure = on_failure
        self._at_most_once = at_most_once
        self._batch = batch
        self._by_key = by_key
        self._threads = threads
        self._group_name = group
        self._value = context_value
        self._commit_seconds = commit_seconds
        self._hung_seconds = hung_seconds
        self._exit_at_end = exit_at_end
        self._lanes = Prefetched(prefetch_messages=prefetch_messages, prefetch_bytes=prefetch_bytes)
        self._from_end = from_end and not slots
        self._at_first: Collection[Partition] | None = None
        """Those that were there when this worker began."""
        self._fetcher = Fetcher(make_client, self._lanes, self._clock, from_end=self._from_end)
        self._caller = caller_of(job, processes)
        self._call = self._caller.call
        """The job, or :meth:`_timed` where somebody wants to know how long it takes."""
        self._about = {
            "name": name or socket.gethostname().partition(".")[0],
            "host": socket.getfqdn(),
            "pid": os.getpid(),
            "queues": self._patterns,
            "dead_letters": dead_letters,
        }
        self.group = Group(
            coordinator,
            self,
            lambda: self._subscribed,
            clock=self._clock,
            about=self._about,
            strategy=STRATEGIES[strategy],
            drain_seconds=drain_seconds,
            accepts=lambda partition: is_slot(partition) == slots,
        )
        self._slots: Slots | None = None
        if slots:
            self._slots = Slots(
                *(coordinator, self._lanes, self._fetcher, make_client, group),
                list_queues=lambda client: each_queue(client, self._patterns, self._leaves_out),
                is_meant=lambda name: is_meant(name, self._patterns, self._leaves_out),
                make_lane=self._make_lane,
                clock=self._clock,
                from_end=from_end,
            )
        self.counts = Counts()
        self.all_done = False
        """The end that ``exit_at_end`` asks for was reached, and nothing was given up, stood still or was left out."""
        self._told = (self._clock.elapsed(), 0)
        self._committed_at: str | None = None
        self.took: Callable[[float], None] | None = None
        """Told the seconds of each call of the job, by whatever thread made it. Set it before :meth:`run`."""
        self._subscribed: Collection[Partition] | None = every_slot() if slots else None
        self._waker = Waker()
        self._stopped = self._stopped_at_once = False
        """What :meth:`stop` was told; :meth:`run` tells the other threads by ``_stopping``, which takes a lock."""
        self._stopping = threading.Event()
        self._error: QueueyError | None = None
        """What ended a job's thread, and with it the worker."""
        self._reported: set[Claim] = set()
        coordinator.changed = self._waker.wake

    # Life

    def run(self) -> Counts:
        """Work until :meth:`stop`, a job's :class:`~qdo.worker.job.StopWorker`, or the end that ``exit_at_end`` asks for.

        :raises QueueyError: offsets are refused for good, such as Forbidden: what is done could not be recorded.
        """
        if self.took is not None:
            self._call = partial(self._timed, self.took)
        look = self._list if self._slots is None else partial(self._slots.run, self._stopping)
        threads = [threading.Thread(target=look, name="list", daemon=True)]
        threads += [
            threading.Thread(target=self._work, name=f"job-{number}", daemon=True) for number in range(self._threads)
        ]
        for thread in threads:
            thread.start()
        try:
            while not self._stopped:
                rest = min(self.group.step(), self._commit_seconds)
                self._commit()
                self._report_hung()
                self._tell()
                if self._exit_at_end and self._is_at_end():
                    self.all_done = not (self.counts.dead or self.counts.held or self.troubles())
                    break
                self._waker.wait(rest)
            self._end_threads()
            while not self._stopped_at_once and (left := self.group.leave()) is not None:
                self._commit()
                self._waker.wait(min(left, 0.05))
        finally:
            self._end_threads()
            self._fetcher.stop()
            self._lanes.close()
            self._coordinator.close()
            self._caller.close()
        if self._error is not None:
            raise self._error
        return self.counts

    def stop(self, *, at_once: bool = False) -> None:
        """Let :meth:`run` end: jobs under way are waited for, what they did is committed, partitions are given back.

        May be called in a signal handler: it takes no lock.

        :param at_once: wait for nothing; what is not committed will be done again.
        """
        self._stopped_at_once = self._stopped_at_once or at_once
        self._stopped = True
        self._waker.wake()

    def _end_threads(self) -> None:
        self._stopped = True
        self._stopping.set()

    @property
    def requests(self) -> int:
        """Sent to read messages, so far."""
        return self._fetcher.requests

    def waiting(self) -> list[tuple[int, MessageId | None]]:
        """Of each partition that is owned: how many messages are fetched and not finished, and the first of them."""
        return self._lanes.waiting()

    def _is_at_end(self) -> bool:
        """Everything that there is for this member is done, as far as it can be: only then may it go."""
        looked = self._at_first is not None if self._slots is None else self._slots.at_end()
        return self.group.settled and looked and self._lanes.at_end()

    # Which queues there are

    def _list(self) -> None:
        """While this member leads; and once when it begins. It forgets a list that it does not renew: a plan made by it would leave out what came since."""
        with self._make_client() as client:
            while not self._stopping.is_set():
                if not self.group.leads and self._at_first is not None:
                    self._subscribed = None
                else:
                    try:
                        self._subscribed = self._matching(client)
                    except QueueyError as error:
                        log.warning("the queues cannot be listed: %s", error)
                    except Exception:
                        log.exception("the queues cannot be listed: what answered is not what Queuey says")
                    else:
                        if self._at_first is None:
                            self._at_first = frozenset(self._subscribed)
                        self._waker.wake()
                is_known = self.group.leads and self._subscribed is not None
                self._stopping.wait(LIST_SECONDS if is_known else LED_SECONDS)

    def _matching(self, client: Client) -> list[Partition]:
        """A pattern never means the group's own dead letters; who wants these names their queue."""
        return matching(client, self._patterns, self._leaves_out)

    def _leaves_out(self, name: str) -> bool:
        """Whether no pattern means this queue: it has dead letters, or could not get rid of its own."""
        if self._dead is None:
            return False
        if self._dead.is_one(name):
            return True
        try:
            self._dead.queue_for(name)
        except ConfigurationError as error:
            if name not in self._left_out and len(self._left_out) < MOST_TROUBLES_TOLD:
                self._left_out[name] = f"it is left out: {error}"
                log.error("queue %s is left out: %s", name, error)  # noqa: TRY400 - the text says all
            return True
        return False

    # What the group says

    def gained(self, claims: Mapping[Claim, Offset | None]) -> None:
        if self._slots is not None:
            self._slots.gained(claims)
            return
        for claim, offset in claims.items():
            self._lanes.add(self._make_lane(claim, offset))
        self._fetcher.follow(sorted({claim.partition.queue for claim in claims}))

    def _make_lane(self, claim: Claim, offset: Offset | None) -> PartitionBuffer:
        contexts = [self._context(claim) for _ in range(self._by_key)]
        return PartitionBuffer(claim, offset, contexts, from_end=self._from_end and self._was_there(claim.partition))

    def _was_there(self, partition: Partition) -> bool:
        """What a partition got that came while the group was at work is to come, for who begins at the end."""
        return self._at_first is None or partition in self._at_first

    def _context(self, claim: Claim) -> Context:
        return Context(
            claim.partition.queue,
            claim.partition.number,
            claim.generation,
            member=self.group.name or "",
            group=self._group_name,
            clock=self._clock,
            value=self._value,
        )

    def losing(self, claims: Collection[Claim]) -> None:
        (self._lanes.shut if self._slots is None else self._slots.losing)(claims)

    def drained(self, claims: Collection[Claim]) -> Collection[Claim]:
        self._commit()
        if self._slots is not None:
            return self._slots.drained(claims)
        done = self._lanes.drained(claims)
        self._lanes.remove(done)
        return done

    def lost(self, claims: Collection[Claim]) -> None:
        (self._lanes.remove if self._slots is None else self._slots.lost)(claims)

    # Committing

    def _commit(self) -> None:
        if not self._coordinator.trusted():
            return
        offsets = self._lanes.to_commit()
        if self._slots is not None:
            offsets = dict(islice(offsets.items(), MOST_QUEUES_IN_A_COMMIT))
        try:
            refused = self._record(offsets) if offsets else ()
            if self._slots is not None and (gone := self._slots.record_moments()):
                self.group.fenced(gone)
                self._waker.wake()
        except CoordinatorUnavailable as error:
            log.warning("offsets are not committed yet: %s", error)
            return
        if not offsets:
            return
        self.counts.commits += 1
        self._committed_at = format_timestamp(self._clock.now_ticks())
        self.counts.refused += len(refused)

    def _record(self, offsets: Mapping[Claim, Offset]) -> Collection[Claim]:
        """:returns: claims that are gone; the group hears of them.
        :raises CoordinatorUnavailable: they may be recorded or not.
        """
        refused = self._coordinator.commit(offsets) if self._slots is None else self._slots.record(offsets)
        self._lanes.committed({claim: offset for claim, offset in offsets.items() if claim not in refused})
        if refused:
            (self.group if self._slots is None else self._slots).fenced(refused)
            self._waker.wake()
        return refused

    def _tell(self) -> None:
        """Let who looks at the group see how this member does."""
        (before, done_before), now, done = self._told, self._clock.elapsed(), self.counts.done
        if now - before < TELL_SECONDS or self.group.name is None:
            return
        self._told = now, done
        troubles = self.troubles()[:MOST_TROUBLES_TOLD]
        rate = round((done - done_before) / (now - before), 1)
        counts = {"done": done, "failed": self.counts.failed, "dead": self.counts.dead, "per_second": rate}
        with contextlib.suppress(CoordinatorUnavailable):  # it is only news
            self._coordinator.tell({**self._about, **counts, "committed": self._committed_at, "troubles": troubles})

    def troubles(self) -> list[dict[str, Any]]:
        """What stands still and why: ``queue``, ``why``, and of a single partition ``partition`` and ``message_id``."""
        found: list[dict[str, Any]] = [
            {
                "queue": lane.claim.partition.queue,
                "partition": lane.claim.partition.number,
                "message_id": strand.failed.messages[0].id.hex if strand.failed else None,
                "why": strand.trouble,
            }
            for lane in self._lanes.all()
            for strand in lane.strands
            if strand.trouble is not None
        ]
        queues = {**self._left_out, **self._fetcher.troubles()}
        return found + [{"queue": queue, "why": why} for queue, why in sorted(queues.items())]

    def _report_hung(self) -> None:
        now = self._clock.elapsed()
        for lane in self._lanes.all():
            longest = max(now - strand.began for strand in lane.strands)
            if longest > self._hung_seconds and lane.claim not in self._reported:
                self._reported.add(lane.claim)
                log.error("a job in %s takes longer than %g s", lane.claim.partition, self._hung_seconds)

    # Jobs

    def _work(self) -> None:
        elapsed = self._clock.elapsed
        with self._make_client() as client:
            while (strand := self._lanes.next_ready(elapsed(), elapsed)) is not None:
                resume_at = elapsed() + 1.0
                try:
                    resume_at = self._turn(strand, client)
                except StopWorker:
                    self.stop()
                except QueueyError as error:  # what is done cannot be recorded, and never will be
                    self._error = error
                    self.stop()
                except Exception:
                    log.exception("a worker's thread failed in %s", strand.lane.claim.partition)
                finally:
                    self._lanes.rest(strand, resume_at)

    def _turn(self, strand: KeyQueue, client: Client) -> float:
        """Run a strand's jobs for a while.

        :returns: the elapsed time before which it is not to go on.
        """
        elapsed, trusted = self._clock.elapsed, self._coordinator.trusted
        until = elapsed() + TURN_SECONDS
        lane = strand.lane
        while lane.open and not self._stopped:
            if not trusted():
                return elapsed() + UNTRUSTED_SECONDS
            failed = strand.failed
            messages = list(islice(strand.buffer, self._batch)) if failed is None else failed.messages
            if self._at_most_once and not self._committed_first(lane, messages[-1]):
                return elapsed() + UNTRUSTED_SECONDS
            pause = self._attempt(strand, messages, client) if failed is None else self._give_up(strand, failed, client)
            if pause is not None:
                return elapsed() + pause
            if not self._lanes.finished(strand, len(messages)) or elapsed() > until:
                break
        return 0.0

    def _attempt(self, strand: KeyQueue, messages: Sequence[Message], client: Client) -> float | None:
        """One attempt.

        :returns: None when the messages are finished, else seconds until the next attempt.
        """
        context = strand.context
        context.attempt, context.message = strand.attempt, messages[0]
        try:
            self._call(messages[0] if self._batch == 1 else list(messages), context)
        except StopWorker:
            raise
        except Exception as error:
            self.counts.failed += 1
            failed = Failed(context.queue, messages, strand.attempt, error)
            log.warning(
                "attempt %d at %s in %s failed: %s",
                *(failed.attempts, messages[0].id.hex, strand.lane.claim.partition, failed.reason),
                exc_info=(type(error), error, failed.job_traceback),
            )
            pause = None if self._at_most_once else self._retry.pause(strand.attempt)
            if pause is None:
                return self._give_up(strand, failed, client)
            strand.attempt += 1
            return pause
        self.counts.done += len(messages)
        return None

    def _timed(self, took: Callable[[float], None], what: Any, context: Context) -> None:
        began = self._clock.elapsed()
        try:
            self._caller.call(what, context)
        finally:
            took(self._clock.elapsed() - began)

    def _give_up(self, strand: KeyQueue, failed: Failed, client: Client) -> float | None:
        """:returns: None when the failure is dealt with, else seconds until that is tried again; the job is not."""
        strand.failed = failed
        try:
            if self._on_failure is not None:
                self._on_failure(failed, self._value)
            elif self._dead is not None:
                self._dead.write(client, failed)
            else:
                log.error("given up after %d attempts: %s", failed.attempts, failed.reason)
        except StopWorker:
            raise
        except Exception as error:  # noqa: BLE001 - on_failure is a user's
            return self._not_told(strand, failed, error)
        strand.failed = strand.trouble = None
        strand.untold = 0
        self.counts.dead += len(failed.messages)
        return None

    def _not_told(self, strand: KeyQueue, failed: Failed, error: Exception) -> float:
        """:returns: seconds until it is tried again; infinite where the server would refuse it again."""
        what = "on_failure" if self._on_failure is not None else "the dead letter"
        said = f"{error.code}: {error}" if isinstance(error, QueueyError) else Failed("", (), 0, error).reason
        strand.trouble = f"{what} of message {failed.messages[0].id.hex} failed: {said}"[:500]
        place = strand.lane.claim.partition
        if isinstance(error, QueueyError) and not may_pass(error):
            self._lanes.hold(strand, len(failed.messages))
            self.counts.held += 1
            log.error(
                "%s stands still: %s; mend that and restart the worker, or pass the message over with "
                "'qdo offsets set'",
                *(place, strand.trouble),
            )
            return inf
        strand.untold += 1
        pause = RetryPolicy(strand.untold + 1, most_seconds=self._retry.most_seconds).pause(strand.untold) or 0.0
        log.warning("%s waits %.1f s: %s", place, pause, strand.trouble)
        return pause

    def _committed_first(self, lane: PartitionBuffer, message: Message) -> bool:
        """At most once: nobody will see these messages again."""
        try:
            return not self._record({lane.claim: Offset(lane.incarnation, message.id)})
        except CoordinatorUnavailable:
            return False
