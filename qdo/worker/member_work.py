"""Work on owned partitions or slots: a worker that is one member of a group.

::

    GroupMember (owners) ─► Owner (where work is) ─► Fetcher (reads ahead) ─► Prefetched ─► JobThreads ─► commits

A worker that dies leaves messages that were fetched and not committed. The next owner of their partition does them
again: each message is done at least once, in order within its partition (G16). A job begins only while the worker
knows that nobody else can own the partition (G15).
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Any

from qdo.client import Client
from qdo.groups.assign import STRATEGIES
from qdo.groups.coordination import Claim, CommittedOffset, Coordinator
from qdo.groups.dead_letter_names import DeadLetterNames
from qdo.groups.member import GroupMember, GroupRules
from qdo.groups.subscription import WorkerSubscription
from qdo.groups.waking import Waker
from qdo.worker.buffers import KeyQueue, PartitionBuffer, Prefetched
from qdo.worker.fetching import Fetcher
from qdo.worker.job import Context, Job
from qdo.worker.last_look import LastLook
from qdo.worker.options import WorkerOptions
from qdo.worker.owners import Owner, owner_of
from qdo.worker.parts import WorkerParts
from qdo.worker.threads import JobThreads
from qdo.worker.work import AnyWork, Counts, JobCaller, WorkerFigures
from queuey.clock import SystemClock
from queuey.errors import CoordinatorUnavailable
from queuey.ids import MessageId, format_timestamp

__all__ = ["MemberWork"]

log = logging.getLogger(__name__)

TELL_SECONDS = 2.0
"""Between two times that a member tells the group how it does."""
MOST_TROUBLES_TOLD = 20
"""Of one member: all other members keep what it tells."""


class MemberWork(AnyWork):
    """Runs a job for each message of the subscribed queues, as one member of a group."""

    def __init__(
        self,
        job: Job,
        queues: Sequence[str],
        coordinator: Coordinator,
        make_client: Callable[[], Client],
        options: WorkerOptions,
    ) -> None:
        """:raises ConfigurationError: the dead letters of a queue that is named would need a name that no queue can have."""
        self.options = options
        make_client = self.ending_without(make_client)
        names = None if options.dead_letters is None else DeadLetterNames(options.dead_letters)
        self._clock = options.clock or SystemClock()
        self._coordinator = coordinator
        self._subscription = WorkerSubscription(queues, names, options.wants)
        self._prefetched = Prefetched(
            prefetch_messages=options.prefetch_messages, prefetch_bytes=options.prefetch_bytes
        )
        self._fetcher = Fetcher(make_client, self._prefetched, self._clock, from_end=options.partitions_begin_at_end)
        self._waker = Waker()
        self._last_look = LastLook(make_client, self._prefetched, self._waker.wake)
        parts = WorkerParts(
            coordinator,
            make_client,
            self._clock,
            self._prefetched,
            self._fetcher,
            self._make_buffer,
            term=lambda: self.group.term,
            wake=self._waker.wake,
        )
        self._owner: Owner = owner_of(options, self._subscription, parts)
        self.caller = JobCaller(job, options)
        self._jobs = JobThreads(self.caller, options, parts, names, self._record, self.stop)
        self._about = _about(options, self._subscription)
        self.group = GroupMember(
            coordinator,
            self,
            self._owner.divided,
            clock=self._clock,
            about=self._about,
            rules=GroupRules(STRATEGIES[options.strategy], options.drain_seconds, self._owner.accepts),
        )
        self._told = (self._clock.elapsed(), 0)
        self._committed_at: str | None = None
        self._stopped = self._stopped_at_once = False
        """Set by :meth:`stop`. :meth:`run` passes it on to other threads by ``_stopping``, which takes a lock."""
        self._stopping = threading.Event()
        self._hung: Collection[tuple[KeyQueue, float]] = ()
        """Jobs that were reported, by where they run and when they began."""
        coordinator.changed = self._waker.wake

    # Life

    def run(self) -> None:
        threading.Thread(target=self._owner.find_work, args=(self._stopping,), name="find-work", daemon=True).start()
        self._jobs.start()
        try:
            while not self._stopped:
                rest = min(self.group.step(), self.options.commit_seconds)
                self._commit()
                self._report_hung()
                self._tell()
                if self.options.exit_at_end and self._is_at_end():
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
            self._prefetched.close()
            self._coordinator.close()
            self._owner.close()
            self._jobs.close()
        if (error := self._jobs.error or self.error) is not None:
            raise error

    def stop(self, *, at_once: bool = False) -> None:
        self._stopped_at_once = self._stopped_at_once or at_once
        self._stopped = True
        self._jobs.end()
        self._waker.wake()

    def _end_threads(self) -> None:
        self._stopped = True
        self._jobs.end()
        self._stopping.set()

    @property
    def counts(self) -> Counts:
        return self._jobs.counts

    @property
    def requests(self) -> int:
        return self._fetcher.requests

    @property
    def worker_name(self) -> str:
        return self.group.name or ""

    def waiting(self) -> list[tuple[int, MessageId | None]]:
        """Of each owned partition: how many messages wait, and the first of them."""
        return [buffer.waiting() for buffer in self._prefetched.all()]

    def figures(self) -> WorkerFigures:
        is_trusted, group = self._coordinator.trusted(), self.group
        return WorkerFigures.of(self, connected=is_trusted, rebalances=group.rebalances, owned=len(group.held))

    def _is_at_end(self) -> bool:
        """Whether this member has done everything that it can do. Only then may it go."""
        return self.group.settled and self._owner.at_end() and self._last_look.confirms_the_end()

    # What the group says

    def gained(self, claims: Mapping[Claim, CommittedOffset | None]) -> None:
        self._owner.gained(claims)

    def losing(self, claims: Collection[Claim]) -> None:
        self._owner.losing(claims)

    def drained(self, claims: Collection[Claim]) -> Collection[Claim]:
        self._commit()
        return self._owner.drained(claims)

    def lost(self, claims: Collection[Claim]) -> None:
        self._owner.lost(claims)

    def _make_buffer(self, claim: Claim, offset: CommittedOffset | None, *, from_end: bool = False) -> PartitionBuffer:
        contexts = [self._context(claim) for _ in range(self.options.by_key)]
        return PartitionBuffer(claim, offset, contexts, from_end=from_end)

    def _context(self, claim: Claim) -> Context:
        return Context(
            claim,
            member=self.group.name or "",
            group=self.options.group,
            clock=self._clock,
            value=self.options.context_value,
        )

    # Committing

    def _commit(self) -> None:
        if not self._coordinator.trusted():
            return
        offsets = dict(islice(self._prefetched.to_commit().items(), self._owner.most_in_a_commit))
        refused: Collection[Claim] = ()
        try:
            if offsets:
                refused = self._record(offsets)
            if gone := self._owner.after_commit():
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

    def _record(self, offsets: Mapping[Claim, CommittedOffset]) -> Collection[Claim]:
        """:returns: claims that are gone. The group hears of them once no job runs there.
        :raises CoordinatorUnavailable: the offsets may be recorded or not.
        """
        refused = self._owner.record(offsets)
        self._prefetched.committed({claim: offset for claim, offset in offsets.items() if claim not in refused})
        if refused:
            self._owner.fenced(refused)
            self._waker.wake()
        return refused

    # Telling how it goes

    def _tell(self) -> None:
        """Tell whoever looks at the group how this member does."""
        (before, done_before), now, done = self._told, self._clock.elapsed(), self.counts.done
        if now - before < TELL_SECONDS or self.group.name is None:
            return
        self._told = now, done
        troubles = self.troubles()[:MOST_TROUBLES_TOLD]
        rate = round((done - done_before) / (now - before), 1)
        counts = {"done": done, "failed": self.counts.failed, "dead": self.counts.dead, "per_second": rate}
        with contextlib.suppress(CoordinatorUnavailable):  # the next time will do
            self._coordinator.tell({**self._about, **counts, "committed": self._committed_at, "troubles": troubles})

    def troubles(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = [
            {
                "queue": buffer.claim.partition.queue,
                "partition": buffer.claim.partition.number,
                "message_id": key_queue.failed.messages[0].id.hex if key_queue.failed else None,
                "why": key_queue.trouble,
            }
            for buffer in self._prefetched.all()
            for key_queue in buffer.key_queues
            if key_queue.trouble is not None
        ]
        queues = {**self._subscription.left_out, **self._fetcher.troubles()}
        return found + [{"queue": queue, "why": why} for queue, why in sorted(queues.items())]

    def _report_hung(self) -> None:
        now, hung = self._clock.elapsed(), self.options.hung_seconds
        late = {
            (key_queue, began): buffer.claim.partition
            for buffer in self._prefetched.all()
            for key_queue in buffer.key_queues
            if now - (began := key_queue.began) > hung
        }
        for job, partition in late.items():
            if job not in self._hung:
                log.error("a job in %s takes longer than %g s", partition, hung)
        self._hung = late.keys()


def _about(options: WorkerOptions, subscription: WorkerSubscription) -> Mapping[str, Any]:
    """What a member says of itself when it joins."""
    return {
        "name": options.name or socket.gethostname().partition(".")[0],
        "host": socket.getfqdn(),
        "pid": os.getpid(),
        "queues": subscription.patterns,
        "dead_letters": options.dead_letters,
    }
